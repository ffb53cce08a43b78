"""nftables mode beside kube-proxy's layout, loaded by `nft -f`: full loads, and one change at a time.

Ours is measured from the service table to the kernel: compiling, packing and the kernel's own work. kube-proxy's is
measured from finished text, so without its own computing. `python benchmarks/nftables.py 10000` for one size.
"""

import contextlib
import hashlib
import os
import resource
import statistics
import subprocess
import sys
import time
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from clusterip.dataplane.nftables import Book, Config, compile_entry, delta
from clusterip.dataplane.nftables.apply import Rules
from clusterip.dataplane.node import FromCIDR
from clusterip.kernel import netns
from clusterip.services.table import Backend, Entry, PortName
from clusterip.services.tracker import Change

SIZES = (1000, 5000, 10000)
KUBE_PROXY_MOST = 5000  # Services: 10,000 take 20 s of CPU, for the same picture
CHANGES, KUBE_PROXY_CHANGES = 300, 30
CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"), node_port_addresses=("192.168.50.11",))


def entry(i: int) -> Entry:
    backends = [Backend(f"10.{200 + i // 5000}.{i % 5000 // 20}.{1 + i % 20 * 12 + k}", 8080) for k in range(10)]
    return Entry(
        PortName("default", f"svc-{i:05}", "http"),
        "IPv4",
        "TCP",
        80,
        f"10.96.{1 + i // 250}.{i % 250}",
        cluster=tuple(sorted(backends, key=str)),
        has_backends=True,
        known=10,
    )


def with_other_backend(before: Entry, turn: int) -> Entry:
    """The last of ten, so that it keeps its place."""
    return replace(before, cluster=(*before.cluster[:-1], Backend(f"10.99.{turn // 250}.{1 + turn % 250}", 8080)))


# --- kube-proxy's layout (1.36) --------------------------------------------------------------------------------------


def chain(e: Entry) -> str:
    full = f"{e.name.namespace}/{e.name.service}/tcp/{e.name.port}"
    return f"service-{b32encode(hashlib.sha256(full.encode()).digest())[:8].decode()}-{full}"


def chain_rule(e: Entry) -> str:
    ends = ", ".join(f"{i} : {b.address} . {b.port}" for i, b in enumerate(e.cluster))
    spread = f"dnat ip to numgen random mod {len(e.cluster)} map {{ {ends} }}"
    return f"add rule ip kube-proxy {chain(e)} meta l4proto tcp {spread}\n"


def address(e: Entry) -> str:
    return f"{e.cluster_ip} . tcp . {e.port}"


BASE = """
add table ip kube-proxy
add set ip kube-proxy cluster-ips { type ipv4_addr; }
add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
add chain ip kube-proxy services
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority dstnat; }
add chain ip kube-proxy nat-output { type nat hook output priority -100; }
add rule ip kube-proxy nat-prerouting jump services
add rule ip kube-proxy nat-output jump services
add rule ip kube-proxy services ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set mark or 0x4000
add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips
"""


def whole(entries: Iterable[Entry]) -> str:
    return BASE + "".join(map(added, entries))


def added(e: Entry) -> str:
    member = f"add element ip kube-proxy cluster-ips {{ {e.cluster_ip} }}\n"
    verdict = f"add element ip kube-proxy service-ips {{ {address(e)} : goto {chain(e)} }}\n"
    return f"add chain ip kube-proxy {chain(e)}\n{chain_rule(e)}{member}{verdict}"


def removed(e: Entry) -> str:
    member = f"delete element ip kube-proxy cluster-ips {{ {e.cluster_ip} }}\n"
    verdict = f"delete element ip kube-proxy service-ips {{ {address(e)} }}\n"
    return f"{verdict}{member}flush chain ip kube-proxy {chain(e)}\ndelete chain ip kube-proxy {chain(e)}\n"


def nft(name: str, text: str) -> None:
    subprocess.run(("ip", "netns", "exec", name, "nft", "-f", "-"), input=text.encode(), check=True)


# --- measuring -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    name = f"clusterip-bench-nft-{os.getpid()}-{time.monotonic_ns() % 10**9}"
    netns.create(name)
    try:
        yield name
    finally:
        netns.delete(name)


def cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def timed(work: Callable[[], None]) -> str:
    used, start = cpu(), time.perf_counter()
    work()
    return f"{cpu() - used:7.3f} s of CPU ({time.perf_counter() - start:7.3f} s)"


def milliseconds(steps: Iterable[Callable[[], None]]) -> list[float]:
    taken = []
    for step in steps:
        start = time.perf_counter()
        step()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def summary(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"p50 {statistics.median(ordered):8.3f} ms   p99 {ordered[int(len(ordered) * 0.99)]:8.3f} ms"


class Ours:
    """Without the event loop: what is measured is the work."""

    def __init__(self, name: str) -> None:
        self.rules = Rules("IPv4", netns=name)
        self.book = Book()

    def load(self, entries: Sequence[Entry]) -> None:
        self.book = Book.of(compile_entry(e, CONFIG) for e in entries)
        self.rules.apply_now(delta.load(self.book, delta.Installed(), CONFIG))

    def change(self, before: Entry | None, after: Entry | None) -> None:
        old, new = (compile_entry(e, CONFIG) if e else None for e in (before, after))
        changes = [Change(old, new)]
        shift = self.book.shift(changes)
        self.rules.apply_now(delta.delta(shift))
        self.book.write(changes, shift)


def measure_ours(size: int, entries: Sequence[Entry]) -> None:
    with namespace() as name:
        ours = Ours(name)
        print(f"  {size:6} Services, ours        full load             {timed(lambda: ours.load(entries))}")
        middle, extra = entries[size // 2], entry(size)
        versions = [middle, *(with_other_backend(middle, turn) for turn in range(CHANGES))]
        pairs = pairwise(versions)
        replaced = milliseconds([lambda a=a, b=b: ours.change(a, b) for a, b in pairs])
        fewer = replace(versions[-1], cluster=versions[-1].cluster[:-1])
        resized, coming, going = [], [], []
        for _ in range(CHANGES // 2):
            resized += milliseconds(
                [lambda: ours.change(versions[-1], fewer), lambda: ours.change(fewer, versions[-1])]
            )
            coming += milliseconds([lambda: ours.change(None, extra)])
            going += milliseconds([lambda: ours.change(extra, None)])
        for what, values in (
            ("one backend replaced", replaced),
            ("one backend less, more", resized),
            ("a Service added", coming),
            ("a Service removed", going),
        ):
            print(f"  {'':28} {what:22} {summary(values)}", flush=True)
        ours.rules.close()


def measure_kube_proxys(size: int, entries: Sequence[Entry]) -> None:
    with namespace() as name:
        text = whole(entries)
        print(f"  {size:6} Services, kube-proxy  full load             {timed(lambda: nft(name, text))}")
        middle, extra = entries[size // 2], entry(size)
        changed = (with_other_backend(middle, turn) for turn in range(KUBE_PROXY_CHANGES))
        flush = f"flush chain ip kube-proxy {chain(middle)}\n"
        replaced = milliseconds([lambda e=e: nft(name, flush + chain_rule(e)) for e in changed])
        coming, going = [], []
        for _ in range(KUBE_PROXY_CHANGES):
            coming += milliseconds([lambda: nft(name, added(extra))])
            going += milliseconds([lambda: nft(name, removed(extra))])
        for what, values in (
            ("one backend replaced", replaced),
            ("a Service added", coming),
            ("a Service removed", going),
        ):
            print(f"  {'':28} {what:22} {summary(values)}", flush=True)


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    print("N Services x 10 backends, from the service table (ours) or finished text (kube-proxy) to the kernel:")
    for size in sizes:
        entries = [entry(i) for i in range(size)]
        measure_ours(size, entries)
        if size <= KUBE_PROXY_MOST or len(sys.argv) > 1:
            measure_kube_proxys(size, entries)


main()
