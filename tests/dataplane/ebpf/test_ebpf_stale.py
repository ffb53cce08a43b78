"""Connected datagram sockets of a backend that went are ended; nobody else's are."""

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.dataplane.ebpf.entries import VIP, entry, everywhere
from tests.dataplane.ebpf.pods import Node, four, node

from clusterip.dataplane.ebpf.layout import service_id
from clusterip.dataplane.ebpf.stale import end_stale, serving, stale
from clusterip.kernel import netns
from clusterip.kernel.sockdestroy import Socket

# Connects by the given addresses, asks once on each socket, and waits what becomes of the next answer.
CLIENT = """
import socket, sys
sockets = []
for where in sys.argv[1:]:
    address, _, port = where.rpartition("/")
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(5)
    s.connect((address, int(port)))
    s.send(b"?")
    s.recv(16)
    sockets.append(s)
print("ready", flush=True)
sys.stdin.readline()
for s in sockets:
    try:
        s.send(b"?")
        print(s.recv(16).decode())
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("ebpf")) as made:
        yield made


def client(lab: Node, *where: str) -> "subprocess.Popen[str]":
    path = netns.path(lab.namespace("client"))
    argv = ["nsenter", f"--net={path}", sys.executable, "-I", "-c", CLIENT, *where]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.kernel
async def test_only_sockets_that_came_by_the_service_are_ended(lab: Node) -> None:
    before, after = everywhere(("b1",)), everywhere(("b2",))
    await lab.serve(*before)
    process = client(lab, f"{VIP}/80", "fd00:96::20/80", "::ffff:10.96.0.20/80", f"{four('b1')}/8080")
    await lab.serve(*after)
    ended = [end_stale(lab.sockets, serving(e for e in after if e.family == f), f) for f in ("IPv4", "IPv6")]
    assert ended == [2, 1]
    said, _ = process.communicate("\n", timeout=20)
    assert said.split()[-1] == "b1"
    assert not {"b1", "b2"} & set(said.split()[:-1])


@pytest.mark.kernel
async def test_sockets_of_backends_that_serve_on_are_left_alone(lab: Node) -> None:
    await lab.serve(*everywhere(("b1",)))
    process = client(lab, f"{VIP}/80")
    terminating = replace(entry("UDP", pods=("b2",)), serving=entry("UDP", pods=("b1", "b2")).serving)
    await lab.serve(terminating)
    assert end_stale(lab.sockets, serving([terminating]), "IPv4") == 0
    said, _ = process.communicate("\n", timeout=20)
    assert said.split() == ["b1"]


@pytest.mark.kernel
async def test_a_service_that_went_takes_its_sockets_along(lab: Node) -> None:
    await lab.serve(*everywhere(("b1",)))
    process = client(lab, f"{VIP}/80")
    await lab.serve()
    assert end_stale(lab.sockets, {}, "IPv4") == 1
    process.communicate("\n", timeout=20)


def test_the_other_familys_sockets_are_not_judged() -> None:
    six = Socket(1, socket.inet_pton(socket.AF_INET6, "fd00:1:1::11"), 8080, socket.AF_INET6, b"")
    four_ = Socket(2, b"\0" * 10 + b"\xff\xff" + socket.inet_aton(four("b1")), 8080, socket.AF_INET6, b"")
    table = serving([entry("UDP")])
    web = service_id(entry("UDP").key)
    assert stale([six, four_], lambda _: web, table, "IPv4") == []
    assert stale([six, four_], lambda _: struct.pack("<Q", 1), table, "IPv4") == [four_]
    assert stale([six, four_], lambda _: None, table, "IPv4") == []
