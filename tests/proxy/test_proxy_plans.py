"""The pure decisions: which flows end, when to sync, what the command line and the Node mean."""

import asyncio
import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fake_apiserver import FakeApiServer

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.dataplane.iptables import Config, FromCIDR, FromInterface
from clusterip.errors import BadInput, Unavailable
from clusterip.kernel.conntrack import Entry as Flow
from clusterip.kernel.conntrack import Tuple
from clusterip.kernel.iptables import Programs
from clusterip.model.objects import Node, NodeAddress, NodeSpec, NodeStatus
from clusterip.model.resources import NODES
from clusterip.model.status import Object
from clusterip.proxy import build, flags, node, prepare, rules
from clusterip.proxy.config import ProxyConfig
from clusterip.proxy.conntrack_reconcile import plan
from clusterip.proxy.durations import Duration
from clusterip.proxy.pace import Pace
from clusterip.services.table import Backend, Entry, Family, PortName

DNS = Entry(
    PortName("kube-system", "kube-dns", "dns"),
    "IPv4",
    "UDP",
    53,
    "10.96.0.10",
    node_port=30053,
    external_ips=("198.51.100.7",),
    load_balancer_ips=("198.51.100.8",),
    serving=(Backend("10.244.1.2", 5353), Backend("10.244.2.2", 5353)),
)


def flow(to: str, port: int, by: str, by_port: int = 5353, protocol: int = 17) -> Flow:
    original, reply = Tuple("10.244.1.9", 4000, to, port), Tuple(by, by_port, "10.244.1.9", 4000)
    return Flow("IPv4", protocol, original, reply, 0, 30, 0, None, b"")


@pytest.mark.parametrize(
    "to", [("10.96.0.10", 53), ("198.51.100.7", 53), ("198.51.100.8", 53), ("192.168.50.11", 30053)]
)
def test_a_flow_to_a_backend_that_serves_stays_and_any_other_ends(to: tuple[str, int]) -> None:
    serving, gone, moved, never = (
        flow(*to, "10.244.1.2"),
        flow(*to, "10.244.1.3"),
        flow(*to, "10.244.1.2", 5454),
        flow(*to, to[0], to[1]),  # not sent on to any backend
    )
    assert plan([DNS], [serving, gone, moved, never]) == (gone, moved, never)


def test_flows_that_are_nobodys_stay() -> None:
    others = [
        flow("10.96.0.10", 54, "10.244.1.3"),
        flow("10.96.0.11", 53, "10.244.1.3"),
        flow("10.96.0.10", 53, "10.244.1.3", protocol=6),
    ]
    assert plan([DNS], others) == ()


def test_without_a_serving_backend_flows_are_left_alone() -> None:
    assert plan([replace(DNS, serving=())], [flow("10.96.0.10", 53, "10.244.1.3")]) == ()
    assert plan([replace(DNS, protocol="TCP")], [flow("10.96.0.10", 53, "10.244.1.3")]) == ()


def test_a_service_address_wins_over_a_node_port_of_the_same_number() -> None:
    other = replace(DNS, port=30099, node_port=0, serving=(Backend("10.244.7.7", 1),))
    ports = replace(DNS, cluster_ip="10.96.0.11", external_ips=(), load_balancer_ips=(), node_port=30099)
    assert plan([other, ports], [flow("10.96.0.10", 30099, "10.244.7.7", 1)]) == ()


def test_the_first_change_after_idle_goes_at_once_and_the_next_keeps_its_distance() -> None:
    pace = Pace(1.0, 30.0)
    assert pace.next_sync(pending=False, fresh=False) == math.inf
    assert pace.next_sync(pending=True, fresh=True) == -math.inf
    pace.synced(100.0)
    assert pace.next_sync(pending=True, fresh=True) == 101.0


def test_a_failed_sync_is_tried_again_after_the_period_or_with_the_next_change() -> None:
    pace = Pace(1.0, 30.0)
    pace.failed(100.0)
    assert pace.next_sync(pending=True, fresh=False) == 130.0
    assert pace.next_sync(pending=True, fresh=True) == 101.0
    pace.synced(131.0)
    assert pace.next_sync(pending=True, fresh=True) == 132.0


def test_checks_come_every_second_however_many_syncs_there_are_and_never_later_than_the_period() -> None:
    pace = Pace(0.1, 30.0)
    assert pace.next_check() == math.inf
    pace.synced(100.0)
    pace.synced(100.6)
    assert pace.next_check() == 101.0
    pace.checked(101.5)
    assert pace.next_check() == 102.5
    short = Pace(0.1, 0.3)
    short.synced(100.0)
    assert short.next_check() == 100.3


@given(st.lists(st.tuples(st.sampled_from(["synced", "failed", "checked"]), st.floats(0, 100))))
def test_a_pending_change_always_has_a_time(steps: list[tuple[str, float]]) -> None:
    pace, now = Pace(1.0, 30.0), 0.0
    for what, later in steps:
        now += later
        getattr(pace, what)(now)
    assert pace.next_sync(pending=True, fresh=True) <= now + 1.0
    assert pace.next_sync(pending=True, fresh=False) <= now + 30.0


def applied(given: dict[str, Any], from_file: bool = False) -> flags.Applied:
    return flags.apply(ProxyConfig(), given, from_file)


def test_every_flag_sets_its_field() -> None:
    samples: dict[str, object] = {
        "text": "x",
        "bool": True,
        "int": 7,
        "float": 7.0,
        "list": ("x",),
        "gates": {"A": True},
    }
    samples["duration"] = Duration(7)
    for flag in flags.FLAGS:
        if flag.path:
            config: Any = applied({flag.name: samples[flag.kind]}).config
            for part in flag.path.split("."):
                config = getattr(config, part)
            assert config == samples[flag.kind], flag.name


def test_beside_a_file_only_some_flags_count() -> None:
    given = {"cluster-cidr": "10.0.0.0/8", "hostname-override": "a", "v": 5, "healthz-port": 0}
    result = applied(given, from_file=True)
    assert result.config.cluster_cidr == ""
    assert (result.config.hostname_override, result.config.logging.verbosity) == ("a", 5)
    assert set(result.ignored) == {"--cluster-cidr", "--healthz-port"}
    assert result.off == frozenset()


def completed(given: dict[str, Any]) -> ProxyConfig:
    """Of iptables mode, unless another one is given."""
    result = applied({"proxy-mode": "iptables"} | given)
    return flags.switched_off(rules.complete(result.config, "flags"), result.off)


def test_the_deprecated_ports_move_a_server_or_switch_it_off() -> None:
    assert completed({"healthz-port": 0}).healthz_bind_address == ""
    assert completed({"healthz-port": 99}).healthz_bind_address == "0.0.0.0:99"
    assert completed({"metrics-port": 99}).metrics_bind_address == "127.0.0.1:99"
    assert completed({"metrics-port": 99, "metrics-bind-address": "::1"}).metrics_bind_address == "[::1]:99"
    both = {"healthz-port": 99, "healthz-bind-address": "10.0.0.1:88"}
    assert completed(both).healthz_bind_address == "10.0.0.1:88"
    assert completed({"metrics-bind-address": ""}).metrics_bind_address == ""


def test_masquerade_all_holds_in_every_mode() -> None:
    config = completed({"masquerade-all": True})
    assert config.iptables.masquerade_all
    assert config.nftables.masquerade_all


HERE = Node(
    spec=NodeSpec(pod_cidr="10.244.1.0/24", pod_cidrs=("10.244.1.0/24", "fd00:1:1::/64")),
    status=NodeStatus(
        addresses=(
            NodeAddress("Hostname", "node-1"),
            NodeAddress("ExternalIP", "203.0.113.1"),
            NodeAddress("InternalIP", "192.168.50.11"),
            NodeAddress("ExternalIP", "2001:db8::1"),
        )
    ),
)


def test_an_internal_address_comes_before_an_external_one() -> None:
    assert node.addresses(HERE) == {"IPv4": "192.168.50.11", "IPv6": "2001:db8::1"}


def test_the_configured_address_comes_before_the_nodes() -> None:
    config = msgspec.structs.replace(ProxyConfig(), bind_address="10.9.9.9")
    assert node.node_ips(config, HERE) == {"IPv4": "10.9.9.9", "IPv6": "2001:db8::1"}
    assert node.node_ips(ProxyConfig(), None) == {"IPv4": "127.0.0.1", "IPv6": "::1"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"cluster-cidr": "10.244.0.0/16"}, FromCIDR("10.244.0.0/16")),
        ({"cluster-cidr": "fd00::/48,10.244.7.7/16"}, FromCIDR("10.244.0.0/16")),
        ({"cluster-cidr": "fd00::/48"}, None),
        ({}, None),
        ({"detect-local-mode": "NodeCIDR"}, FromCIDR("10.244.1.0/24")),
        ({"detect-local-mode": "BridgeInterface", "pod-bridge-interface": "cip0"}, FromInterface("cip0")),
        ({"detect-local-mode": "InterfaceNamePrefix", "pod-interface-name-prefix": "veth"}, FromInterface("veth+")),
    ],
)
def test_a_pods_packets_are_told_by_the_configured_mark(given: dict[str, Any], expected: object) -> None:
    assert build.detector(completed(given), HERE, "IPv4") == expected


def test_rules_follow_the_configuration_and_the_machine() -> None:
    programs = Programs("IPv4", "nft", (1, 8, 9), "iptables")
    given = {"masquerade-all": True, "iptables-masquerade-bit": 7, "cluster-cidr": "10.244.0.0/16"}
    made = build.rule_config(completed(given), build.Machine(HERE, (programs,), ("counter",), liberal=True), programs)
    assert made == Config(
        node_ip="192.168.50.11",
        detector=FromCIDR("10.244.0.0/16"),
        masquerade_bit=7,
        masquerade_all=True,
        random_fully=True,
        nfacct=True,
        drop_invalid=False,
    )
    old = replace(programs, version=(1, 6, 1))
    plain = build.rule_config(completed({}), build.Machine(None, (old,), (), liberal=False), old)
    assert plain == Config(node_ip="127.0.0.1", random_fully=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, True),
        ({"iptables-localhost-nodeports": False}, False),
        ({"nodeport-addresses": ("primary",)}, False),
        ({"nodeport-addresses": ("192.168.0.0/16",)}, False),
        ({"nodeport-addresses": ("0.0.0.0/0",)}, True),
        ({"nodeport-addresses": ("127.0.0.1/32",)}, True),
        ({"nodeport-addresses": ("fd00::/8",)}, True),
    ],
)
def test_loopback_is_routed_only_where_it_serves_node_ports(given: dict[str, Any], expected: bool) -> None:
    assert build.serves_loopback(completed(given)) is expected


@pytest.mark.parametrize(
    ("given", "families", "fatal"),
    [
        ({"cluster-cidr": "fd00::/48"}, ["IPv4"], True),
        ({"cluster-cidr": "fd00::/48"}, ["IPv4", "IPv6"], False),
        ({"cluster-cidr": "fd00::/48", "bind-address": "::"}, ["IPv6"], False),
        ({"cluster-cidr": "10.0.0.0/8,fd00::/48"}, ["IPv4"], False),
        ({"detect-local-mode": "NodeCIDR", "bind-address": "::"}, ["IPv6"], False),
        ({}, ["IPv4"], False),
    ],
)
def test_pod_ranges_of_another_family_are_fatal_where_nothing_else_detects(
    given: dict[str, Any], families: list[Family], fatal: bool
) -> None:
    with pytest.raises(BadInput, match="has no IPv4 range") if fatal else nullcontext():
        build.check_families(completed(given), HERE, families)


async def test_a_node_that_does_not_come_is_done_without_but_not_its_pod_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ADDRESS_PATIENCE", "POD_RANGE_PATIENCE", "_POLL"):
        monkeypatch.setattr(node, name, 0.01)
    by_range = completed({"detect-local-mode": "NodeCIDR"})
    async with FakeApiServer() as server, Api(Connection(server.url)) as api:
        assert await node.find(api, "node-1", ProxyConfig()) is None
        with pytest.raises(Unavailable, match="node node-1: no pod range within"):
            await node.find(api, "node-1", by_range)
        await server.put(NODES, {"metadata": {"name": "node-1"}, "spec": {"podCIDR": "10.244.1.0/24"}})
        found = await node.find(api, "node-1", by_range)
        assert found is not None
        assert node.pod_range(found, "IPv4") == "10.244.1.0/24"


async def test_a_node_with_a_pod_range_is_waited_for_until_it_has_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node gets the one when it is made and the other from its agent, a moment later; node ports need the address."""
    monkeypatch.setattr(node, "_POLL", 0.01)
    made: Object = {"metadata": {"name": "node-1"}, "spec": {"podCIDR": "10.244.1.0/24"}}
    async with FakeApiServer() as server, Api(Connection(server.url)) as api:
        await server.put(NODES, made)
        looking = asyncio.create_task(node.find(api, "node-1", completed({"detect-local-mode": "NodeCIDR"})))
        await asyncio.sleep(0.1)
        assert not looking.done()
        status = {"addresses": [{"type": "InternalIP", "address": "192.168.50.11"}]}
        await server.put(NODES, {**made, "status": status})
        found = await asyncio.wait_for(looking, 5)
        assert node.addresses(found)["IPv4"] == "192.168.50.11"


async def test_node_ports_are_served_on_the_addresses_asked_for() -> None:
    assert await build.served_addresses(completed({}), "IPv4", "192.168.50.11")() is None
    primary = completed({"nodeport-addresses": ("primary",)})
    assert await build.served_addresses(primary, "IPv4", "192.168.50.11")() == ("192.168.50.11",)
    six = completed({"nodeport-addresses": ("fd00::/8",)})
    assert await build.served_addresses(six, "IPv4", "192.168.50.11")() is None
    tables = completed({"proxy-mode": "nftables"})
    assert await build.served_addresses(tables, "IPv4", "192.168.50.11")() == ("192.168.50.11",)
    everywhere = completed({"proxy-mode": "nftables", "nodeport-addresses": ("0.0.0.0/0",)})
    assert await build.served_addresses(everywhere, "IPv4", "192.168.50.11")() is None


def test_only_wanted_settings_are_written() -> None:
    wanted = prepare.settings(ProxyConfig(), cpus=8)
    assert wanted == {
        "net.netfilter.nf_conntrack_max": "262144",
        "net.netfilter.nf_conntrack_tcp_timeout_established": "86400",
        "net.netfilter.nf_conntrack_tcp_timeout_close_wait": "3600",
    }
    liberal = completed({"conntrack-tcp-be-liberal": True, "conntrack-udp-timeout": Duration(20)})
    assert prepare.settings(liberal, 8)["net.netfilter.nf_conntrack_tcp_be_liberal"] == "1"
    assert prepare.settings(liberal, 8)["net.netfilter.nf_conntrack_udp_timeout"] == "20"
