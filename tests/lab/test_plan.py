"""The plan of a cluster: names, addresses, and what cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.errors import BadInput
from clusterip.lab.plan import Plan, check_name, checked, host_link, node_ip, pod_cidr, prefix


def test_addresses_follow_the_number_of_the_node() -> None:
    assert (node_ip("node-1"), pod_cidr("node-1")) == ("192.168.50.11", "10.244.1.0/24")
    assert (node_ip("node-12"), pod_cidr("node-12")) == ("192.168.50.22", "10.244.12.0/24")


def test_the_services_of_the_cluster_itself_have_the_first_and_the_tenth_address() -> None:
    assert (Plan().api_service_ip, Plan().dns_ip) == ("10.96.0.1", "10.96.0.10")
    assert Plan(service_cidr="172.20.0.0/16").dns_ip == "172.20.0.10"


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
