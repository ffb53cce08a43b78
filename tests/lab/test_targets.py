"""Where `clusterip exec` goes, and how a command's end is told."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.errors import BadInput
from clusterip.lab.plan import Plan
from clusterip.lab.podexec import Command, ExecFailed, exit_status
from clusterip.lab.targets import Host, Member, PodTarget, Target, target

PLAN = Plan(nodes=3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node-1", Member("node-1")),
        ("control-plane", Member("control-plane")),
        ("host", Host()),
        ("client", PodTarget("default", "client")),
        ("kube-system/dns-1", PodTarget("kube-system", "dns-1")),
        ("default/node-1", PodTarget("default", "node-1")),
        ("node-x", PodTarget("default", "node-x")),
    ],
)
def test_a_target_is_a_member_the_host_or_a_pod(text: str, expected: Target) -> None:
    assert target(text, PLAN) == expected


@pytest.mark.parametrize("text", ["node-4", "node-0", "", "/", "a/", "/b", "a/b/c"])
def test_what_is_no_target_is_told(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        target(text, PLAN)
    assert caught.value.hint


def test_a_question_names_each_word_of_the_command() -> None:
    query = Command("default", "p", ("ls", "-l"), container="c", stdin=True).query()
    assert query == [
        ("command", "ls"),
        ("command", "-l"),
        ("container", "c"),
        ("stdin", "true"),
        ("stdout", "true"),
        ("stderr", "true"),
    ]


def test_a_terminal_has_one_output() -> None:
    assert ("stderr", "true") not in Command("default", "p", ("sh",), tty=True).query()


def ended(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}).encode()


def test_the_exit_status_is_the_commands() -> None:
    assert exit_status(b'{"status":"Success"}') == 0
    assert exit_status(ended(7)) == 7


def test_a_command_that_was_not_run_says_why() -> None:
    with pytest.raises(ExecFailed, match="no such program"):
        exit_status(b'{"status":"Failure","message":"no such program"}')


@given(st.binary(max_size=100))
def test_any_end_is_a_status_or_an_error(data: bytes) -> None:
    with contextlib.suppress(ExecFailed):
        assert isinstance(exit_status(data), int)
