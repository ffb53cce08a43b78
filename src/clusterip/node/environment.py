"""The environment of a container: what Kubernetes promises, what the image says, what the container says. Pure.

Source: Kubernetes docs, "Define Environment Variables for a Container", "Define Dependent Environment Variables",
"Accessing the Service" (environment variables).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from clusterip.errors import ClusterIPError
from clusterip.model.objects import ConfigMap, Container, EnvFromSource, EnvVarSource, Pod, Service

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class ConfigError(ClusterIPError):
    """The container cannot be configured: something it needs is not there (yet)."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the environment of a pod's containers is made from."""

    pod: Pod
    pod_ips: tuple[str, ...]  # the primary one first, as the node's
    host_ips: tuple[str, ...]
    node_name: str
    hostname: str
    services: tuple[Service, ...] = ()  # of all namespaces
    config_maps: Mapping[str, ConfigMap] = field(default_factory=lambda: MappingProxyType({}))  # of the pod's, by name


def build(context: Context, container: Container, of_image: Mapping[str, str]) -> dict[str, str]:
    """Later ones win: Services, image, envFrom, env. Raises ConfigError."""
    spec = context.pod.spec
    found = {"PATH": PATH, "HOSTNAME": context.hostname, "HOME": "/root"}
    found |= of_image
    links = service_links(context.services, context.pod.metadata.namespace, every=spec.enable_service_links)
    for source in container.env_from:
        found |= _all_of(context, source)
    own: dict[str, str] = {}
    for variable in container.env:
        if variable.value_from is None:
            own[variable.name] = expand(variable.value, {**links, **found, **own})
        else:
            value = _looked_up(context, variable.value_from)
            if value is not None:
                own[variable.name] = value
    return {**links, **found, **own}


def expand(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` gives the value, or stays as it is where there is none; `$$` gives `$`."""

    def replaced(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return known.get(found[1], found[0])

    return _REFERENCE.sub(replaced, text)


def service_links(services: Iterable[Service], namespace: str, *, every: bool) -> dict[str, str]:
    """Variables of the Services of `namespace` (`every`), and of default/kubernetes always. Only those that have an
    address of their own; of two Services whose names look alike in capitals the later by name wins."""
    chosen: dict[str, Service] = {}
    for service in services:
        meta = service.metadata
        api = (meta.namespace, meta.name) == ("default", "kubernetes")
        if service.spec.cluster_ip in ("", "None") or not service.spec.ports:
            continue
        if (every and meta.namespace == namespace) or (api and meta.name not in chosen):
            chosen[meta.name] = service
    found: dict[str, str] = {}
    for name in sorted(chosen):
        found |= _link(chosen[name])
    return found


def _link(service: Service) -> dict[str, str]:
    prefix = _capitals(service.metadata.name)
    host, ports = service.spec.cluster_ip, service.spec.ports or ()
    found = {f"{prefix}_SERVICE_HOST": host, f"{prefix}_SERVICE_PORT": str(ports[0].port)}
    for port in ports:
        if port.name:
            found[f"{prefix}_SERVICE_PORT_{_capitals(port.name)}"] = str(port.port)
    bracketed = f"[{host}]" if ":" in host else host
    for number, port in enumerate(ports):
        protocol = port.protocol.lower()
        url = f"{protocol}://{bracketed}:{port.port}"
        if number == 0:
            found[f"{prefix}_PORT"] = url
        each = f"{prefix}_PORT_{port.port}_{port.protocol.upper()}"
        found |= {each: url, f"{each}_PROTO": protocol, f"{each}_PORT": str(port.port), f"{each}_ADDR": host}
    return found


def _capitals(name: str) -> str:
    return name.upper().replace("-", "_")


def _looked_up(context: Context, source: EnvVarSource) -> str | None:
    """None: it is optional and not there."""
    if source.field_ref:
        return field_value(context, source.field_ref.field_path)
    if ref := source.config_map_key_ref:
        config = context.config_maps.get(ref.name)
        if config is not None and ref.key in config.data:
            return config.data[ref.key]
        if ref.optional:
            return None
        raise ConfigError(
            f"couldn't find key {ref.key} in ConfigMap {context.pod.metadata.namespace}/{ref.name}"
            if config is not None
            else f'configmap "{ref.name}" not found'
        )
    if source.secret_key_ref:
        if source.secret_key_ref.optional:
            return None
        raise ConfigError(f'secret "{source.secret_key_ref.name}" not found: this cluster keeps no Secrets')
    raise ConfigError("an environment variable's source is not supported: use fieldRef or configMapKeyRef")


def _all_of(context: Context, source: EnvFromSource) -> dict[str, str]:
    ref = source.config_map_ref or source.secret_ref
    if ref is None:
        return {}
    config = context.config_maps.get(ref.name) if source.config_map_ref else None
    if config is not None:
        return {source.prefix + key: value for key, value in config.data.items()}
    if ref.optional:
        return {}
    if source.secret_ref:
        raise ConfigError(f'secret "{ref.name}" not found: this cluster keeps no Secrets')
    raise ConfigError(f'configmap "{ref.name}" not found')


def config_maps_of(pod: Pod) -> frozenset[str]:
    """Names of the ConfigMaps that the pod's environments are made from."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    whole = (s.config_map_ref.name for c in containers for s in c.env_from if s.config_map_ref)
    sources = (v.value_from for c in containers for v in c.env if v.value_from)
    return frozenset((*whole, *(s.config_map_key_ref.name for s in sources if s.config_map_key_ref)))


def field_value(context: Context, path: str) -> str:
    """The downward API. Raises ConfigError."""
    pod = context.pod
    plain: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: pod.metadata.name,
        "metadata.namespace": lambda: pod.metadata.namespace,
        "metadata.uid": lambda: pod.metadata.uid,
        "spec.nodeName": lambda: context.node_name,
        "spec.serviceAccountName": lambda: "default",
        "status.podIP": lambda: context.pod_ips[0],
        "status.podIPs": lambda: ",".join(context.pod_ips),
        "status.hostIP": lambda: context.host_ips[0],
        "status.hostIPs": lambda: ",".join(context.host_ips),
    }
    if path in plain:
        return plain[path]()
    if found := _SUBSCRIPT.fullmatch(path):
        of = pod.metadata.labels if found[1] == "labels" else pod.metadata.annotations
        return of.get(found[2], "")
    raise ConfigError(f'fieldRef: "{path}" is not a field that a container can ask for')
