"""Where the API server is and who we are to it: from a kubeconfig file, or from the pod we run in.

Source: Kubernetes docs, "Organizing Cluster Access Using kubeconfig Files".
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from clusterip.errors import BadInput, Unavailable
from clusterip.model.status import Object

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Connection:
    """A file wins nothing over its `_data` twin: `load` fills only one of the two."""

    server: str  # "https://192.168.50.1:6443", no slash at the end
    token: str = ""
    token_file: str = ""  # read again when the server refuses the token: mounted tokens are replaced while we run
    ca_file: str = ""
    ca_data: bytes = b""  # PEM
    client_cert_file: str = ""
    client_cert_data: bytes = b""  # PEM
    client_key_file: str = ""
    client_key_data: bytes = b""  # PEM
    insecure: bool = False  # do not check the server's certificate
    tls_server_name: str = ""  # the name its certificate is for, where that is not the one we dial
    namespace: str = ""  # of the context; "" when it names none


def load(path: str) -> Connection:
    """The current context of the kubeconfig file at `path`. Raises BadInput."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(
            f"kubeconfig {path}: cannot be read, {reason}",
            "name another with --kubeconfig, or start a cluster with: clusterip up",
        ) from None
    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)
    except yaml.YAMLError as error:
        raise BadInput(f"kubeconfig {path}: is not YAML, {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise BadInput(f"kubeconfig {path}: holds no mapping with clusters, users and contexts")
    return _Kubeconfig(path, document).connection()


def in_cluster() -> Connection:
    """What Kubernetes tells a pod of its API server. Raises Unavailable outside of one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    token, authority = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    if not host or not port or not token.exists():
        raise Unavailable(
            "API server: its address is unknown, no kubeconfig was named and this is not a pod of a cluster",
            "name one with --kubeconfig",
        )
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        token_file=str(token),
        ca_file=str(authority) if authority.exists() else "",
    )


@dataclass(frozen=True, slots=True)
class _Kubeconfig:
    path: str
    document: Object

    def connection(self) -> Connection:
        current = self.document.get("current-context")
        if not current:
            raise BadInput(
                f"kubeconfig {self.path}: current-context is not set",
                f"kubectl --kubeconfig {self.path} config use-context NAME",
            )
        context = self._named("contexts", "context", current)
        cluster = self._named("clusters", "cluster", context.get("cluster"))
        user = self._named("users", "user", context["user"]) if context.get("user") else {}
        server = self._server(cluster)
        self._refuse(cluster, user)
        ca_file, ca_data = self._file_or_data(cluster, "certificate-authority")
        cert_file, cert_data = self._file_or_data(user, "client-certificate")
        key_file, key_data = self._file_or_data(user, "client-key")
        if bool(cert_file or cert_data) != bool(key_file or key_data):
            raise BadInput(
                f"kubeconfig {self.path}: a client certificate and its key are needed together, one is missing"
            )
        token = self._text(user, "token")
        token_file = "" if token else self._text(user, "tokenFile")
        return Connection(
            server=server,
            token=token,
            token_file=self._beside(token_file),
            ca_file=ca_file,
            ca_data=ca_data,
            client_cert_file=cert_file,
            client_cert_data=cert_data,
            client_key_file=key_file,
            client_key_data=key_data,
            insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
            tls_server_name=self._text(cluster, "tls-server-name"),
            namespace=self._text(context, "namespace"),
        )

    def _named(self, section: str, key: str, name: object) -> Object:
        entries = self.document.get(section) or []
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(key), dict):
                found: Object = entry[key]
                return found
        raise BadInput(f"kubeconfig {self.path}: no entry of {section} is named {name!r}")

    def _server(self, cluster: Object) -> str:
        server = self._text(cluster, "server").rstrip("/")
        try:
            parts = urlsplit(server)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise BadInput(f"kubeconfig {self.path}: server {server!r} is no URL such as https://192.168.50.1:6443")
        return server

    def _refuse(self, cluster: Object, user: Object) -> None:
        """What would need other programs or ways that this client does not go: said now, not as a 401 later."""
        if "exec" in user or "auth-provider" in user:
            kind = "an exec plug-in" if "exec" in user else "an auth-provider plug-in"
            raise BadInput(
                f"kubeconfig {self.path}: the user signs in through {kind}, which is not supported",
                "use a token instead: kubectl create token SERVICEACCOUNT",
            )
        if "username" in user or "password" in user:
            raise BadInput(
                f"kubeconfig {self.path}: the user signs in with a password, which no API server accepts any more",
                "use a token or a client certificate",
            )
        if cluster.get("proxy-url"):
            raise BadInput(
                f"kubeconfig {self.path}: proxy-url is not supported, the API server must be reachable directly"
            )

    def _file_or_data(self, entry: Object, key: str) -> tuple[str, bytes]:
        """(file, b"") or ("", data); `-data` wins, as in kubectl."""
        if not entry.get(f"{key}-data"):
            return self._beside(self._text(entry, key)), b""
        try:
            return "", base64.b64decode(self._text(entry, f"{key}-data"), validate=True)
        except (binascii.Error, ValueError):
            raise BadInput(f"kubeconfig {self.path}: {key}-data is not base64") from None

    def _text(self, entry: Mapping[str, object], key: str) -> str:
        value = entry.get(key) or ""
        if not isinstance(value, str):
            raise BadInput(f"kubeconfig {self.path}: {key} must be text, found {value!r}")
        return value

    def _beside(self, file: str) -> str:
        """Relative names are relative to the kubeconfig file."""
        return str(Path(self.path).resolve().parent / file) if file else ""
