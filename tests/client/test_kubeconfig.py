import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterip.client import kubeconfig
from clusterip.client.kubeconfig import load
from clusterip.errors import BadInput, Unavailable


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "lab", "user": "me", "namespace": "shop"}}],
        "clusters": [{"name": "lab", "cluster": {"server": "https://192.168.50.1:6443/", **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}],
    }


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(document: object) -> str:
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return written


def test_a_token_and_authority_data(write: Any) -> None:
    data = base64.b64encode(b"PEM").decode()
    connection = load(write(config({"certificate-authority-data": data}, {"token": "secret"})))
    assert connection.server == "https://192.168.50.1:6443"
    assert (connection.token, connection.ca_data, connection.namespace) == ("secret", b"PEM", "shop")
    assert not connection.insecure


def test_files_are_found_beside_the_kubeconfig(write: Any, tmp_path: Path) -> None:
    user = {"client-certificate": "me.crt", "client-key": "/etc/me.key"}
    connection = load(write(config({"certificate-authority": "pki/ca.crt"}, user)))
    assert connection.ca_file == str(tmp_path / "pki/ca.crt")
    assert connection.client_cert_file == str(tmp_path / "me.crt")
    assert connection.client_key_file == "/etc/me.key"


def test_insecure_and_server_name(write: Any) -> None:
    connection = load(write(config({"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes"})))
    assert connection.insecure
    assert connection.tls_server_name == "kubernetes"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([1], "holds no mapping"),
        ({**config(), "current-context": ""}, "current-context is not set"),
        ({**config(), "current-context": "there"}, "no entry of contexts is named 'there'"),
        ({**config(), "clusters": []}, "no entry of clusters is named 'lab'"),
        ({**config(), "users": None}, "no entry of users is named 'me'"),
        (config({"server": "192.168.50.1"}), "is no URL"),
        (config({"server": "https://[::1"}), "is no URL"),
        (config({"certificate-authority-data": "%%%"}), "is not base64"),
        (config({"proxy-url": "http://proxy"}), "proxy-url is not supported"),
        (config(user={"exec": {"command": "aws"}}), "an exec plug-in, which is not supported"),
        (config(user={"auth-provider": {"name": "gcp"}}), "an auth-provider plug-in"),
        (config(user={"username": "admin", "password": "x"}), "signs in with a password"),
        (config(user={"client-certificate": "me.crt"}), "needed together"),
        (config(user={"token": 7}), "token must be text"),
    ],
)
def test_what_cannot_be_used_is_said(write: Any, document: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(write(document))


def test_a_file_that_is_missing_or_no_yaml(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read, No such file"):
        load(str(tmp_path / "none"))
    (tmp_path / "bad").write_text("{[")
    with pytest.raises(BadInput, match="is not YAML"):
        load(str(tmp_path / "bad"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="not UTF-8"):
        load(str(tmp_path / "bytes"))


def test_in_a_pod_the_environment_and_the_mounted_token_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00:96::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(Unavailable, match="not a pod of a cluster"):
        kubeconfig.in_cluster()
    (tmp_path / "token").write_text("t\n")
    connection = kubeconfig.in_cluster()
    assert connection.server == "https://[fd00:96::1]:443"
    assert connection.token_file == str(tmp_path / "token")
