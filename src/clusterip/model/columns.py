"""The columns `kubectl get` shows for each kind, and what stands in them. Pods and nodes: pod_columns.

Source: what a Kubernetes 1.36 API server answers to `Accept: application/json;as=Table`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from clusterip.model.ages import since
from clusterip.model.status import Object

NONE = "<none>"
UNSET = "<unset>"
_SHOWN = 3  # endpoints and ports of one object; the rest are counted
_NARROW = 16  # characters of load balancer addresses without -o wide

Cells: TypeAlias = list[str | int]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str = "string"
    wide: bool = False  # only with -o wide

    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" and not self.wide else "",
            "description": _DESCRIPTIONS.get(self.name, ""),
            "priority": 1 if self.wide else 0,
        }


@dataclass(frozen=True, slots=True)
class Layout:
    columns: tuple[Column, ...]
    cells: Callable[[Object, float], Cells]  # of one object at a time (Unix seconds), one for each column


_DESCRIPTIONS = {
    "Name": "name of the object, unique among those of its kind in the namespace",
    "Age": "time since the object was created",
    "Cluster-IP": "the stable virtual address of the Service",
    "External-IP": "addresses that reach it from outside the cluster",
    "Port(s)": "port, node port if any, and protocol",
    "Selector": "labels of the pods it is about",
    "Endpoints": "addresses behind the Service",
    "Restarts": "how often its containers were started again, and when last",
}


def columns(*words: str) -> tuple[Column, ...]:
    """From notation: `Name`, `Desired:integer`, `+Selector` for wide only."""
    made = []
    for word in words:
        name, _, kind = word.removeprefix("+").partition(":")
        made.append(Column(name, kind or "string", word.startswith("+")))
    return tuple(made)


def labels_text(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: Object | None) -> str:
    """A LabelSelector as one would type it."""
    parts = [(key, f"{key}={value}") for key, value in ((selector or {}).get("matchLabels") or {}).items()]
    for one in (selector or {}).get("matchExpressions") or ():
        key, values = one.get("key", ""), ",".join(sorted(one.get("values") or ()))
        match one.get("operator"):
            case "In":
                parts.append((key, f"{key} in ({values})"))
            case "NotIn":
                parts.append((key, f"{key} notin ({values})"))
            case "DoesNotExist":
                parts.append((key, f"!{key}"))
            case _:
                parts.append((key, key))
    return ",".join(text for _, text in sorted(parts)) or NONE


def _name(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def _age(obj: Object, now: float) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def _some(values: Iterable[str], nothing: str) -> str:
    """The first few, and how many more there are."""
    found = list(values)
    more = f" + {len(found) - _SHOWN} more..." if len(found) > _SHOWN else ""
    return ",".join(found[:_SHOWN]) + more if found else nothing


# --- Service, EndpointSlice, Endpoints -------------------------------------------------------------------------


def _service(obj: Object, now: float) -> Cells:
    spec = obj.get("spec") or {}
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return [
        _name(obj),
        spec.get("type", ""),
        addresses[0] or NONE,
        _external(obj, spec),
        ",".join(map(_service_port, spec.get("ports") or ())) or NONE,
        _age(obj, now),
        labels_text(spec.get("selector")),
    ]


def _service_port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port', 0)}{node_port}/{port.get('protocol', 'TCP')}"


def _external(obj: Object, spec: Object) -> str:
    extra: list[str] = list(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
            balancer = ",".join(sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""}))
            if len(balancer) > _NARROW:
                balancer = balancer[: _NARROW - 3] + "..."
            return ",".join(filter(None, (balancer, *extra))) or "<pending>"
        case _:
            return ",".join(extra) or NONE


def _endpoint_slice(obj: Object, now: float) -> Cells:
    ports = obj.get("ports") or ()
    return [
        _name(obj),
        obj.get("addressType", ""),
        _some((str(port.get("port", "*")) for port in ports), UNSET),
        _some((a for endpoint in obj.get("endpoints") or () for a in endpoint.get("addresses") or ()), UNSET),
        _age(obj, now),
    ]


def _endpoints(obj: Object, now: float) -> Cells:
    return [_name(obj), _some(_endpoint_texts(obj), NONE), _age(obj, now)]


def _endpoint_texts(obj: Object) -> Iterable[str]:
    for subset in obj.get("subsets") or ():
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if not ports:
            yield from addresses
        for port in ports:
            for ip in addresses:
                yield f"[{ip}]:{port.get('port')}" if ":" in ip else f"{ip}:{port.get('port')}"


# --- workloads -------------------------------------------------------------------------------------------------


def _deployment(obj: Object, now: float) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        *_template(spec),
    ]


def _replica_set(obj: Object, now: float) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        _name(obj),
        spec.get("replicas", 1),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        _age(obj, now),
        *_template(spec),
    ]


def _template(spec: Object) -> tuple[str, str, str]:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    return (
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        selector_text(spec.get("selector")),
    )


# --- the rest --------------------------------------------------------------------------------------------------


def _namespace(obj: Object, now: float) -> Cells:
    return [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj, now)]


def _event(obj: Object, now: float) -> Cells:
    series = obj.get("series")
    first = since(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = since(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    if series:
        last = since(series.get("lastObservedTime"), now)
    about = obj.get("involvedObject") or {}
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent")
    instance = source.get("host") or obj.get("reportingInstance")
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        "/".join(filter(None, (about.get("kind", "").lower(), about.get("name", "")))),
        about.get("fieldPath", ""),
        ", ".join(filter(None, (component, instance))),
        obj.get("message", "").strip(),
        first,
        (series or {}).get("count") or obj.get("count") or 1,
        _name(obj),
    ]


def _config_map(obj: Object, now: float) -> Cells:
    return [_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), _age(obj, now)]


def _lease(obj: Object, now: float) -> Cells:
    return [_name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), _age(obj, now)]


def _service_cidr(obj: Object, now: float) -> Cells:
    return [_name(obj), ",".join((obj.get("spec") or {}).get("cidrs") or ()), _age(obj, now)]


def _ip_address(obj: Object, now: float) -> Cells:
    parent: Mapping[str, Any] = (obj.get("spec") or {}).get("parentRef") or {}
    resource = ".".join(filter(None, (parent.get("resource", ""), parent.get("group", ""))))
    text = "/".join(filter(None, (resource, parent.get("namespace", ""), parent.get("name", ""))))
    return [_name(obj), text, _age(obj, now)]


WORKLOAD = ("+Containers", "+Images", "+Selector")
SERVICE = Layout(
    columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"),
    _service,
)
ENDPOINT_SLICE = Layout(columns("Name", "AddressType", "Ports", "Endpoints", "Age"), _endpoint_slice)
ENDPOINTS = Layout(columns("Name", "Endpoints", "Age"), _endpoints)
DEPLOYMENT = Layout(
    columns("Name", "Ready", "Up-to-date:integer", "Available:integer", "Age", *WORKLOAD),
    _deployment,
)
REPLICA_SET = Layout(
    columns("Name", "Desired:integer", "Current:integer", "Ready:integer", "Age", *WORKLOAD),
    _replica_set,
)
NAMESPACE = Layout(columns("Name", "Status", "Age"), _namespace)
EVENT = Layout(
    columns(
        "Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message", "+First Seen", "+Count:integer",
        "+Name",
    ),
    _event,
)  # fmt: skip
CONFIG_MAP = Layout(columns("Name", "Data:integer", "Age"), _config_map)
LEASE = Layout(columns("Name", "Holder", "Age"), _lease)
SERVICE_CIDR = Layout(columns("Name", "CIDRs", "Age"), _service_cidr)
IP_ADDRESS = Layout(columns("Name", "ParentRef", "Age"), _ip_address)
