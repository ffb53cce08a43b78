"""Rules for pods and pod templates, as far as this product runs them."""

from collections.abc import Iterator, Sequence
from typing import Any

from clusterip.model import names
from clusterip.model.causes import duplicate, forbidden, invalid, not_supported, required
from clusterip.model.status import Cause, Object
from clusterip.model.validation import addresses, meta
from clusterip.model.validation.service import port_number, port_or_name, protocol

RESTART_POLICIES = ("Always", "Never", "OnFailure")
DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_GROUPS = ("initContainers", "containers", "ephemeralContainers")
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers")
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)"
)


def validate(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = list(validate_spec(spec, "spec"))
    if old is not None and _fixed_part(spec, old) != _fixed_part(old.get("spec") or {}, old):
        causes.append(forbidden("spec", _FIXED))
    return causes


def _fixed_part(spec: Object, old: Object) -> Object:
    """What may not differ. A pod without a node may be given one: that is how it is scheduled."""
    kept = {name: value for name, value in spec.items() if name not in _CHANGEABLE}
    if not (old.get("spec") or {}).get("nodeName"):
        kept.pop("nodeName", None)
    for group in ("initContainers", "containers"):
        kept[group] = [{k: v for k, v in one.items() if k != "image"} for one in spec.get(group) or ()]
    return kept


def validate_spec(spec: Object, field: str) -> Iterator[Cause]:
    """`field`: "spec", or "spec.template.spec" inside a workload."""
    if not spec.get("containers"):
        yield required(f"{field}.containers")
    seen: set[str] = set()
    for group in _GROUPS:
        for index, container in enumerate(spec.get(group) or ()):
            where = f"{field}.{group}[{index}]"
            name = container.get("name") or ""
            if name and name in seen:
                yield duplicate(f"{where}.name", name)
            seen.add(name)
            yield from _container(container, where, init=group == "initContainers")
    yield from _one_of(spec.get("restartPolicy"), f"{field}.restartPolicy", RESTART_POLICIES)
    yield from _one_of(spec.get("dnsPolicy"), f"{field}.dnsPolicy", DNS_POLICIES)
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        yield required(
            f"{field}.dnsConfig.nameservers", "must provide at least one DNS nameserver when dnsPolicy is None"
        )
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        yield invalid(f"{field}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    yield from meta.labels(spec.get("nodeSelector"), f"{field}.nodeSelector")
    yield from _pod_names(spec, field)
    yield from _volumes(spec, field)


def _pod_names(spec: Object, field: str) -> Iterator[Cause]:
    for name in ("hostname", "subdomain"):
        if spec.get(name) and (wrong := names.dns_label(spec[name])):
            yield invalid(f"{field}.{name}", spec[name], wrong)
    if spec.get("nodeName") and (wrong := names.dns_subdomain(spec["nodeName"])):
        yield invalid(f"{field}.nodeName", spec["nodeName"], wrong)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        if wrong := addresses.address(alias.get("ip") or ""):
            yield invalid(f"{field}.hostAliases[{index}].ip", alias.get("ip"), wrong)
        for name in alias.get("hostnames") or ():
            if wrong := names.dns_subdomain(name):
                yield invalid(f"{field}.hostAliases[{index}].hostnames", name, wrong)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        if wrong := names.qualified_name(gate.get("conditionType") or ""):
            yield invalid(f"{field}.readinessGates[{index}].conditionType", gate.get("conditionType"), wrong)
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        if wrong := addresses.address(server):
            yield invalid(f"{field}.dnsConfig.nameservers[{index}]", server, wrong)


def _volumes(spec: Object, field: str) -> Iterator[Cause]:
    known: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name") or ""
        if not name:
            yield required(f"{field}.volumes[{index}].name")
        elif name in known:
            yield duplicate(f"{field}.volumes[{index}].name", name)
        elif wrong := names.dns_label(name):
            yield invalid(f"{field}.volumes[{index}].name", name, wrong)
        known.add(name)
    for group in _GROUPS:
        for index, container in enumerate(spec.get(group) or ()):
            for at, mount in enumerate(container.get("volumeMounts") or ()):
                where = f"{field}.{group}[{index}].volumeMounts[{at}]"
                if mount.get("name") not in known:
                    yield Cause(f"{where}.name", "FieldValueNotFound", f'Not found: "{mount.get("name", "")}"')
                if not mount.get("mountPath"):
                    yield required(f"{where}.mountPath")


# --- containers ------------------------------------------------------------------------------------------------


def _container(container: Object, field: str, *, init: bool) -> Iterator[Cause]:
    name = container.get("name") or ""
    if not name:
        yield required(f"{field}.name")
    elif wrong := names.dns_label(name):
        yield invalid(f"{field}.name", name, wrong)
    image = container.get("image") or ""
    if not image:
        yield required(f"{field}.image")
    elif image != image.strip():
        yield invalid(f"{field}.image", image, "must not have leading or trailing whitespace")
    if container.get("imagePullPolicy"):
        yield from _one_of(container["imagePullPolicy"], f"{field}.imagePullPolicy", PULL_POLICIES)
    yield from _container_ports(container.get("ports") or (), f"{field}.ports")
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable(variable, f"{field}.env[{index}]")
    restart = container.get("restartPolicy")
    sidecar = init and restart == "Always"
    if restart is not None and not init:
        yield forbidden(f"{field}.restartPolicy", "may not be set for non-init containers")
    elif restart is not None:
        yield from _one_of(restart, f"{field}.restartPolicy", ("Always",))
    for probe in _PROBES:
        if probe in container and init and not sidecar:
            yield forbidden(f"{field}.{probe}", "may not be set for init containers without restartPolicy=Always")
        elif probe in container:
            yield from _probe(container[probe], f"{field}.{probe}", once=probe != "readinessProbe")


def _container_ports(ports: Sequence[Object], field: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{field}[{index}]", port.get("name") or ""
        if name and (wrong := names.port_name(name)):
            yield invalid(f"{where}.name", name, wrong)
        elif name and name in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)
        if not port.get("containerPort"):
            yield required(f"{where}.containerPort")
        else:
            yield from port_number(port["containerPort"], f"{where}.containerPort")
        if port.get("hostPort"):
            yield from port_number(port["hostPort"], f"{where}.hostPort")
        yield from protocol(port.get("protocol"), f"{where}.protocol")


def _variable(variable: Object, field: str) -> Iterator[Cause]:
    name, source = variable.get("name") or "", variable.get("valueFrom")
    if not name:
        yield required(f"{field}.name")
    elif wrong := names.env_name(name):
        yield invalid(f"{field}.name", name, wrong)
    if source is not None and variable.get("value"):
        yield invalid(f"{field}.valueFrom", "", "may not be specified when `value` is not empty")
    elif source is not None and len(source) != 1:
        yield invalid(f"{field}.valueFrom", "", "must specify exactly one source")


def _probe(probe: Object, field: str, *, once: bool) -> Iterator[Cause]:
    """`once`: liveness and startup probes, which count one success as enough."""
    handlers = [name for name in _HANDLERS if probe.get(name) is not None]
    if not handlers:
        yield required(field, "must specify a handler type")
    for extra in handlers[1:]:
        yield forbidden(f"{field}.{extra}", "may not specify more than 1 handler type")
    for name in _COUNTS:
        if probe.get(name, 0) < 0:
            yield invalid(f"{field}.{name}", probe[name], "must be greater than or equal to 0")
    if once and probe.get("successThreshold", 1) != 1:
        yield invalid(f"{field}.successThreshold", probe["successThreshold"], "must be 1")
    match handlers[:1]:
        case ["exec"] if not probe["exec"].get("command"):
            yield required(f"{field}.exec.command")
        case ["httpGet" | "tcpSocket" as handler]:
            action = probe[handler]
            yield from port_or_name(action.get("port", 0), f"{field}.{handler}.port")
            if handler == "httpGet":
                yield from _one_of(action.get("scheme"), f"{field}.httpGet.scheme", ("HTTP", "HTTPS"))


def _one_of(value: Any, field: str, supported: Sequence[str]) -> Iterator[Cause]:
    if not value:
        yield required(field)
    elif value not in supported:
        yield not_supported(field, value, supported)
