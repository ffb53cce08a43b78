"""What people type: addresses, names, ports; and what cannot be meant."""

from fractions import Fraction

import pytest
from tests.diagnosis.asking import ADDRESSES, ROUTES, ask, facts, filtered, ids, nat

from clusterip.diagnosis.answer import Trace
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.frontends import frontends
from clusterip.diagnosis.question import Client, Target, client, target
from clusterip.diagnosis.trace import Tracer
from clusterip.errors import BadInput
from clusterip.services.table import Family

OBJECTS = """apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: default}
  spec:
    clusterIP: 10.96.0.20
    clusterIPs: [10.96.0.20, "fd00:96::20"]
    ports:
    - {name: http, port: 80, targetPort: 8080}
    - {name: dns, port: 53, protocol: UDP}
- apiVersion: v1
  kind: Service
  metadata: {name: one, namespace: shop}
  spec: {clusterIP: 10.96.0.30, ports: [{port: 443}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: client, namespace: shop}
  spec: {nodeName: node-1, containers: []}
  status: {podIP: 10.244.1.7, podIPs: [{ip: 10.244.1.7}, {ip: "fd00:1:1::7"}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: twin, namespace: shop}
  spec: {containers: []}
  status: {podIP: 10.244.1.8}
- apiVersion: v1
  kind: Pod
  metadata: {name: twin, namespace: default}
  spec: {containers: []}
  status: {podIP: 10.244.1.9}
- apiVersion: v1
  kind: Pod
  metadata: {name: agent, namespace: kube-system}
  spec: {hostNetwork: true, containers: []}
  status: {podIP: 192.168.50.11}
- apiVersion: v1
  kind: Node
  metadata: {name: node-1}
  spec: {podCIDR: 10.244.1.0/24}
  status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
"""
KNOWN = facts(OBJECTS, node="node-1")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pod:10.244.3.1", Client("pod", "10.244.3.1")),
        ("pod:10.244.1.7", Client("pod", "10.244.1.7", name="pod shop/client")),
        ("pod:10.244.3.1:40000", Client("pod", "10.244.3.1", 40000)),
        ("pod:[fd00:1:1::9]:40000", Client("pod", "fd00:1:1::9", 40000)),
        ("pod:fd00:1:1::9", Client("pod", "fd00:1:1::9")),
        ("node", Client("node", "192.168.50.11")),
        ("node:192.168.50.12", Client("node", "192.168.50.12")),
        ("outside:203.0.113.9", Client("outside", "203.0.113.9")),
        ("client", Client("pod", "10.244.1.7", name="pod shop/client")),
        ("shop/client", Client("pod", "10.244.1.7", name="pod shop/client")),
        ("pod:shop/twin", Client("pod", "10.244.1.8", name="pod shop/twin")),
        ("kube-system/agent", Client("node", "192.168.50.11", name="pod kube-system/agent")),
        ("10.244.1.99", Client("pod", "10.244.1.99")),
        ("192.168.50.11", Client("node", "192.168.50.11")),
        ("203.0.113.9", Client("outside", "203.0.113.9")),
    ],
)
def test_a_source_is_read(text: str, wanted: Client) -> None:
    assert client(text, KNOWN) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10.96.0.20:80", Target("tcp", "10.96.0.20", 80)),
        ("10.96.0.20:53/UDP", Target("udp", "10.96.0.20", 53)),
        ("[fd00:96::20]:80/tcp", Target("tcp", "fd00:96::20", 80)),
        ("icmp:10.96.0.20", Target("icmp", "10.96.0.20")),
        ("icmp:fd00:96::20", Target("ipv6-icmp", "fd00:96::20")),
        ("icmp:web.default", Target("icmp", "10.96.0.20")),
        ("web.default:80", Target("tcp", "10.96.0.20", 80)),
        ("web:http", Target("tcp", "10.96.0.20", 80)),
        ("web:53", Target("udp", "10.96.0.20", 53)),
        ("web:81", Target("tcp", "10.96.0.20", 81)),
        ("default/web:dns", Target("udp", "10.96.0.20", 53)),
        ("web.default.svc.cluster.local:http/tcp", Target("tcp", "10.96.0.20", 80)),
        ("one.shop", Target("tcp", "10.96.0.30", 443)),
        ("10.96.0.30", Target("tcp", "10.96.0.30", 443)),
    ],
)
def test_a_destination_is_read(text: str, wanted: Target) -> None:
    assert target(text, KNOWN, frontends(KNOWN)) == wanted


def test_a_pod_and_a_service_have_an_address_of_the_family_asked_for() -> None:
    assert client("shop/client", KNOWN, ipv6=True).address == "fd00:1:1::7"
    assert target("web:80", KNOWN, frontends(KNOWN), ipv6=True).address == "fd00:96::20"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pod:nobody", "no such pod"),
        ("twin", "several pods"),
        ("outside:somewhere", "no IP address"),
        ("pod:10.244.1.7:0", "not within 1 to 65535"),
        ("", "cannot be read"),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        client(text, KNOWN)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10.96.0.20", "which port"),
        ("10.96.0.20:http", "not within 1 to 65535"),
        ("10.96.0.20:80/icmp", "not tcp, udp or sctp"),
        ("web:grpc", "no port 'grpc'"),
        ("web", "which port"),
        ("nothing.default:80", "no Service default/nothing"),
        ("10.96.0.300:80", "'10.96.0.300' is no IP address"),
        ("icmp:nothing", "no IP address"),
        ("10.96.0.20:80:80/x:y", "cannot be read|not tcp"),
    ],
)
def test_a_destination_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        target(text, KNOWN, frontends(KNOWN))


def test_rules_tell_the_names_of_services_too() -> None:
    rules = nat(
        'KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "default/web:http cluster IP" '
        "-m tcp --dport 80 -j KUBE-SVC-X",
        chains="KUBE-SERVICES KUBE-SVC-X",
    )
    known = facts(rules)
    assert target("web.default:http", known, frontends(known)) == Target("tcp", "10.96.0.20", 80)
    assert [f.name for f in frontends(known)] == ["default/web:http"]


def test_without_rules_of_its_family_nothing_is_known_of_a_packet() -> None:
    answer = ask(filtered("FORWARD -j DROP"), source="pod:fd00:1::7", to="[fd00:96::20]:80")
    assert (answer.verdict, answer.exit_status, ids(answer)) == ("unknown", 2, ["incomplete-input"])


def test_a_packet_that_passes_to_somebody_arrives() -> None:
    empty = filtered()
    known = ask(empty, OBJECTS, ADDRESSES, to="10.244.1.8:80")
    assert (known.verdict, known.exit_status) == ("passed", 0)
    nobody = ask(empty, OBJECTS, ADDRESSES, to="10.96.0.20:80")
    assert (nobody.verdict, nobody.exit_status) == ("passed", 1)
    assert "no host owns" in nobody.reason


def test_a_port_that_the_service_does_not_have_is_named() -> None:
    answer = ask(filtered(), OBJECTS, to="10.96.0.20:8080")
    assert ids(answer) == ["wrong-service-port"]
    assert "80/tcp" in answer.findings[0].message
    assert ids(ask(filtered(), OBJECTS, to="icmp:10.96.0.20")) == ["not-a-service-protocol"]


def test_nothing_at_all_is_nothing_known() -> None:
    assert frontends(Facts()) == ()


BOTH = (
    nat(
        "PREROUTING -j KUBE-SERVICES",
        "KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.9:8080",
        chains="KUBE-SERVICES",
    ),
    "# Generated by ip6tables-save v1.8.9\n"
    + filtered(
        "FORWARD -d fd00:96::20/128 -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp6-port-unreachable",
    ),
    OBJECTS,
)


def verdicts(answer: Trace) -> list[str]:
    return [answer.verdict, *(f"{o.family} {o.verdict}" for o in answer.other_families)]


def test_a_name_is_asked_for_over_every_family_that_it_has() -> None:
    answer = ask(*BOTH, source="shop/client", to="web:http")
    assert (answer.packet.destination, verdicts(answer)) == ("10.96.0.20", ["delivered", "IPv6 rejected"])
    assert answer.exit_status == 1


@pytest.mark.parametrize(
    ("source", "to", "given", "found"),
    [
        ("pod:10.244.1.7", "web:http", BOTH, ["delivered"]),
        ("shop/client", "10.96.0.20:80", BOTH, ["delivered"]),
        ("pod:fd00:1:1::7", "web:http", BOTH, ["rejected"]),
        ("shop/twin", "web:http", BOTH, ["delivered"]),  # the pod has no IPv6 address
        ("shop/client", "web:http", (BOTH[0], OBJECTS), ["delivered"]),  # nothing is known of IPv6 rules
    ],
)
def test_other_families_are_those_that_client_and_rules_have(
    source: str, to: str, given: tuple[str, ...], found: list[str]
) -> None:
    assert verdicts(ask(*given, source=source, to=to)) == found


def test_the_family_can_be_chosen_and_the_services_own_first_one_counts() -> None:
    assert verdicts(Tracer(facts(*BOTH)).ask("shop/client", "web:http", family="IPv6")) == ["rejected"]
    six_first = OBJECTS.replace('[10.96.0.20, "fd00:96::20"]', '["fd00:96::20", 10.96.0.20]')
    answer = ask(*BOTH[:2], six_first, source="shop/client", to="web:http")
    assert verdicts(answer) == ["rejected", "IPv4 delivered"]


@pytest.mark.parametrize(
    ("source", "to", "family", "said"),
    [
        ("shop/client", "one.shop:443", "IPv6", "the Service has no IPv6 address"),
        ("shop/client", "10.96.0.20:80", "IPv6", "is no IPv6 address"),
        ("pod:fd00:1:1::7", "one.shop:443", None, "the one is IPv4, the other IPv6"),
        ("pod:fd00:1:1::7", "10.96.0.20:80", None, "the one is IPv4, the other IPv6"),
    ],
)
def test_families_that_do_not_go_together_are_refused(source: str, to: str, family: Family | None, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Tracer(facts(*BOTH)).ask(source, to, family=family)


@pytest.mark.parametrize(("node", "found"), [("node-1", []), ("node-2", ["other-node"]), ("", [])])
def test_a_pod_of_another_node_never_meets_these_rules(node: str, found: list[str]) -> None:
    answer = Tracer(facts(*BOTH, node=node)).ask("shop/client", "web:http", family="IPv4")
    assert [i for i in ids(answer) if i == "other-node"] == found


HOSTS = (
    nat(
        "PREROUTING -j KUBE-SERVICES",
        "KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m tcp --dport 80 -m statistic --mode random --probability 0.5 "
        "-j DNAT --to-destination 192.168.50.12:8080",
        "KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.9:8080",
        chains="KUBE-SERVICES",
    ),
    ADDRESSES,
    ROUTES,
)


@pytest.mark.parametrize(
    ("source", "share"),
    [("outside:192.168.50.99", Fraction(1, 2)), ("outside:203.0.113.9", None), ("node", None)],
    ids=["a neighbour", "behind a router", "the node itself"],
)
def test_the_answer_of_a_backend_beside_the_client_goes_past_the_node(source: str, share: Fraction | None) -> None:
    answer = ask(*HOSTS, source=source)
    found = [f for f in answer.findings if f.id == "masquerade-missing"]
    assert [f.share for f in found] == ([share] if share else [])
    assert not found or [str(e) for e in found[0].evidence] == ["192.168.50.0/24 dev eth0"]


def test_what_is_masqueraded_comes_back_through_the_node() -> None:
    hidden = HOSTS[0].replace("COMMIT", "-A POSTROUTING -j MASQUERADE\nCOMMIT")
    assert ids(ask(hidden, *HOSTS[1:], source="outside:192.168.50.99")) == []


def test_the_last_sentence_does_not_leave_out_what_becomes_of_the_answer() -> None:
    lone = (nat("PREROUTING -d 10.96.0.20/32 -j DNAT --to-destination 192.168.50.12:8080"), *HOSTS[1:])
    past = ask(*lone, source="outside:192.168.50.99")
    assert past.reason == (
        "delivered to 192.168.50.12:8080; but the answer goes past this node, and the client refuses it"
    )
    stopped = ask(*lone, filtered("FORWARD -s 192.168.50.12/32 -j DROP"), source="outside:203.0.113.9")
    assert stopped.reason == "delivered to 192.168.50.12:8080; but the answer is dropped on its way back"
    assert ask(*lone, source="outside:203.0.113.9").reason == "delivered to 192.168.50.12:8080"
