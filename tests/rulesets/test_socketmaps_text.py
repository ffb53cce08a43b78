"""The maps of eBPF mode as JSON. tests/dataplane/ebpf/test_ebpf_document.py has the way there and back."""

import json
from copy import deepcopy
from typing import Any

import pytest

from clusterip.rulesets import recognise
from clusterip.rulesets.recognise import Recognised
from clusterip.rulesets.socketmaps import Member, Service, Slot, SocketMaps

A, B = "00112233445566aa", "00112233445566bb"
DOCUMENT: dict[str, Any] = {
    "apiVersion": "clusterip/v1",
    "kind": "SocketMaps",
    "hooks": ["connect4"],
    "services": [{"frontend": "[fd00:96:0::20]:80/udp", "service": "default/web", "id": A, "set": B, "backends": 1}],
    "slots": [{"set": B, "index": 0, "backend": "[fd00:1:1::5]:8080"}],
    "members": [{"set": B, "backend": "10.244.1.5:8080"}],
}


def read(document: dict[str, Any]) -> Recognised:
    return recognise.read("maps.json", json.dumps(document).encode())


def test_places_are_read_in_both_families() -> None:
    (part,) = read(DOCUMENT).parts
    assert part.values == SocketMaps(
        (Service("fd00:96::20", 80, "UDP", A, B, 1, name="default/web"),),
        (Slot(B, 0, "fd00:1:1::5", 8080),),
        (Member(B, "10.244.1.5", 8080),),
        ("connect4",),
    )
    assert part.facts == 3


@pytest.mark.parametrize(
    "frontend",
    ["10.96.0.20:80", "10.96.0.300:80/tcp", "10.96.0.20:80000/tcp", "fd00::1:80/tcp", "", "10.96.0.20:80/sctp"],
)
def test_a_frontend_that_is_none_is_named_and_left_out(frontend: str) -> None:
    damaged = deepcopy(DOCUMENT)
    damaged["services"][0]["frontend"] = frontend
    found = read(damaged)
    assert repr(frontend) in found.problems[0].why
    (part,) = found.parts
    assert isinstance(part.values, SocketMaps)
    assert (len(part.values.services), len(part.values.slots)) == (0, 1)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("services", 0, "id"), "xyz"),
        (("services", 0, "backends"), -1),
        (("slots", 0, "index"), "first"),
        (("slots", 0, "backend"), None),
        (("members",), {}),
    ],
)
def test_a_document_of_another_form_is_a_problem_that_says_where(path: tuple[str | int, ...], value: object) -> None:
    damaged = deepcopy(DOCUMENT)
    at: Any = damaged
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    found = read(damaged)
    assert found.parts == ()
    assert str(path[0]) in found.problems[0].why
