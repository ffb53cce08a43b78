"""Which backends count: each rule by an example, and the whole against a literal reading of the algorithm."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.services.documents import endpoint, service, slice_of

from clusterip.model.objects import EndpointSlice, Service
from clusterip.services.resolve import NodeContext, resolve
from clusterip.services.table import Backend, Entry

NODE = NodeContext("node-1", "zone-a")


def only(of: Service, *slices: EndpointSlice, node: NodeContext = NODE) -> Entry:
    [entry] = resolve(of, slices, node, "IPv4")
    return entry


def cluster(entry: Entry) -> list[str]:
    return [str(b) for b in entry.cluster]


def local(entry: Entry) -> list[str]:
    return [str(b) for b in entry.local]


@pytest.mark.parametrize(
    "changed",
    [
        {"clusterIP": "None"},
        {"clusterIP": ""},
        {"type": "ExternalName", "clusterIP": "", "externalName": "db.example.com"},
        {"labels": {"service.kubernetes.io/service-proxy-name": ""}},
    ],
)
def test_headless_external_and_other_proxies_services_have_no_entry(changed: dict[str, Any]) -> None:
    assert resolve(service(**changed), [slice_of(endpoint("10.244.1.2"))], NODE, "IPv4") == ()


def test_a_slice_labelled_headless_is_not_used() -> None:
    headless = slice_of(endpoint("10.244.1.2"), labels={"service.kubernetes.io/headless": ""})
    assert not only(service(), headless).has_backends


def test_all_slices_of_a_service_count_each_with_its_own_port() -> None:
    second = slice_of(endpoint("10.244.1.3"), name="web-y", ports=[{"name": "http", "port": 9090}])
    assert cluster(only(service(), slice_of(endpoint("10.244.1.2")), second)) == ["10.244.1.2:8080", "10.244.1.3:9090"]


def test_backends_are_sorted_by_their_text() -> None:
    found = only(service(), slice_of(*(endpoint(f"10.244.1.{n}") for n in (9, 10, 1))))
    assert cluster(found) == ["10.244.1.10:8080", "10.244.1.1:8080", "10.244.1.9:8080"]


def test_of_two_copies_the_one_that_stays_counts_whatever_the_order() -> None:
    going, staying = endpoint("10.244.1.2", "gone"), endpoint("10.244.1.2")
    for first, second in ((going, staying), (staying, going)):
        found = only(service(), slice_of(first, name="a"), slice_of(second, name="b"))
        assert cluster(found) == ["10.244.1.2:8080"]
        assert found.known == 1


def test_only_the_first_address_of_an_endpoint_counts() -> None:
    two = {**endpoint("10.244.1.2"), "addresses": ["10.244.1.2", "10.244.1.3"]}
    assert cluster(only(service(), slice_of(two))) == ["10.244.1.2:8080"]


@pytest.mark.parametrize(
    "fields",
    [
        {"addressType": "IPv6"},
        {"addressType": "FQDN"},
        {"ports": [{"name": "http"}]},
        {"ports": [{"name": "http", "port": 0}]},
        {"ports": [{"port": 8080}]},
        {"ports": [{"name": "http", "port": 8080, "protocol": "UDP"}]},
        {"ports": None},
        {"endpoints": None},
        {"endpoints": [{"addresses": []}]},
        {"endpoints": [{"addresses": ["not an address"]}]},
        {"endpoints": [{"addresses": ["fd00::1"]}]},
        {"metadata": {"name": "web-x", "namespace": "other", "labels": {"kubernetes.io/service-name": "web"}}},
    ],
)
def test_slices_ports_and_addresses_that_do_not_fit_are_passed_over(fields: dict[str, Any]) -> None:
    found = only(service(), slice_of(**{"endpoints": [endpoint("10.244.1.2")], **fields}))
    assert (found.has_backends, found.cluster, found.known) == (False, (), 0)


def test_a_port_is_matched_by_name_and_protocol() -> None:
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    both = slice_of(endpoint("10.244.1.2"), ports=[{**p, "port": 5300 + i} for i, p in enumerate(ports)])
    udp, tcp = resolve(service(ports=ports), [both], NODE, "IPv4")
    assert (cluster(udp), cluster(tcp)) == (["10.244.1.2:5300"], ["10.244.1.2:5301"])


def test_an_unready_endpoint_is_never_used_not_even_as_a_last_resort() -> None:
    found = only(service(), slice_of(endpoint("10.244.1.2", "unready"), endpoint("10.244.1.3", "gone")))
    assert (found.has_backends, found.cluster, found.known) == (False, (), 2)


def test_terminating_endpoints_serve_only_while_nothing_is_ready() -> None:
    leaving = endpoint("10.244.1.2", "leaving")
    assert cluster(only(service(), slice_of(leaving, endpoint("10.244.1.3", "gone")))) == ["10.244.1.2:8080"]
    assert cluster(only(service(), slice_of(leaving, endpoint("10.244.1.4")))) == ["10.244.1.4:8080"]


def test_published_endpoints_count_as_ready_though_they_are_terminating() -> None:
    assert cluster(only(service(), slice_of(endpoint("10.244.1.2", "published")))) == ["10.244.1.2:8080"]


def test_the_local_set_falls_back_on_its_own() -> None:
    of = service(internalTrafficPolicy="Local", type="NodePort", externalIPs=["198.51.100.7"])
    found = only(of, slice_of(endpoint("10.244.1.2"), endpoint("10.244.2.2", "leaving", "node-1")))
    assert (cluster(found), local(found)) == (["10.244.1.2:8080"], ["10.244.2.2:8080"])


def test_local_policy_without_a_backend_here_still_knows_that_there_are_some() -> None:
    found = only(service(internalTrafficPolicy="Local"), slice_of(endpoint("10.244.1.2")))
    assert (found.has_backends, found.local, found.cluster) == (True, (), ())


def test_external_policy_means_nothing_to_a_service_that_is_not_reached_from_outside() -> None:
    assert not only(service(externalTrafficPolicy="Local"), slice_of(endpoint("10.244.1.2"))).external_local
    assert only(service(externalTrafficPolicy="Local", externalIPs=["198.51.100.7"])).external_local


def hinted(address: str, zone: str = "", node: str = "", state: str = "ready") -> dict[str, Any]:
    hints = {"forZones": [{"name": zone}] if zone else None, "forNodes": [{"name": node}] if node else None}
    return endpoint(address, state, hints=hints)


@pytest.mark.parametrize(
    ("endpoints", "want"),
    [
        # all have a node hint and one is for us: those for us
        ([hinted("10.0.0.1", "zone-b", "node-1"), hinted("10.0.0.2", "zone-a", "node-2")], ["10.0.0.1"]),
        # none is for our node: the zone decides
        ([hinted("10.0.0.1", "zone-b", "node-3"), hinted("10.0.0.2", "zone-a", "node-2")], ["10.0.0.2"]),
        # one has no node hint: the zone decides
        ([hinted("10.0.0.1", "zone-b", "node-1"), hinted("10.0.0.2", "zone-a")], ["10.0.0.2"]),
        # one has no hint at all: hints do not count
        ([hinted("10.0.0.1", "zone-a"), hinted("10.0.0.2")], ["10.0.0.1", "10.0.0.2"]),
        # none is for our zone: hints do not count
        ([hinted("10.0.0.1", "zone-b"), hinted("10.0.0.2", "zone-c")], ["10.0.0.1", "10.0.0.2"]),
        # what is not ready has no say
        ([hinted("10.0.0.1", "zone-a"), hinted("10.0.0.2", state="unready")], ["10.0.0.1"]),
        ([hinted("10.0.0.1", "zone-b"), hinted("10.0.0.2", "zone-a", state="leaving")], ["10.0.0.1"]),
        # nothing is ready: every terminating one, hinted or not
        (
            [hinted("10.0.0.1", "zone-a", state="leaving"), hinted("10.0.0.2", state="leaving")],
            ["10.0.0.1", "10.0.0.2"],
        ),
    ],
)
def test_hints_count_where_all_ready_endpoints_have_them(endpoints: list[dict[str, Any]], want: list[str]) -> None:
    assert [b.address for b in only(service(), slice_of(*endpoints)).cluster] == want


def test_a_node_without_a_zone_takes_no_notice_of_zones() -> None:
    found = only(service(), slice_of(hinted("10.0.0.1", "zone-a"), hinted("10.0.0.2", "zone-b")), node=NodeContext("n"))
    assert len(found.cluster) == 2


def test_hints_are_not_applied_to_the_local_set() -> None:
    found = only(
        service(internalTrafficPolicy="Local"),
        slice_of({**hinted("10.0.0.1", "zone-b"), "nodeName": "node-1"}, hinted("10.0.0.2", "zone-a")),
    )
    assert [b.address for b in found.local] == ["10.0.0.1"]


def test_load_balancer_addresses_are_those_the_node_shall_intercept() -> None:
    ingress = [
        {"ip": "192.0.2.1"},
        {"ip": "192.0.2.2", "ipMode": "VIP"},
        {"ip": "192.0.2.3", "ipMode": "Proxy"},
        {"hostname": "lb.example.com"},
        {"ip": "2001:db8::1"},
        {"ip": "bad"},
        {"ip": "192.0.2.1"},
    ]
    found = only(service(type="LoadBalancer", status={"loadBalancer": {"ingress": ingress}}))
    assert found.load_balancer_ips == ("192.0.2.1", "192.0.2.2")


@pytest.mark.parametrize(
    ("ranges", "want"),
    [
        (["203.0.113.0/24", " 198.51.100.7/25 "], ("203.0.113.0/24", "198.51.100.0/25")),
        (["203.0.113.0/24", "2001:db8::/32", "nonsense", "10.0.0.1"], ("203.0.113.0/24",)),
        (["203.0.113.0/24", "0.0.0.0/0"], ()),
        (["203.0.113.0/24", "::/0"], ("203.0.113.0/24",)),
    ],
)
def test_source_ranges_are_trimmed_and_of_the_family(ranges: list[str], want: tuple[str, ...]) -> None:
    assert only(service(type="LoadBalancer", loadBalancerSourceRanges=ranges)).source_ranges == want


def test_addresses_are_canonical_and_bad_ones_passed_over() -> None:
    found = only(service(clusterIP="010.96.0.010", externalIPs=["198.51.100.7", "bad", "2001:db8::1", "198.51.100.07"]))
    assert (found.cluster_ip, found.external_ips) == ("10.96.0.10", ("198.51.100.7",))


def test_each_family_has_its_own_address_and_slices() -> None:
    of = service(clusterIP="10.96.0.10", clusterIPs=["10.96.0.10", "fd00:96::A"])
    six = slice_of({"addresses": ["fd00:1::2"]}, name="six", addressType="IPv6")
    [entry] = resolve(of, [slice_of(endpoint("10.244.1.2")), six], NODE, "IPv6")
    assert (entry.cluster_ip, cluster(entry)) == ("fd00:96::a", ["[fd00:1::2]:8080"])
    assert resolve(service(), [six], NODE, "IPv6") == ()


def test_affinity_has_the_services_timeout_or_three_hours() -> None:
    config = {"clientIP": {"timeoutSeconds": 5}}
    assert only(service()).affinity_seconds == 0
    assert only(service(sessionAffinity="ClientIP")).affinity_seconds == 10800
    assert only(service(sessionAffinity="ClientIP", sessionAffinityConfig=config)).affinity_seconds == 5


def test_the_health_check_counts_ready_addresses_of_this_node() -> None:
    of = service(type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=32000)
    found = only(
        of,
        slice_of(
            endpoint("10.244.1.2", node="node-1"),
            endpoint("10.244.1.3", "leaving", "node-1"),
            endpoint("10.244.2.2", node="node-2"),
        ),
    )
    assert (found.health_check_node_port, found.local_ready) == (32000, ("10.244.1.2",))
    cluster_policy = service(type="LoadBalancer", healthCheckNodePort=32000)
    assert only(cluster_policy).health_check_node_port == 0


def test_udp_entries_name_every_backend_that_still_serves() -> None:
    ports = [{"name": "http", "port": 80, "protocol": "UDP"}]
    endpoints = [endpoint(f"10.244.1.{i}", s) for i, s in enumerate(("ready", "unready", "leaving", "gone"), start=1)]
    found = only(service(ports=ports), slice_of(*endpoints, ports=[{**ports[0], "port": 8080}]))
    assert [b.address for b in found.serving] == ["10.244.1.1", "10.244.1.3"]


@pytest.mark.parametrize("port", [{"port": 0}, {"port": 70000}, {"port": 80, "protocol": "tcp"}])
def test_ports_that_no_packet_can_have_are_passed_over(port: dict[str, Any]) -> None:
    assert resolve(service(ports=[port]), [], NODE, "IPv4") == ()


# --- the whole, against a literal reading ---------------------------------------------------------------------------

states = st.sampled_from([None, True, False])
names = st.lists(st.sampled_from(["zone-a", "zone-b"]), max_size=2)
node_hints = st.lists(st.sampled_from(["node-1", "node-2"]), max_size=2)


@st.composite
def endpoints(draw: st.DrawFn) -> dict[str, Any]:
    conditions = {c: draw(states) for c in ("ready", "serving", "terminating")}
    hints = {
        "forZones": [{"name": n} for n in draw(names)],
        "forNodes": [{"name": n} for n in draw(node_hints)],
    }
    number = draw(st.integers(1, 4))
    return {
        "addresses": [f"10.244.1.{number}"],
        "conditions": {c: v for c, v in conditions.items() if v is not None},
        "nodeName": draw(st.sampled_from(["node-1", "node-2"])),
        "hints": hints,
    }


policies = st.fixed_dictionaries(
    {
        "internalTrafficPolicy": st.sampled_from(["Cluster", "Local"]),
        "externalTrafficPolicy": st.sampled_from(["Cluster", "Local"]),
        "externalIPs": st.sampled_from([[], ["198.51.100.7"]]),
    }
)


def categorized(of: Service, found: list[dict[str, Any]], zone: str) -> tuple[set[str], set[str], bool]:
    """The algorithm of conformance, step by step, on documents."""
    external = bool(of.spec.external_ips)
    internal_local = of.spec.internal_traffic_policy == "Local"
    uses_cluster = not internal_local or external
    uses_local = internal_local or (of.spec.external_traffic_policy == "Local" and external)

    def is_(e: dict[str, Any], condition: str) -> bool:
        return bool(e["conditions"].get(condition, condition != "terminating"))

    ready = [e for e in found if is_(e, "ready")]
    leaving = [e for e in found if is_(e, "serving") and is_(e, "terminating")]
    allowed = ready
    for kind, here in (("forNodes", "node-1"), ("forZones", zone)):
        named = [[h["name"] for h in e["hints"][kind]] for e in ready]
        if here and all(named) and any(here in n for n in named):
            allowed = [e for e, n in zip(ready, named, strict=True) if here in n]
            break
    chosen = (allowed or leaving) if uses_cluster else []
    here_ready = [e for e in ready if e["nodeName"] == "node-1"]
    here_leaving = [e for e in leaving if e["nodeName"] == "node-1"]
    near = (here_ready or here_leaving) if uses_local else []
    anywhere = bool(chosen) or (uses_local and bool(ready or leaving))
    return {e["addresses"][0] for e in chosen}, {e["addresses"][0] for e in near}, anywhere


@given(
    policies,
    st.lists(endpoints(), max_size=6, unique_by=lambda e: e["addresses"][0]),
    st.sampled_from(["", "zone-a"]),
    st.integers(0, 6),
)
def test_the_sets_are_those_of_a_literal_reading(
    policy: dict[str, Any], found: list[dict[str, Any]], zone: str, split: int
) -> None:
    of = service(**policy)
    slices = [slice_of(*found[:split], name="a"), slice_of(*found[split:], name="b")]
    [entry] = resolve(of, slices, NodeContext("node-1", zone), "IPv4")
    want = categorized(of, found, zone)
    assert ({b.address for b in entry.cluster}, {b.address for b in entry.local}, entry.has_backends) == want
    assert entry.known == len(found)


@given(st.lists(endpoints(), max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_slices_means_nothing(found: list[dict[str, Any]], lots: Any) -> None:
    slices = [slice_of(e, name=f"s{i}") for i, e in enumerate(found)]
    shuffled = lots.sample(slices, len(slices))
    assert resolve(service(), slices, NODE, "IPv4") == resolve(service(), shuffled, NODE, "IPv4")


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_no_text_in_an_object_brings_resolve_down(address: str, text_range: str, external: str) -> None:
    of = service(type="LoadBalancer", loadBalancerSourceRanges=[text_range], externalIPs=[external])
    entry = only(of, slice_of({"addresses": [address]}))
    assert all(isinstance(b, Backend) for b in entry.cluster)
