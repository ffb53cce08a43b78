"""EndpointSlices, Endpoints, IPAddresses and ServiceCIDRs: E55 to E57 of the error table."""

from typing import Any

import pytest

from clusterip.model import defaults, validation
from clusterip.model.resources import ENDPOINT_SLICES, ENDPOINTS, IP_ADDRESSES, SERVICE_CIDRS, Resource
from clusterip.model.status import Object

INVALID, REQUIRED, TOO_MANY = "FieldValueInvalid", "FieldValueRequired", "FieldValueTooMany"
NOT_SUPPORTED, DUPLICATE = "FieldValueNotSupported", "FieldValueDuplicate"


def endpoint(*addresses: str, **rest: Any) -> Object:
    return {"addresses": list(addresses), **rest}


def slice_of(*endpoints: Object, **rest: Any) -> Object:
    obj = {"metadata": {"name": "web-abcde"}, "addressType": "IPv4", "endpoints": list(endpoints), **rest}
    defaults.apply(ENDPOINT_SLICES, obj)
    return obj


def endpoints(*subsets: Object) -> Object:
    obj = {"metadata": {"name": "web"}, "subsets": list(subsets)}
    defaults.apply(ENDPOINTS, obj)
    return obj


def ip_address(name: str, parent: Object | None) -> Object:
    return {"metadata": {"name": name}, "spec": {"parentRef": parent} if parent is not None else {}}


def service_cidr(*cidrs: str) -> Object:
    return {"metadata": {"name": "more"}, "spec": {"cidrs": list(cidrs)}}


PARENT = {"resource": "services", "namespace": "default", "name": "web"}
MANY = [endpoint(f"10.244.{i // 250}.{i % 250 + 1}") for i in range(1001)]
ONE = endpoint("10.244.1.5")
HINTS = [{"name": f"zone-{i}"} for i in range(9)]
LABELS = {f"k{i}": "v" for i in range(17)}

ROWS: list[tuple[Resource, Object, str, str]] = [
    (ENDPOINT_SLICES, slice_of(addressType=""), "addressType", REQUIRED),
    (ENDPOINT_SLICES, slice_of(addressType="IPX"), "addressType", NOT_SUPPORTED),
    (ENDPOINT_SLICES, slice_of(*MANY), "endpoints", TOO_MANY),
    (ENDPOINT_SLICES, slice_of(endpoint()), "endpoints[0].addresses", REQUIRED),
    (ENDPOINT_SLICES, slice_of(endpoint(*["10.244.1.5"] * 101)), "endpoints[0].addresses", TOO_MANY),
    (ENDPOINT_SLICES, slice_of(ONE, endpoint("fd00::5")), "endpoints[1].addresses[0]", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("10.244.01.5")), "endpoints[0].addresses[0]", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("127.0.0.1")), "endpoints[0].addresses[0]", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("0.0.0.0")), "endpoints[0].addresses[0]", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("169.254.0.9")), "endpoints[0].addresses[0]", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("224.0.0.9")), "endpoints[0].addresses[0]", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("fd00:0::5"), addressType="IPv6"), "endpoints[0].addresses[0]", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("localhost"), addressType="FQDN"), "endpoints[0].addresses[0]", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("10.244.1.5", hostname="a.b")), "endpoints[0].hostname", INVALID),
    (ENDPOINT_SLICES, slice_of(endpoint("10.244.1.5", nodeName="a_b")), "endpoints[0].nodeName", INVALID),
    (
        ENDPOINT_SLICES,
        slice_of(endpoint("10.244.1.5", hints={"forZones": HINTS})),
        "endpoints[0].hints.forZones",
        TOO_MANY,
    ),
    (
        ENDPOINT_SLICES,
        slice_of(endpoint("10.244.1.5", hints={"forNodes": HINTS})),
        "endpoints[0].hints.forNodes",
        TOO_MANY,
    ),
    (
        ENDPOINT_SLICES,
        slice_of(endpoint("10.244.1.5", hints={"forZones": [{"name": "a"}, {"name": "a"}]})),
        "endpoints[0].hints.forZones[1].name",
        DUPLICATE,
    ),
    (
        ENDPOINT_SLICES,
        slice_of(endpoint("10.244.1.5", deprecatedTopology=LABELS)),
        "endpoints[0].deprecatedTopology",
        TOO_MANY,
    ),
    (
        ENDPOINT_SLICES,
        slice_of(endpoint("10.244.1.5", deprecatedTopology={"a b": "c"})),
        "endpoints[0].deprecatedTopology",
        INVALID,
    ),
    (
        ENDPOINT_SLICES,
        slice_of(endpoint("10.244.1.5", hints={"forZones": [{}]})),
        "endpoints[0].hints.forZones[0].name",
        REQUIRED,
    ),
    (
        ENDPOINT_SLICES,
        slice_of(endpoint("10.244.1.5", hints={"forNodes": [{"name": "a_b"}]})),
        "endpoints[0].hints.forNodes[0].name",
        INVALID,
    ),
    (ENDPOINT_SLICES, slice_of(ports=[{"port": 80, "appProtocol": "a b"}]), "ports[0].appProtocol", INVALID),
    (ENDPOINT_SLICES, slice_of(ports=[{"port": 80}, {"port": 81}]), "ports[1].name", DUPLICATE),
    (ENDPOINT_SLICES, slice_of(ports=[{"name": "A", "port": 80}]), "ports[0].name", INVALID),
    (ENDPOINT_SLICES, slice_of(ports=[{"port": 80, "protocol": "ICMP"}]), "ports[0].protocol", NOT_SUPPORTED),
    (ENDPOINT_SLICES, slice_of(ports=[{"port": 70000}]), "ports[0].port", INVALID),
    (ENDPOINT_SLICES, slice_of(ports=[{"name": f"p{i}"} for i in range(20_001)]), "ports", TOO_MANY),
    (ENDPOINTS, endpoints({"ports": [{"port": 80}]}), "subsets[0].addresses", REQUIRED),
    (ENDPOINTS, endpoints({"addresses": [{"ip": "127.0.0.1"}]}), "subsets[0].addresses[0].ip", INVALID),
    (ENDPOINTS, endpoints({"notReadyAddresses": [{"ip": "x"}]}), "subsets[0].notReadyAddresses[0].ip", INVALID),
    (
        ENDPOINTS,
        endpoints({"addresses": [{"ip": "10.244.1.5"}], "ports": [{"port": 1}, {"port": 2, "name": "b"}]}),
        "subsets[0].ports[0].name",
        REQUIRED,
    ),
    (
        ENDPOINTS,
        endpoints({"addresses": [{"ip": "10.244.1.5"}], "ports": [{"port": 0}]}),
        "subsets[0].ports[0].port",
        INVALID,
    ),
    (
        ENDPOINTS,
        endpoints({"addresses": [{"ip": "10.244.1.5", "hostname": "a.b"}]}),
        "subsets[0].addresses[0].hostname",
        INVALID,
    ),
    *(
        (
            ENDPOINTS,
            endpoints({"addresses": [{"ip": "10.244.1.5"}], "ports": [port]}),
            f"subsets[0].ports[0].{name}",
            why,
        )
        for port, name, why in (
            ({"port": 80, "name": "A"}, "name", INVALID),
            ({"port": 80, "protocol": "ICMP"}, "protocol", NOT_SUPPORTED),
            ({"port": 80, "appProtocol": "a b"}, "appProtocol", INVALID),
        )
    ),
    (IP_ADDRESSES, ip_address("fd00:0::1", PARENT), "metadata.name", INVALID),
    (IP_ADDRESSES, ip_address("10.96.00.1", PARENT), "metadata.name", INVALID),
    (IP_ADDRESSES, ip_address("web", PARENT), "metadata.name", INVALID),
    (IP_ADDRESSES, ip_address("10.96.0.1", None), "spec.parentRef", REQUIRED),
    (IP_ADDRESSES, ip_address("10.96.0.1", {"name": "web"}), "spec.parentRef.resource", REQUIRED),
    (IP_ADDRESSES, ip_address("10.96.0.1", {"resource": "services"}), "spec.parentRef.name", REQUIRED),
    (SERVICE_CIDRS, service_cidr(), "spec.cidrs", REQUIRED),
    (SERVICE_CIDRS, service_cidr("10.96.0.0/16", "fd00::/112", "fd01::/112"), "spec.cidrs", INVALID),
    (SERVICE_CIDRS, service_cidr("10.96.0.0/16", "10.97.0.0/16"), "spec.cidrs", INVALID),
    (SERVICE_CIDRS, service_cidr("10.96.0.1/16"), "spec.cidrs[0]", INVALID),
    (SERVICE_CIDRS, service_cidr("fd00:0::/112"), "spec.cidrs[0]", INVALID),
    (SERVICE_CIDRS, service_cidr("10.96.0.0"), "spec.cidrs[0]", INVALID),
]


@pytest.mark.parametrize(("resource", "obj", "field", "reason"), ROWS, ids=[f"{r.kind}-{f}" for r, _, f, _ in ROWS])
def test_a_wrong_document_is_refused_for_the_right_reason(
    resource: Resource, obj: Object, field: str, reason: str
) -> None:
    causes = validation.validate_create(resource, obj)
    assert (field, reason) in [(cause.field, cause.reason) for cause in causes], causes


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (ENDPOINT_SLICES, slice_of()),
        (ENDPOINT_SLICES, slice_of(*MANY[:1000], ports=[{"port": 80}, {"name": "b"}])),
        (ENDPOINT_SLICES, slice_of(endpoint("fd00::5"), addressType="IPv6")),
        (ENDPOINT_SLICES, slice_of(endpoint("db.example.com"), addressType="FQDN")),
        (ENDPOINTS, endpoints({"notReadyAddresses": [{"ip": "10.244.1.5"}], "ports": [{"port": 80}]})),
        (ENDPOINTS, endpoints()),
        (IP_ADDRESSES, ip_address("fd00::1", PARENT)),
        (SERVICE_CIDRS, service_cidr("10.96.0.0/16", "fd00:96::/112")),
    ],
)
def test_a_right_document_is_accepted(resource: Resource, obj: Object) -> None:
    assert validation.validate_create(resource, obj) == []


@pytest.mark.parametrize(
    ("resource", "old", "new", "field"),
    [
        (ENDPOINT_SLICES, slice_of(), slice_of(addressType="IPv6"), "addressType"),
        (
            IP_ADDRESSES,
            ip_address("10.96.0.1", PARENT),
            ip_address("10.96.0.1", {**PARENT, "name": "b"}),
            "spec.parentRef",
        ),
        (SERVICE_CIDRS, service_cidr("10.96.0.0/16"), service_cidr("10.97.0.0/16"), "spec.cidrs"),
        (SERVICE_CIDRS, service_cidr("10.96.0.0/16"), service_cidr("fd00::/112", "10.96.0.0/16"), "spec.cidrs"),
        (SERVICE_CIDRS, service_cidr("10.96.0.0/16", "fd00::/112"), service_cidr("10.96.0.0/16"), "spec.cidrs"),
    ],
)
def test_what_is_fixed_cannot_be_changed(resource: Resource, old: Object, new: Object, field: str) -> None:
    (cause,) = validation.validate_update(resource, new, old)
    assert (cause.field, cause.reason) == (field, INVALID)
    assert "field is immutable" in cause.message


def test_a_service_cidr_may_gain_the_second_family() -> None:
    old, new = service_cidr("10.96.0.0/16"), service_cidr("10.96.0.0/16", "fd00:96::/112")
    assert validation.validate_update(SERVICE_CIDRS, new, old) == []


def test_addresses_stored_under_looser_rules_may_stay() -> None:
    old = slice_of(endpoint("10.244.01.5"))
    assert validation.validate_update(ENDPOINT_SLICES, slice_of(endpoint("10.244.01.5"), ONE), old) == []


def test_old_ways_are_warned_of() -> None:
    assert validation.warnings(ENDPOINT_SLICES, slice_of(addressType="FQDN"), None) == ["FQDN endpoints are deprecated"]
    assert "deprecated" in validation.warnings(ENDPOINTS, endpoints(), None)[0]
