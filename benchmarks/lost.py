"""Connections lost while backends change without pause, in nftables mode.

A client connects to one Service on and on, through a node, to ten backends; meanwhile the Service's backends are
replaced, and become fewer and more, as fast as the kernel takes it. `python benchmarks/lost.py 100000` for as many
changes. A connection is lost if it is refused, or if its SYN has to be sent again, which takes a second.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clusterip.dataplane.nftables import Book, Config, compile_entry, delta
from clusterip.dataplane.nftables.apply import Rules
from clusterip.kernel import netns
from clusterip.services.table import Backend, Entry, PortName
from clusterip.services.tracker import Change

CHANGES = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
OTHERS = 100  # Services beside the one that is asked
VIP, CLIENT, BACKENDS = "10.96.0.10", "10.200.0.2", "10.201.0.2"
PORTS = range(8001, 8011)
TAG = f"clusterip-bench-lost-{os.getpid()}"
NODE, INSIDE, BEHIND = f"{TAG}-n", f"{TAG}-c", f"{TAG}-b"

SERVER = f"""
import selectors, socket
chosen = selectors.DefaultSelector()
for port in range({PORTS.start}, {PORTS.stop}):
    listener = socket.create_server(("{BACKENDS}", port), backlog=4096)
    listener.setblocking(False)
    chosen.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in chosen.select():
        try:
            key.fileobj.accept()[0].close()
        except OSError:
            pass
"""
CALLER = f"""
import json, os, socket, struct, sys, time
made, lost, slow, longest = 0, {{}}, 0, 0.0
while not os.path.exists(sys.argv[1]):
    with socket.socket() as s:
        s.settimeout(5)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        start = time.perf_counter()
        try:
            s.connect(("{VIP}", 80))
            made += 1
        except OSError as error:
            lost[str(error)] = lost.get(str(error), 0) + 1
        took = time.perf_counter() - start
        slow += took > 0.9
        longest = max(longest, took)
print(json.dumps([made, lost, slow, longest]))
"""


def on(name: str, *commands: str) -> None:
    for command in commands:
        subprocess.run(("nsenter", f"--net={netns.path(name)}", *command.split()), check=True)


def build() -> None:
    for name in (NODE, INSIDE, BEHIND):
        netns.create(name)
        on(name, "ip link set lo up")
    on(NODE, "sysctl -qw net.ipv4.ip_forward=1")
    for name, link, address in ((INSIDE, "c0", CLIENT), (BEHIND, "b0", BACKENDS)):
        gateway = address[:-1] + "1"
        on(NODE, f"ip link add {link} type veth peer name eth0 netns {name}")
        on(NODE, f"ip addr add {gateway}/24 dev {link}", f"ip link set {link} up")
        on(name, f"ip addr add {address}/24 dev eth0", "ip link set eth0 up", f"ip route add default via {gateway}")


def entry(name: str, address: str, ports: list[int]) -> Entry:
    backends = tuple(sorted((Backend(BACKENDS, port) for port in ports), key=str))
    return Entry(PortName("default", name, ""), "IPv4", "TCP", 80, address, cluster=backends, has_backends=True)


def change_on_and_on(rules: Rules) -> float:
    """Seconds."""
    config = Config()
    now = compile_entry(entry("web", VIP, list(PORTS)), config)
    others = (entry(f"other-{i}", f"10.96.1.{i}", list(PORTS[:5])) for i in range(OTHERS))
    book = Book.of([now, *(compile_entry(e, config) for e in others)])
    rules.apply_now(delta.load(book, delta.Installed(), config))
    drawn = random.Random(0)
    start = time.perf_counter()
    for _ in range(CHANGES):
        ports = drawn.sample(PORTS, drawn.randint(1, len(PORTS)))
        after = compile_entry(entry("web", VIP, ports), config)
        changes = [Change(now, after)]
        shift = book.shift(changes)
        rules.apply_now(delta.delta(shift))
        book.write(changes, shift)
        now = after
    return time.perf_counter() - start


def inside(name: str, program: str, *argv: str) -> "subprocess.Popen[bytes]":
    words = ("nsenter", f"--net={netns.path(name)}", sys.executable, "-c", program, *argv)
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stop = Path(folder) / "stop"
        build()
        rules = Rules("IPv4", netns=NODE)
        server = inside(BEHIND, SERVER)
        try:
            rules.apply_now(delta.load(Book(), delta.Installed(), Config()))
            first = entry("web", VIP, list(PORTS))
            book = Book.of([compile_entry(first, Config())])
            rules.apply_now(delta.load(book, delta.Installed(), Config()))
            time.sleep(1)
            caller = inside(INSIDE, CALLER, str(stop))
            seconds = change_on_and_on(rules)
            stop.touch()
            made, lost, slow, longest = json.loads(caller.communicate(timeout=30)[0])
        finally:
            server.kill()
            server.wait()
            rules.close()
            for name in (NODE, INSIDE, BEHIND):
                netns.delete(name)
    print(f"{CHANGES} changes of one Service's backends in {seconds:.1f} s, {made} connections meanwhile:")
    print(f"  lost {sum(lost.values())} {lost or ''}  slower than 0.9 s {slow}  slowest {longest * 1000:.0f} ms")
    sys.exit(bool(lost or slow))


main()
