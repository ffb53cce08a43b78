"""The maps of eBPF mode in a diagnosis, as a bundle holds them."""

from dataclasses import replace
from fractions import Fraction

import pytest
from msgspec import structs
from tests.diagnosis.dumps import nat, ready, service, service_rules, slice_of

from clusterip.dataplane.ebpf.attach import HOOKS
from clusterip.dataplane.ebpf.compile import compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import applied, load
from clusterip.dataplane.ebpf.document import describe
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.diagnosis.doctor import diagnose
from clusterip.diagnosis.findings import Finding
from clusterip.rulesets.recognise import read
from clusterip.rulesets.socketmaps import SocketMaps, Stray, text
from clusterip.services.table import Backend, Entry, PortName

WEB = Entry(
    PortName("default", "web", ""),
    "IPv4",
    "TCP",
    80,
    "10.96.0.20",
    cluster=(Backend("10.244.1.5", 80), Backend("10.244.2.6", 80)),
    has_backends=True,
)
OBJECTS = service("web", "10.96.0.20") + slice_of("web", f"{ready('10.244.1.5')}, {ready('10.244.2.6')}")


def maps(entry: Entry = WEB, hooks: tuple[str, ...] = HOOKS) -> SocketMaps:
    return describe([applied(EMPTY, load([compile_entry(entry, Config())], EMPTY).steps)], {}, tuple(sorted(hooks)))


def findings(*texts: str) -> dict[str, Finding]:
    found = diagnose([read(f"file-{n}", t.encode()) for n, t in enumerate(texts)]).findings
    return {f.id: f for f in found if f.id != "incomplete-input"}


def test_maps_that_hold_what_the_api_says_are_no_fault() -> None:
    assert {f.level for f in findings(text(maps()), OBJECTS).values()} <= {"I"}


def test_a_backend_that_no_slice_holds_is_stale_and_one_that_lacks_is_missing() -> None:
    old = replace(WEB, cluster=(Backend("10.244.1.5", 80), Backend("10.244.9.9", 80)))
    found = findings(text(maps(old)), OBJECTS)
    assert (found["stale-endpoint"].object, found["stale-endpoint"].share) == ("service default/web", Fraction(1, 2))
    assert found["stale-endpoint"].message.startswith("The maps of eBPF mode send 50 % of new connections")
    assert "10.244.2.6:80" in found["missing-endpoint"].message


def test_a_backend_that_only_rules_beneath_have_is_missing_for_sockets() -> None:
    beneath = nat(service_rules("default/web", "10.96.0.20", 80, ["10.244.1.5:80", "10.244.2.6:80"]))
    found = findings(text(maps(replace(WEB, cluster=WEB.cluster[:1]))), beneath, OBJECTS)
    assert found["missing-endpoint"].message.startswith("10.244.2.6:80 is ready in the slices")


@pytest.mark.parametrize("protocol", ["TCP", "SCTP"])
def test_a_service_that_sockets_should_know_and_do_not_is_missing(protocol: str) -> None:
    other = service("db", "10.96.0.30", 5432).replace("port: 5432", f"port: 5432, protocol: {protocol}")
    slices = slice_of("db", ready("10.244.1.7"), f'{{name: "", port: 5432, protocol: {protocol}}}')
    found = findings(text(maps()), OBJECTS, other + slices)
    assert ("missing-endpoint" in found) == (protocol == "TCP")


@pytest.mark.parametrize("beneath", [True, False])
def test_what_the_rules_beneath_serve_is_not_lost_where_sockets_do_not_know_it(beneath: bool) -> None:
    other = service("db", "10.96.0.30", 5432) + slice_of("db", ready("10.244.1.7"), '{name: "", port: 5432}')
    rules = nat(service_rules("default/db", "10.96.0.30", 5432, ["10.244.1.7:5432"] if beneath else []))
    one = findings(text(maps()), rules, OBJECTS, other)["missing-endpoint"]
    assert (one.level, one.share) == (("W", None) if beneath else ("E", Fraction(1)))


def test_a_slot_that_is_gone_refuses_its_share() -> None:
    whole = maps()
    found = findings(text(structs.replace(whole, slots=whole.slots[:1])), OBJECTS)
    one = found["ebpf-slot-missing"]
    assert (one.level, one.object, one.share) == ("E", "service default/web", Fraction(1, 2))
    assert "missing-endpoint" not in found  # the same, said once


@pytest.mark.parametrize(
    ("lost", "level", "says"),
    [
        (("connect4",), "W", "left to the rules beneath"),
        (("recvmsg4",), "E", "answers from the backend's address"),
        (("getpeername4",), "W", "attached. Connected sockets show the backend."),
        (HOOKS, "W", "No socket is served"),
        ((), None, ""),
    ],
)
def test_programs_that_are_not_attached_are_told_with_what_it_costs(
    lost: tuple[str, ...], level: str | None, says: str
) -> None:
    found = findings(text(maps(hooks=tuple(h for h in HOOKS if h not in lost))), OBJECTS).get("ebpf-detached")
    assert (found.level if found else None) == level
    assert found is None or says in found.message


def test_what_is_in_a_programs_place_or_where_it_is_instead_is_shown() -> None:
    strays = (Stray("connect4", "plain (7)", "foreign"), Stray("sendmsg4", "sendmsg4 (8)", "elsewhere", "/cgroup/x"))
    held = maps(hooks=tuple(h for h in HOOKS if h not in ("connect4", "sendmsg4")))
    found = findings(text(structs.replace(held, strays=strays)), OBJECTS)["ebpf-detached"]
    assert [e.text for e in found.evidence[1:]] == [
        "connect4: program plain (7) runs in its place",
        "sendmsg4: program sendmsg4 (8) is attached to /cgroup/x",
    ]


def test_nodes_whose_maps_differ_are_told_apart() -> None:
    other = maps(replace(WEB, cluster=WEB.cluster[:1]))
    assert "node-drift" in findings(text(maps()), text(other), OBJECTS)


def test_rules_of_another_mode_beside_it_are_left_over() -> None:
    old = nat(service_rules("default/web", "10.96.0.20", 80, ["10.244.1.5:80"]))
    config = "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, mode: ebpf}\n"
    assert findings(text(maps()), OBJECTS, old, config)["stale-mode-rules"].object == "iptables rules"
