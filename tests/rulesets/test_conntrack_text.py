"""The connection table in each of its forms."""

import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from clusterip.kernel import netns as namespaces
from clusterip.rulesets import conntrack

PLAIN = (
    "tcp      6 86399 ESTABLISHED src=10.244.1.9 dst=10.96.0.1 sport=40000 dport=443 "
    "src=192.0.2.1 dst=10.244.1.9 sport=6443 dport=40000 [ASSURED] mark=0 use=1"
)


def test_a_connection_has_two_directions() -> None:
    [entry] = conntrack.read(PLAIN).values.entries
    assert entry == conntrack.Entry(
        "tcp",
        6,
        conntrack.Flow("10.244.1.9", "10.96.0.1", 40000, 443),
        conntrack.Flow("192.0.2.1", "10.244.1.9", 6443, 40000),
        86399,
        "ESTABLISHED",
        ("ASSURED",),
        more=("use=1",),
        line=1,
    )
    assert entry.translated
    assert not entry.unreplied


THERE = "src=10.0.0.1 dst=10.0.0.2 sport=1 dport=2"
BACK = "src=10.0.0.2 dst=10.0.0.1 sport=2 dport=1"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"ipv4     2 {PLAIN}", {"family": "ipv4", "timeout": 86399}),
        (
            f"udp      17 29 {THERE} [UNREPLIED] {BACK} mark=16384 zone=3 use=1",
            {"flags": ("UNREPLIED",), "state": "", "mark": 16384, "zone": 3, "translated": False, "unreplied": True},
        ),
        (
            f"udp      17 {THERE} packets=3 bytes=180 {BACK} packets=0 bytes=0 [OFFLOAD] mark=0 use=2",
            {"timeout": None, "flags": ("OFFLOAD",)},
        ),
        (
            f"ipv6     10 tcp      6 9 TIME_WAIT {THERE} {BACK} [ASSURED] mark=0 secctx=a:b:c use=1",
            {"family": "ipv6", "state": "TIME_WAIT", "more": ("secctx=a:b:c", "use=1")},
        ),
        (
            f"    [NEW] tcp      6 120 SYN_SENT {THERE} [UNREPLIED] {BACK}",
            {"event": "NEW", "state": "SYN_SENT"},
        ),
        (f"[1700000000.123456]\t[DESTROY] udp      17 {THERE} {BACK}", {"event": "DESTROY", "timeout": None}),
        (
            "unknown  47 599 src=10.0.0.1 dst=10.0.0.2 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 mark=0 use=1",
            {"protocol": "unknown", "number": 47},
        ),
    ],
)
def test_each_form_is_read(line: str, expected: dict[str, object]) -> None:
    reading = conntrack.read(line + "\nconntrack v1.4.7 (conntrack-tools): 1 flow entries have been shown.\n")
    assert reading.problems == ()
    [entry] = reading.values.entries
    assert {name: getattr(entry, name) for name in expected} == expected


def test_counts_and_icmp_belong_to_their_direction() -> None:
    line = "icmp 1 29 src=1.1.1.1 dst=2.2.2.2 type=8 code=0 id=7 packets=3 bytes=252 src=2.2.2.2 dst=1.1.1.1 type=0 code=0 id=7 packets=1 bytes=84 mark=0 use=1"  # noqa: E501
    [entry] = conntrack.read(line).values.entries
    assert (entry.original.icmp, entry.original.packets, entry.original.bytes) == ((8, 0, 7), 3, 252)
    assert (entry.reply.icmp, entry.reply.packets, entry.reply.bytes) == ((0, 0, 7), 1, 84)


@pytest.mark.parametrize(
    "line",
    [
        "tcp 6 nonsense",
        "src=1.1.1.1 dst=2.2.2.2",
        "tcp 6 10 src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2",  # one direction only
        "tcp 6 10 src=1.1.1.1 dst=2.2.2.2 sport=x dport=2 src=2.2.2.2 dst=1.1.1.1 sport=2 dport=1",
        "tcp 6 10 A B src=1.1.1.1 dst=2.2.2.2 src=2.2.2.2 dst=1.1.1.1",
        "tcp 6 10 src=1.1.1.1 dst=2.2.2.2 src=2.2.2.2 dst=1.1.1.1 mark=zz",
    ],
)
def test_what_is_no_connection_is_named(line: str) -> None:
    reading = conntrack.read(f"{PLAIN}\n{line}\n")
    assert [problem.line for problem in reading.problems] == [2]
    assert reading.facts == 1


def test_statistics_add_up() -> None:
    reading = conntrack.read_statistics(
        "cpu=0 \tfound=1 insert_failed=312 drop=312\ncpu=1 found=2 insert_failed=1 drop=0\n"
    )
    assert reading.problems == ()
    assert reading.values.total("insert_failed") == 313
    assert reading.values.total("no-such-thing") == 0
    assert [cpu.cpu for cpu in reading.values.cpus] == [0, 1]


@pytest.fixture
def netns() -> Iterator[str]:
    name = f"ct-{uuid4().hex[:8]}"
    namespaces.create(name)
    yield name
    namespaces.delete(name)


@pytest.mark.kernel
@pytest.mark.parametrize("output", [(), ("-o", "extended"), ("-o", "timestamp"), ("-o", "id,labels")], ids=" ".join)
def test_what_the_kernel_has_is_read(netns: str, output: tuple[str, ...]) -> None:
    def run(*argv: str) -> str:
        done = subprocess.run(["ip", "netns", "exec", netns, *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    reply = ("--reply-src", "192.0.2.1", "--reply-dst", "10.244.1.9", "--reply-port-src", "6443")
    run(
        *("conntrack", "-I", "-p", "tcp", "--orig-src", "10.244.1.9", "--orig-dst", "10.96.0.1"),
        *("--orig-port-src", "40000", "--orig-port-dst", "443", *reply, "--reply-port-dst", "40000"),
        *("-t", "1000", "--state", "ESTABLISHED", "-u", "ASSURED", "-m", "0x4000"),
    )
    reading = conntrack.read(run("conntrack", "-L", *output))
    assert reading.problems == ()
    [entry] = reading.values.entries
    assert entry.original == conntrack.Flow("10.244.1.9", "10.96.0.1", 40000, 443)
    assert entry.reply == conntrack.Flow("192.0.2.1", "10.244.1.9", 6443, 40000)
    assert (entry.state, entry.mark) == ("ESTABLISHED", 0x4000)
    assert "ASSURED" in entry.flags
    assert conntrack.read_statistics(run("conntrack", "-S")).problems == ()
