"""The plan of a cluster: names, addresses, and what cannot be."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.errors import BadInput
from clusterip.lab.plan import MAX_NODES, RANGES, Plan, check_name, checked, host_link, prefix


def test_addresses_follow_the_number_of_the_node() -> None:
    plan = Plan()
    assert (plan.node_ips("node-1"), plan.node_ips("node-100")) == (
        ("192.168.50.11", "fd00:50::11"),
        ("192.168.50.110", "fd00:50::110"),
    )
    assert plan.pod_cidrs("node-12") == ("10.244.12.0/24", "fd00:1:12::/64")


def test_every_address_of_a_node_is_in_the_range_of_its_kind() -> None:
    plan = Plan(nodes=MAX_NODES)
    seen: set[str] = set()
    for node in plan.node_names:
        ways = zip(plan.families, plan.node_ips(node), plan.pod_cidrs(node), strict=True)
        for family, address, cidr in ways:
            assert ip_address(address) in RANGES[family].fabric
            assert RANGES[family].pods.supernet_of(ip_network(cidr))  # type: ignore[arg-type]  # of one family
            seen |= {address, cidr}
    assert len(seen) == 4 * MAX_NODES


def test_the_services_of_the_cluster_itself_have_the_first_and_the_tenth_address() -> None:
    assert (Plan().api_service_ip, Plan().dns_ips) == ("10.96.0.1", ("10.96.0.10", "fd00:96::a"))
    assert Plan(service_cidr="172.20.0.0/16").dns_ips == ("172.20.0.10",)


@pytest.mark.parametrize(
    ("plan", "families", "services"),
    [
        (Plan(), ("IPv4", "IPv6"), "10.96.0.0/16,fd00:96::/112"),
        (Plan(ip_family="ipv4"), ("IPv4",), "10.96.0.0/16"),
        (Plan(ip_family="ipv6"), ("IPv6",), "fd00:96::/112"),
        (Plan(service_cidr="fd00:97::/112,10.97.0.0/16"), ("IPv6", "IPv4"), "fd00:97::/112,10.97.0.0/16"),
        # Nodes and pods of both families, Services of one.
        (Plan(service_cidr="fd00:97::/112"), ("IPv6", "IPv4"), "fd00:97::/112"),
    ],
)
def test_the_first_range_of_services_says_the_first_family_of_all(
    plan: Plan, families: tuple[str, ...], services: str
) -> None:
    assert (checked(plan).families, checked(plan).service_cidr) == (families, services)
    assert checked(plan).control_plane_ips == tuple(
        {"IPv4": "192.168.50.1", "IPv6": "fd00:50::1"}[family] for family in families
    )


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(nodes=0), "--nodes 0"),
        (Plan(nodes=101), "--nodes 101"),
        (Plan(name="Big"), "--name 'Big'"),
        (Plan(name="a.b"), "--name 'a.b'"),
        (Plan(name="../up"), "--name"),
        (Plan(name=""), "--name"),
        (Plan(name="a" * 13), "13 characters"),
        (Plan(proxy_mode="magic"), "--proxy-mode magic"),
        (Plan(iptables_variant="old"), "--iptables-variant old"),
        (Plan(service_cidr="10.96.0.0"), "10th"),
        (Plan(service_cidr="10.96.0.1/16"), "host bits"),
        (Plan(service_cidr="somewhere"), "--service-cidr somewhere"),
        (Plan(service_cidr="10.0.0.0/8"), "from /12"),
        (Plan(service_cidr="10.240.0.0/12"), "overlaps 10.244.0.0/16"),
        (Plan(service_cidr="192.168.50.0/24"), "overlaps 192.168.50.0/24"),
        (Plan(service_cidr="fd00:1:96::/112"), "overlaps fd00:1::/32"),
        (Plan(service_cidr="fd00:96::/48"), "from /64 to /123"),
        (Plan(service_cidr="10.96.0.0/16,10.97.0.0/16"), "two of different families"),
        (Plan(service_cidr="10.96.0.0/16,fd00:50::/64"), "overlaps fd00:50::/64"),
        (Plan(service_cidr="169.254.0.0/16"), "the addresses of --host-access"),
        (Plan(service_cidr="10.96.0.0/16,fd00:51::/112"), "the addresses of --host-access"),
        (Plan(service_cidr="10.96.0.0/16,"), "--service-cidr 10.96.0.0/16,"),
        (Plan(service_cidr="fd00:96::/112", ip_family="ipv4"), "no IPv6 address with --ip-family ipv4"),
        (Plan(ip_family="both"), "--ip-family both"),
        (Plan(node_ports="1-"), "not a range"),
        (Plan(node_ports="9-3"), "not a range"),
        (Plan(node_ports="30000-70000"), "not a range"),
        (Plan(node_ports="6000-7000"), "6443"),
        (Plan(node_ports="10000-10249"), "10249"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_plan_of_which_no_cluster_can_be_made_is_refused(plan: Plan, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        checked(plan)
    assert said in caught.value.message


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True))
def test_a_name_fits_into_a_link_and_begins_no_other_names_namespaces(name: str) -> None:
    check_name(name)
    assert len(host_link(name)) <= 15
    assert "." not in name
    assert prefix(name).count(".") == 1
