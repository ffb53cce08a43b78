from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from clusterip.allocation.plan import ip_address_object
from clusterip.allocation.pool import PortPool
from clusterip.allocation.pools import Pools
from clusterip.allocation.repair import Reason, Repair, repair_addresses, repair_ports
from clusterip.model.status import Object

NOW = 1_000_000.0
OLD, YOUNG = "1970-01-12T13:40:00Z", "1970-01-12T13:46:38Z"  # 400 s and 2 s before NOW
POOLS = Pools(PortPool(), [ip_network("10.96.0.0/16")])


def service(name: str, *addresses: str, created: str = OLD, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
        "spec": {"type": "ClusterIP", "clusterIPs": list(addresses), **spec},
    }


def held(address: str, name: str, created: str = OLD) -> Object:
    document = ip_address_object(ip_address(address), "default", name)
    document["metadata"]["creationTimestamp"] = created
    return document


def reasons(repair: Repair) -> list[Reason]:
    return [warning.reason for warning in repair.warnings]


def test_what_is_in_order_is_left_alone() -> None:
    repair = repair_addresses([service("web", "10.96.0.10")], [held("10.96.0.10", "web")], POOLS, NOW)
    assert repair == Repair()


def test_a_missing_ip_address_is_written_again() -> None:
    repair = repair_addresses([service("web", "10.96.0.10")], [], POOLS, NOW)
    assert repair.write_addresses == (ip_address_object(ip_address("10.96.0.10"), "default", "web"),)
    assert reasons(repair) == [Reason.CLUSTER_IP_NOT_ALLOCATED]


def test_an_ip_address_that_names_another_service_is_replaced() -> None:
    repair = repair_addresses([service("web", "10.96.0.10")], [held("10.96.0.10", "other")], POOLS, NOW)
    assert len(repair.write_addresses) == 1
    assert reasons(repair) == [Reason.IP_ADDRESS_WRONG_REFERENCE]


def test_of_two_services_with_one_address_the_older_keeps_it() -> None:
    both = [service("b", "10.96.0.10", created=YOUNG), service("a", "10.96.0.10")]
    repair = repair_addresses(both, [held("10.96.0.10", "a")], POOLS, NOW)
    assert reasons(repair) == [Reason.CLUSTER_IP_ALREADY_ALLOCATED]
    assert repair.warnings[0].about["metadata"]["name"] == "b"
    assert not repair.write_addresses


def test_addresses_that_are_none_or_of_no_range_are_told() -> None:
    repair = repair_addresses([service("a", "ten"), service("b", "172.16.0.1")], [], POOLS, NOW)
    assert reasons(repair) == [Reason.CLUSTER_IP_NOT_VALID, Reason.CLUSTER_IP_OUT_OF_RANGE]
    assert not repair.write_addresses


@pytest.mark.parametrize(
    ("services", "created", "deleted"),
    [
        ([], OLD, True),
        ([], YOUNG, False),
        ([service("web", "10.96.0.11")], OLD, True),
        ([service("web", "10.96.0.11")], YOUNG, False),
        ([service("web", "10.96.0.11", created=YOUNG)], OLD, True),
        ([service("web", type="ExternalName")], YOUNG, False),
        ([service("web", type="ExternalName")], OLD, True),
    ],
)
def test_an_unused_ip_address_goes_after_its_time(services: list[Object], created: str, deleted: bool) -> None:
    repair = repair_addresses(services, [held("10.96.0.10", "web", created)], POOLS, NOW)
    assert repair.delete_addresses == (("10.96.0.10",) if deleted else ())


def test_a_missing_port_is_reserved_and_a_foreign_one_told() -> None:
    services = [
        service("a", type="NodePort", ports=[{"nodePort": 30080}]),
        service("b", type="NodePort", ports=[{"nodePort": 30080}, {"nodePort": 80}]),
    ]
    repair = repair_ports(services, {}, POOLS, {})
    assert repair.reserve_ports == ((30080, "default/a"),)
    assert reasons(repair) == [Reason.PORT_NOT_ALLOCATED, Reason.PORT_ALREADY_ALLOCATED, Reason.PORT_OUT_OF_RANGE]


def test_a_leaked_port_is_released_in_the_third_round() -> None:
    leaking: dict[int, int] = {}
    for expected in ((), (), (30090,)):
        repair = repair_ports([], {30090: "default/gone"}, POOLS, leaking)
        assert repair.release_ports == expected
        leaking = dict(repair.leaking or {})


def test_a_port_that_is_used_again_starts_to_leak_anew() -> None:
    user = service("a", type="NodePort", ports=[{"nodePort": 30090}])
    assert repair_ports([user], {30090: "default/a"}, POOLS, {30090: 2}).leaking == {}
