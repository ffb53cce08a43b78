"""Why a Service has nobody behind it: selector, readiness, port names, address families. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from fractions import Fraction

from clusterip.diagnosis.doctor.backends import entries_of, families_of, members, service_object
from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.model import objects as o
from clusterip.services.addresses import canonical_address
from clusterip.services.resolve import is_served
from clusterip.services.table import Family

ALL = Fraction(1)
SIMILAR = 0.6  # of a label's value and the one that is wanted: a slip of the pen, not another application
NEAREST = 3  # pods that are named when the selector matches none
_ANSWER = "connections are refused"


def find(known: Known) -> Iterator[Finding]:
    for key, service in known.services.items():
        if service.spec.type == "ExternalName":
            continue
        missing = tuple(_named_ports(known, key, service))
        yield from missing
        if is_served(service):
            yield from _served(known, key, service, bool(missing))
        elif service.spec.cluster_ip == "None":
            yield from _headless(known, key, service, bool(missing))


def _served(known: Known, key: Key, service: o.Service, explained: bool) -> Iterator[Finding]:
    entries = entries_of(known, key)
    empty = {entry.family for entry in entries} - {entry.family for entry in entries if entry.has_backends}
    if not empty:
        return
    if empty == {entry.family for entry in entries}:
        found = _why_nobody(known, key, service, explained)
        if found:
            yield found
        return
    # One family works: only the families can be what is wrong with the other.
    for family in sorted(empty):
        yield _family_mismatch(known, key, service, family)


def _headless(known: Known, key: Key, service: o.Service, explained: bool) -> Iterator[Finding]:
    ready = (e for s in known.slices_of.get(key, ()) for e in s.endpoints or () if e.conditions.ready is not False)
    if any(ready) or not service.spec.selector:
        return
    found = _why_nobody(known, key, service, explained)
    if found:
        yield found


def _why_nobody(known: Known, key: Key, service: o.Service, explained: bool) -> Finding | None:
    """The most telling reason; None where what was given does not show that there is nobody."""
    slices = known.slices_of.get(key, ())
    endpoints = [e for s in slices for e in s.endpoints or ()]
    selector = service.spec.selector
    other = [f for f in _families_with_endpoints(slices) if f not in families_of(service)]
    if other:
        return _family_mismatch(known, key, service, families_of(service)[0])
    if explained:
        return None
    if selector and known.pods:
        pods = _selected(known, key, selector)
        if not pods:
            ended = _selected(known, key, selector, ended=True)
            return _all_ended(known, key, ended) if ended else _matches_nothing(known, key, service, selector)
        if not any(_is_ready(pod) for pod in pods):
            return _not_ready(known, key, service, pods)
        if slices or known.slices:
            return _not_in_slices(known, key, [pod for pod in pods if _is_ready(pod)])
        return None  # the pods are fine, and what the slices hold was not given
    if endpoints and all(e.conditions.ready is False for e in endpoints):
        return _endpoints_not_ready(known, key, slices, endpoints)
    if endpoints:
        return None  # there are some, of ports that are not this Service's: that is what `slices` finds
    return _no_endpoints(known, key, service) if slices or key in known.endpoints or known.slices else None


# --- the selector -----------------------------------------------------------------------------------------------------


def _selected(known: Known, key: Key, selector: Mapping[str, str], *, ended: bool = False) -> list[o.Pod]:
    """Pods that may get traffic: those that ended are no part of a Service. With `ended` just these."""
    return [
        pod
        for pod in known.pods
        if pod.metadata.namespace == key.namespace
        and selector.items() <= pod.metadata.labels.items()
        and pod.status.ended == ended
    ]


def _all_ended(known: Known, key: Key, pods: Sequence[o.Pod]) -> Finding:
    shown = ", ".join(f"{p.metadata.name} {p.status.phase}" for p in pods[:NEAREST])
    message = f"All pods that the Service selects have ended ({shown}), and such a pod is no endpoint, so {_ANSWER}."
    evidence = tuple(
        known.evidence("Pod", Key(*_name(p)), f"pod {p.metadata.name}: phase {p.status.phase}") for p in pods[:NEAREST]
    )
    remedy = f"kubectl describe pod {pods[0].metadata.name} -n {key.namespace}   # why it ended, and who should "
    remedy += "restart it"
    return Finding("no-endpoints", "E", service_object(key), message, evidence, ALL, remedy)


def _matches_nothing(known: Known, key: Key, service: o.Service, selector: Mapping[str, str]) -> Finding:
    pods = [p for p in known.pods if p.metadata.namespace == key.namespace]
    near = sorted(pods, key=lambda p: (len(_differing(p, selector)), p.metadata.name))[:NEAREST]
    near = [pod for pod in near if len(_differing(pod, selector)) < len(selector)] or near[:1]
    wanted = _labels(selector)
    message = f"No pod has the labels that the Service selects ({wanted}): 0 of {len(pods)} in namespace "
    message += f"{key.namespace}. It has no endpoints, so {_ANSWER}."
    elsewhere = _same_elsewhere(known, key, selector)
    remedy = f"kubectl get pods -n {key.namespace} --show-labels"
    if near:
        differing = _differing(near[0], selector)
        message += f" The nearest is pod {near[0].metadata.name}: {_difference(near[0], selector)}."
        changed = {label: near[0].metadata.labels[label] for label in differing if label in near[0].metadata.labels}
        if not _alike(near[0], selector):
            remedy = f"kubectl get deployments,statefulsets,daemonsets -n {key.namespace} -o wide   # is one with "
            remedy += f"{wanted} scaled to 0? else change spec.selector of the Service, or label its pods so"
        elif len(changed) == len(differing):
            patch = ",".join(f'"{label}":"{value}"' for label, value in sorted(changed.items()))
            remedy = f'kubectl patch service {key.name} -n {key.namespace} -p \'{{"spec":{{"selector":{{{patch}}}}}}}\''
            remedy += f", or give the pods' template the labels {wanted}"
        else:
            remedy = f"give the pods' template the labels {wanted}, or change spec.selector of the Service"
    if elsewhere:
        message += f" Pods with these labels are in namespace {elsewhere}; a Service selects in its own alone."
    evidence = [known.evidence("Service", key, f"spec.selector: {wanted}")]
    for pod in near:
        at = Key(pod.metadata.namespace, pod.metadata.name)
        evidence.append(known.evidence("Pod", at, f"pod {pod.metadata.name}: {_difference(pod, selector)}"))
    return Finding("selector-matches-no-pod", "E", service_object(key), message, tuple(evidence), ALL, remedy)


def _alike(pod: o.Pod, selector: Mapping[str, str]) -> bool:
    """Whether it may be meant: a label is right, or a value is nearly."""
    labels = pod.metadata.labels
    return any(
        value == labels[label] or SequenceMatcher(None, value, labels[label]).ratio() > SIMILAR
        for label, value in selector.items()
        if label in labels
    ) or any(value in labels.values() for value in selector.values())


def _differing(pod: o.Pod, selector: Mapping[str, str]) -> list[str]:
    return [label for label, value in selector.items() if pod.metadata.labels.get(label) != value]


def _difference(pod: o.Pod, selector: Mapping[str, str]) -> str:
    """'app is "scoring", wanted "model-7f3"; tier is missing, wanted "web"'."""
    have = pod.metadata.labels
    parts = []
    for label in _differing(pod, selector):
        is_ = f'is "{have[label]}"' if label in have else _near_key(label, have)
        parts.append(f'{label} {is_}, wanted "{selector[label]}"')
    if not parts:
        return f"its labels fit, but its phase is {pod.status.phase}"
    return "; ".join(parts)


def _near_key(label: str, have: Mapping[str, str]) -> str:
    """Keys are easily written in another case, or with another prefix."""
    near = next((k for k in have if k.lower() == label.lower() or k.rpartition("/")[2] == label), "")
    return f"is missing (it has {near})" if near else "is missing"


def _same_elsewhere(known: Known, key: Key, selector: Mapping[str, str]) -> str:
    return next(
        (
            pod.metadata.namespace
            for pod in known.pods
            if pod.metadata.namespace != key.namespace and selector.items() <= pod.metadata.labels.items()
        ),
        "",
    )


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())


# --- readiness --------------------------------------------------------------------------------------------------------


def _is_ready(pod: o.Pod) -> bool:
    return _condition(pod, "Ready") == "True" and pod.metadata.deletion_timestamp is None


def _condition(pod: o.Pod, kind: str) -> str:
    return next((c.status for c in pod.status.conditions if c.type == kind), "")


def _not_ready(known: Known, key: Key, service: o.Service, pods: Sequence[o.Pod]) -> Finding:
    evidence = []
    for pod in pods:
        name = Key(pod.metadata.namespace, pod.metadata.name)
        evidence.append(known.evidence("Pod", name, f"pod {pod.metadata.name}: {why_not_ready(pod)}"))
    message = f"{len(pods)} pod{'s are' if len(pods) > 1 else ' is'} selected, none is ready: {pods[0].metadata.name} "
    message += f"{why_not_ready(pods[0])}. The Service has no ready endpoint, so {_ANSWER}."
    return Finding(
        "all-endpoints-not-ready",
        "E",
        service_object(key),
        message,
        tuple(evidence),
        ALL,
        f"kubectl describe pod {pods[0].metadata.name} -n {key.namespace}",
    )


def why_not_ready(pod: o.Pod) -> str:
    """The condition, the container's state or the probe that holds it back, and since when."""
    if pod.metadata.deletion_timestamp:
        return f"is being deleted since {pod.metadata.deletion_timestamp}"
    waiting = [
        f"container {s.name} waits: {s.state.waiting.reason or 'not said'}"
        for s in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if s.state.waiting
    ]
    condition = next((c for c in pod.status.conditions if c.type == "Ready"), None)
    since = f" since {condition.last_transition_time}" if condition and condition.last_transition_time else ""
    if pod.status.phase in ("Pending", "Unknown"):
        why = next((c for c in pod.status.conditions if c.status == "False" and c.message), None)
        return "; ".join((f"is {pod.status.phase}{since}", *([why.message] if why else []), *waiting))
    if waiting:
        return "; ".join(waiting) + since
    gates = [g.condition_type for g in pod.spec.readiness_gates if _condition(pod, g.condition_type) != "True"]
    if gates:
        return f"waits for its readiness gate {', '.join(gates)}{since}"
    unready = [s.name for s in pod.status.container_statuses if not s.ready]
    probes = [f"container {c.name} fails its readiness probe ({_probe(c.readiness_probe)})"
              for c in pod.spec.containers if c.readiness_probe and (c.name in unready or not unready)]  # fmt: skip
    if probes:
        return "; ".join(probes) + since
    reason = f" ({condition.reason})" if condition and condition.reason else ""
    return f"has condition Ready={condition.status if condition else 'Unknown'}{reason}{since}"


def _probe(probe: o.Probe) -> str:
    if probe.http_get:
        return f"HTTP GET {probe.http_get.path or '/'} on port {probe.http_get.port}"
    if probe.tcp_socket:
        return f"TCP connect to port {probe.tcp_socket.port}"
    return "a command" if probe.exec else "gRPC"


def _endpoints_not_ready(
    known: Known, key: Key, slices: Sequence[o.EndpointSlice], endpoints: Sequence[o.Endpoint]
) -> Finding:
    evidence = tuple(
        known.evidence(
            "EndpointSlice",
            Key(s.metadata.namespace, s.metadata.name),
            f"slice {s.metadata.name}: {', '.join(a for e in s.endpoints or () for a in e.addresses[:1])} ready: false",
        )
        for s in slices
        if s.endpoints
    )
    message = f"None of the {len(endpoints)} endpoints in its slices is ready, so {_ANSWER}."
    selector = known.services[key].spec.selector or {}
    remedy = f"kubectl describe pods -n {key.namespace} -l {_labels(selector).replace(' ', '')}" if selector else ""
    return Finding("all-endpoints-not-ready", "E", service_object(key), message, evidence, ALL, remedy)


def _no_endpoints(known: Known, key: Key, service: o.Service) -> Finding:
    selector = service.spec.selector
    if selector:
        why = f"no endpoint is in its slices; it selects {_labels(selector)}"
        remedy = f"kubectl get pods -n {key.namespace} -l {_labels(selector).replace(' ', '')} -o wide"
    else:
        why = "it has no selector, and no slice that it could use is there"
        remedy = f"write an EndpointSlice with the label kubernetes.io/service-name: {key.name} and its port's name"
    evidence = (known.evidence("Service", key, f"spec.selector: {_labels(selector or {}) or 'none'}"),)
    message = f"The Service has no endpoints: {why}. {_ANSWER[:1].upper()}{_ANSWER[1:]}."
    return Finding("no-endpoints", "E", service_object(key), message, evidence, ALL, remedy)


def _not_in_slices(known: Known, key: Key, pods: Sequence[o.Pod]) -> Finding:
    names = ", ".join(p.metadata.name for p in pods[:NEAREST])
    evidence = tuple(
        known.evidence("Pod", Key(p.metadata.namespace, p.metadata.name), f"pod {p.metadata.name} is ready")
        for p in pods[:NEAREST]
    )
    message = f"Pods are selected and ready ({names}), but no slice holds them: the endpoint slice controller does "
    message += f"not keep this Service's slices, so {_ANSWER}."
    remedy = "kubectl logs -n kube-system -l component=kube-controller-manager --tail=200"
    return Finding("no-endpoints", "E", service_object(key), message, evidence, ALL, remedy)


# --- ports and families -----------------------------------------------------------------------------------------------


def _named_ports(known: Known, key: Key, service: o.Service) -> Iterator[Finding]:
    if not service.spec.selector:
        return
    pods = _selected(known, key, service.spec.selector)
    for port in service.spec.ports or ():
        if not isinstance(port.target_port, str) or not port.target_port:
            continue
        lacking = [pod for pod in pods if not _has_port(pod, port)]
        if lacking:
            yield _port_missing(known, key, port, lacking, len(pods))


def _port_missing(known: Known, key: Key, port: o.ServicePort, lacking: Sequence[o.Pod], pods: int) -> Finding:
    pod, target = lacking[0], port.target_port
    declared = [(p.name, p.protocol, p.container_port) for c in pod.spec.containers for p in c.ports]
    shown = ", ".join(f"{name or 'without name'} {number}/{proto}" for name, proto, number in declared) or "none"
    message = f'Port {port.port} goes to the container port named "{target}" ({port.protocol}), which {len(lacking)} '
    message += f"of {pods} selected pods do not have: {pod.metadata.name} has {shown}. "
    other = next((proto for name, proto, _ in declared if name == target), "")
    if other:
        message += f"The name is there with protocol {other}. "
    message += f"They get no connection by this port{'' if len(lacking) < pods else f'; {_ANSWER}'}."
    numbers = {number for _, proto, number in declared if proto == port.protocol}
    only = next(iter(numbers)) if len(numbers) == 1 else "the number"
    name = Key(pod.metadata.namespace, pod.metadata.name)
    return Finding(
        "named-port-missing",
        "E",
        service_object(key, port.name),
        message,
        (
            known.evidence("Service", key, f"targetPort: {target}"),
            known.evidence("Pod", name, f"pod {pod.metadata.name}: container ports: {shown}"),
        ),
        ALL if len(lacking) == pods else None,
        f"name a container port {target} in the pods' template, or set targetPort: {only}",
    )


def _has_port(pod: o.Pod, port: o.ServicePort) -> bool:
    return any(
        p.name == port.target_port and (p.protocol or "TCP") == port.protocol
        for c in (*pod.spec.containers, *pod.spec.init_containers)
        for p in c.ports
    )


def _families_with_endpoints(slices: Sequence[o.EndpointSlice]) -> list[str]:
    return sorted({s.address_type for s in slices if s.endpoints})


def _family_mismatch(known: Known, key: Key, service: o.Service, family: Family) -> Finding:
    slices = known.slices_of.get(key, ())
    have = ", ".join(_families_with_endpoints(slices)) or "none"
    addresses = sorted({backend for s in slices for _, _, backend in members(s)})
    evidence: list[Evidence] = [known.evidence("Service", key, f"{family} address {_address(service, family)}")]
    for s in slices:
        name = Key(s.metadata.namespace, s.metadata.name)
        evidence.append(known.evidence("EndpointSlice", name, f"slice {s.metadata.name}: addressType {s.address_type}"))
    without = [p for p in _selected(known, key, service.spec.selector or {}) if not _has_address(p, family)]
    why = ""
    if service.spec.selector and without:
        pod = without[0]
        ips = ", ".join(ip.ip for ip in pod.status.pod_ips) or pod.status.pod_ip or "none"
        why = f" Pod {pod.metadata.name} has no {family} address (it has {ips}): the network plugin gives none."
        evidence.append(known.evidence("Pod", Key(*_name(pod)), f"pod {pod.metadata.name}: podIPs {ips}"))
    message = f"The Service has an {family} address, its slices hold {have} alone ({', '.join(addresses[:4])}): an "
    message += f"{family} address needs {family} endpoints, so connections to it are refused.{why}"
    remedy = f"give pods {family} addresses (the network plugin's configuration), or make the Service "
    remedy += f'{have.split(",")[0]}: spec.ipFamilies: ["{have.split(",")[0]}"]'
    return Finding("family-mismatch", "E", service_object(key), message, tuple(evidence), ALL, remedy)


def _name(pod: o.Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _address(service: o.Service, family: Family) -> str:
    addresses = service.spec.cluster_ips or (service.spec.cluster_ip,)
    return next((a for a in addresses if canonical_address(a, family)), "")


def _has_address(pod: o.Pod, family: Family) -> bool:
    addresses = [ip.ip for ip in pod.status.pod_ips] or [pod.status.pod_ip]
    return any(canonical_address(a, family) for a in addresses if a)
