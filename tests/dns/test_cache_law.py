"""The law of the cache: whatever happened before, an answer says what the objects of now say."""

import dns.message
import dns.rcode
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import share

from clusterip.client.view import View, metadata
from clusterip.dns.addresses import Addresses
from clusterip.dns.forward import Forwarder
from clusterip.dns.responder import Responder
from clusterip.dns.zone import Zone
from clusterip.model.objects import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Namespace,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
    Value,
)

DOMAIN = ("cluster", "local")
NAMES = st.sampled_from(["a", "b"])
ADDRESSES = st.sampled_from(["10.96.0.1", "10.96.0.2", "10.244.1.3", "fd00::1"])
PORTS = st.sampled_from([(), (ServicePort(port=80, name="http"),), (ServicePort(port=81, name="http"),)])


@st.composite
def services(draw: st.DrawFn) -> Service:
    ip = draw(st.sampled_from(["10.96.0.1", "10.96.0.2", "None", "None", ""]))
    external = draw(st.sampled_from([""] * 4 + ["b.default.svc.cluster.local"]))
    spec = ServiceSpec(
        type="ExternalName" if external else "ClusterIP",
        cluster_ip="" if external else ip,
        cluster_ips=() if external or not ip else (ip,),
        external_name=external,
        ports=draw(PORTS),
    )
    return Service(metadata=ObjectMeta(name=draw(NAMES), namespace="default"), spec=spec)


@st.composite
def slices(draw: st.DrawFn) -> EndpointSlice:
    endpoints = draw(
        st.lists(st.tuples(ADDRESSES, st.sampled_from([True, False, None]), NAMES | st.none()), max_size=3)
    )
    meta = ObjectMeta(
        name=draw(st.sampled_from(["s1", "s2"])),
        namespace="default",
        labels={"kubernetes.io/service-name": draw(NAMES)},
    )
    return EndpointSlice(
        metadata=meta,
        endpoints=tuple(
            Endpoint(addresses=(address,), conditions=EndpointConditions(ready=ready), hostname=hostname)
            for address, ready, hostname in endpoints
        ),
        ports=(EndpointPort(name="http", port=8080),),
    )


NAMESPACES = st.just(Namespace(metadata=ObjectMeta(name="default")))
VALUES = st.one_of(services(), services(), slices(), slices(), NAMESPACES)
STEPS = st.lists(st.tuples(VALUES, st.sampled_from([True, True, False])), min_size=3, max_size=8)

QUESTIONS = [
    (name, rtype)
    for prefix, rtype in (("", "A"), ("", "ANY"), ("_http._tcp.", "SRV"), ("_tcp.", "A"), ("a.", "A"))
    for service in ("a", "b")
    for name in [f"{prefix}{service}.default.svc.cluster.local"]
] + [
    ("1.0.96.10.in-addr.arpa", "PTR"),
    ("2.0.96.10.in-addr.arpa", "PTR"),
    ("3.1.244.10.in-addr.arpa", "PTR"),
    ("default.svc.cluster.local", "A"),
    ("10-244-1-3.default.pod.cluster.local", "A"),
]


class Side:
    """A view and a responder that has seen everything, or nothing but the last."""

    def __init__(self, view: View) -> None:
        self.addresses = Addresses()
        self.responder = Responder(Zone(DOMAIN, view, self.addresses), Forwarder(()), 5)
        self.responder.ready = True

    def told(self, before: Value | None, after: Value | None) -> None:
        self.responder.forget(self.addresses.follow([(before, after)]))

    def says(self, name: str, rtype: str) -> tuple[str, set[str]]:
        reply = self.responder.respond(dns.message.make_query(name, rtype, id=1).to_wire(), 65535)
        assert isinstance(reply, bytes)
        message = dns.message.from_wire(reply)
        sections = (*message.answer, *message.authority, *message.additional)
        return dns.rcode.to_text(message.rcode()), {line for rrset in sections for line in rrset.to_text().splitlines()}


@settings(max_examples=share(100))
@given(STEPS)
def test_a_cached_answer_is_the_one_that_would_be_made_now(steps: list[tuple[Value, bool]]) -> None:
    view = View()
    old = Side(view)
    for value, stays in steps:
        meta = metadata(value)
        if stays:
            old.told(view.put(value), value)
        elif (gone := view.remove(type(value), meta.namespace, meta.name)) is not None:
            old.told(gone, None)
        new = Side(view)
        for kind in (Service, EndpointSlice, Namespace):
            for held in view.list(kind):
                new.told(None, held)
        for name, rtype in QUESTIONS:
            assert old.says(name, rtype) == new.says(name, rtype), (name, rtype)
