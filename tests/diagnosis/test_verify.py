"""The kernel's rules against the service table: equal where the dataplane wrote them, and a witness where not."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, V6, Pool, configs, tables
from tests.examples import share

from clusterip.dataplane.iptables import Config, FromCIDR, FromInterface, compile_entry, complete
from clusterip.diagnosis.facts import Facts, IptablesRules, merge
from clusterip.diagnosis.verify.premises import Premises, premises
from clusterip.diagnosis.verify.report import Verification
from clusterip.diagnosis.verify.verify import verify, verify_table
from clusterip.rulesets import recognise
from clusterip.rulesets.iptables import parse
from clusterip.services.table import Backend, Entry, PortName

GOLDEN = Path(__file__).parent.parent / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.glob("*/manifests.yaml"))
NODE_A = Premises(node="node-a", zone="zone-1", addresses=("10.200.0.1",), pod_networks=("10.244.0.0/16",))
WEB = Entry(
    PortName("demo", "web", "http"),
    "IPv4",
    "TCP",
    80,
    "10.96.0.20",
    cluster=(Backend("10.244.0.3", 80, True), Backend("10.244.1.4", 80), Backend("10.244.2.5", 80)),
    has_backends=True,
)
CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"))
NODE_1 = Premises(node="node-1", addresses=("192.168.50.11",), pod_networks=("10.244.0.0/16",))


def program(*entries: Entry, config: Config = CONFIG) -> str:
    return complete([compile_entry(entry, config) for entry in entries], config)


def told(text: str, *, ipv6: bool = False) -> Facts:
    return Facts(iptables=(IptablesRules(parse(text), "nft", ipv6),))


def verified(text: str, *entries: Entry) -> Verification:
    return verify_table(told(text), entries, NODE_1, ipv6=False)


# --- golden ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", ["iptables-save.txt", "nft.txt"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
@pytest.mark.parametrize("networks", [("10.244.0.0/16",), ()], ids=["told", "found in the rules"])
def test_what_kube_proxy_wrote_is_what_the_manifests_say(folder: Path, rules: str, networks: tuple[str, ...]) -> None:
    files = (folder / rules, folder / "manifests.yaml", GOLDEN / "kubernetes.yaml")
    facts = merge(recognise.read(file.name, file.read_bytes()) for file in files)
    given_ = Premises(node="node-a", zone="zone-1", addresses=("10.200.0.1",), pod_networks=networks)
    found = verify(facts, premises(facts, given_))
    assert (found.verdict, found.differences, found.unproven) == ("equal", (), ())
    assert found.services == found.frontends == 1 or found.services > 1


# --- laws -----------------------------------------------------------------------------------------------------------


def assumed(config: Config, pool: Pool) -> Premises:
    detector = config.detector
    return Premises(
        node="node-1",
        addresses=(pool.node_ip,),
        pod_networks=(detector.cidr,) if isinstance(detector, FromCIDR) else (),
        pod_interface=detector.pattern if isinstance(detector, FromInterface) else "",
        masquerade_all=config.masquerade_all,
        node_port_addresses=config.node_port_addresses,
    )


@st.composite
def settled(draw: st.DrawFn, pool: Pool) -> Config:
    """A proxy always knows its node."""
    return replace(draw(configs(pool)), node_ip=pool.node_ip)


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@settings(max_examples=share(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_the_dataplane_writes_of_a_table_is_equal_to_it(pool: Pool, data: st.DataObject) -> None:
    table = list(data.draw(tables(pool)).values())
    config = data.draw(settled(pool))
    ipv6 = pool.family == "IPv6"
    facts = told(program(*table, config=config), ipv6=ipv6)
    found = verify_table(facts, table, assumed(config, pool), ipv6=ipv6)
    assert (found.differences, found.unproven) == ((), ())
    assert found.verdict == "equal"


@pytest.mark.parametrize("number", [2, 3, 7, 10, 64, 255, 400])
def test_shares_as_near_as_the_kernel_comes_to_them_are_equal(number: int) -> None:
    backends = tuple(sorted((Backend(f"10.244.{n // 200}.{n % 200 + 1}", 80) for n in range(number)), key=str))
    entry = Entry(
        PortName("demo", "many", ""), "IPv4", "TCP", 80, "10.96.0.20", cluster=backends, has_backends=True, known=number
    )
    assert verified(program(entry), entry).verdict == "equal"


# --- differences ----------------------------------------------------------------------------------------------------


def only(found: Verification) -> tuple[str, str, str, Fraction]:
    assert found.verdict == "different"
    assert len(found.differences) == 1, found.differences
    one = found.differences[0]
    return one.kind, one.clients, one.witness.arguments, one.share


def test_a_service_that_the_kernel_does_not_have_is_missing() -> None:
    other = Entry(PortName("demo", "api", ""), "IPv4", "TCP", 80, "10.96.0.30", cluster=WEB.cluster, has_backends=True)
    found = verified(program(WEB), WEB, other)
    assert only(found)[0] == "missing"
    assert found.differences[0].object == "service demo/api"
    assert found.differences[0].witness.destination == "10.96.0.30:80/tcp"


def test_a_service_that_only_the_kernel_has_is_extra() -> None:
    other = Entry(PortName("demo", "api", ""), "IPv4", "TCP", 80, "10.96.0.30", cluster=WEB.cluster, has_backends=True)
    found = verified(program(WEB, other), WEB)
    assert {d.kind for d in found.differences} == {"extra"}
    assert found.differences[0].frontend == "10.96.0.30:80/tcp"


def test_a_backend_that_the_api_no_longer_has_is_stale_and_costs_its_share() -> None:
    now = Entry(
        PortName("demo", "web", "http"), "IPv4", "TCP", 80, "10.96.0.20", cluster=WEB.cluster[:2], has_backends=True
    )
    found = verified(program(WEB), now)
    kinds = {d.kind: d for d in found.differences}
    assert "stale-backend" in kinds
    assert abs(kinds["stale-backend"].share - Fraction(1, 3)) < Fraction(1, 1 << 30)


def test_a_rule_of_somebody_else_that_drops_is_found_with_the_packet_it_drops() -> None:
    text = program(WEB).replace(
        "*filter\n", "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s 10.244.1.0/24 -d 10.244.0.3/32 -p tcp -j DROP\n"
    )
    kind, clients, _, share = only(verified(text, WEB))
    assert (kind, clients) == ("dropped", "pods")
    assert abs(share - Fraction(1, 3)) < Fraction(1, 1 << 30)


def test_a_rule_that_asks_for_what_is_not_modelled_is_named_and_nothing_is_claimed() -> None:
    text = program(WEB).replace(
        "*filter\n", "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m time --weekdays Sat -j DROP\n"
    )
    found = verified(text, WEB)
    assert (found.verdict, found.exit_status) == ("unproven", 2)
    assert "weekdays" in found.unproven[0].what


def test_what_is_not_modelled_but_changes_nothing_is_no_obstacle() -> None:
    text = program(WEB).replace(
        "*filter\n", "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m time --weekdays Sat -j ACCEPT\n"
    )
    assert verified(text, WEB).verdict == "equal"


def test_packets_of_an_interface_that_a_firewall_shuts_out_are_named_with_it() -> None:
    text = program(WEB).replace("*filter\n", "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -i wg0 -j DROP\n")
    found = verified(text, WEB)
    assert {(d.kind, d.witness.interface) for d in found.differences} == {("dropped", "wg0")}


def test_a_jump_to_a_chain_that_is_not_there_cannot_be_proven() -> None:
    lines = [line for line in program(WEB).splitlines() if not line.startswith((":KUBE-SVC-", "-A KUBE-SVC-"))]
    found = verified("\n".join(lines) + "\n", WEB)
    assert found.verdict == "unproven"
    assert "KUBE-SVC-" in found.unproven[0].what


def test_rules_of_two_variants_at_once_are_taken_in_either_order() -> None:
    other = Entry(PortName("demo", "api", ""), "IPv4", "TCP", 80, "10.96.0.30", cluster=WEB.cluster, has_backends=True)
    old, new = parse(program(WEB, other)), parse(program(WEB))
    facts = Facts(iptables=(IptablesRules(new, "nft"), IptablesRules(old, "legacy")))
    found = verify_table(facts, [WEB], NODE_1, ipv6=False)
    assert {(d.kind, d.frontend, d.share) for d in found.differences} == {("extra", "10.96.0.30:80/tcp", Fraction(1))}


def test_what_docker_publishes_is_somebody_elses_business() -> None:
    docker = (
        ":DOCKER - [0:0]\n:PREROUTING ACCEPT [0:0]\n"
        "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n"
        "-A DOCKER ! -i docker0 -p tcp -m tcp --dport 5000 -j DNAT --to-destination 172.17.0.2:5000\n"
    )
    found = verified(program(WEB).replace("*nat\n", f"*nat\n{docker}"), WEB)
    assert found.verdict == "equal"
    assert found.others == ("192.168.50.11:5000/tcp: nat DOCKER",)


def test_rules_of_the_other_family_say_nothing_of_this_one() -> None:
    found = verify_table(told(program(WEB), ipv6=True), [WEB], NODE_1, ipv6=False)
    assert (found.verdict, found.services, found.frontends) == ("unproven", 1, 0)


@pytest.mark.parametrize("ports", ["--dport 80:90", "! --dport 22", "-m multiport --dports 7,81", ""])
def test_a_stray_rule_is_found_on_whatever_ports_it_takes(ports: str) -> None:
    modules = "" if "multiport" in ports or not ports else "-m tcp "
    rules = (
        f"-A KUBE-SERVICES -d 10.96.0.99/32 -p tcp {modules}{ports} -j KUBE-STRAY\n"
        "-A KUBE-STRAY -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.244.0.9:80\n"
    )
    head, mark, tail = program(WEB).partition(":KUBE-SERVICES - [0:0]\n")
    end = tail.index("COMMIT\n")
    found = verified(f"{head}{mark}:KUBE-STRAY - [0:0]\n{tail[:end]}{rules}{tail[end:]}", WEB)
    assert [(d.kind, d.frontend) for d in found.differences] == [("extra", "10.96.0.99:81/tcp")]
