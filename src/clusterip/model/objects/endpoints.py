"""EndpointSlices, and the older Endpoints: who stands behind a Service."""

from clusterip.model.objects.meta import ObjectMeta, ObjectReference, Value


class EndpointConditions(Value, frozen=True):
    """`None` means: ready and serving true, terminating false."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class HintTarget(Value, frozen=True):
    name: str


class EndpointHints(Value, frozen=True):
    for_zones: tuple[HintTarget, ...] | None = ()
    for_nodes: tuple[HintTarget, ...] | None = ()


class Endpoint(Value, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    node_name: str | None = None
    zone: str | None = None
    target_ref: ObjectReference | None = None
    hints: EndpointHints | None = None


class EndpointPort(Value, frozen=True):
    name: str | None = None
    protocol: str | None = "TCP"
    port: int | None = None
    app_protocol: str | None = None


class EndpointSlice(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()


class EndpointAddress(Value, frozen=True):
    ip: str
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointsPort(Value, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str | None = None


class EndpointSubset(Value, frozen=True):
    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointsPort, ...] = ()


class Endpoints(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[EndpointSubset, ...] | None = ()
