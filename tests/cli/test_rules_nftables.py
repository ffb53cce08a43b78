"""`clusterip rules --proxy-mode nftables`: what it prints is what the proxy writes."""

import contextlib
import subprocess
from collections.abc import Iterator

import pytest
from tests.cli.test_rules import SERVICE, SIX, SLICE, SLICE_SIX, dump, run
from tests.spaces import fresh

from clusterip.dataplane.nftables import Book, Config, compile_entry, delta
from clusterip.dataplane.nftables.apply import Rules
from clusterip.dataplane.node import FromCIDR
from clusterip.model.status import Object
from clusterip.rulesets.nft import parse
from clusterip.services.table import Backend, Entry, Family, PortName

OPTIONS = ("--proxy-mode", "nftables")


def test_the_output_is_one_table_that_reads_as_a_document() -> None:
    said = run(dump(SERVICE, SLICE), *OPTIONS, "--service-cidr", "10.96.0.0/16").stdout
    assert said.startswith("table ip clusterip {")
    assert '10.96.0.10 . tcp . 80 comment "shop/web" : goto pick-1' in said
    assert '10.96.0.10 . tcp . 80 . 0 comment "shop/web" : 10.244.1.2 . 8080' in said
    assert "ip daddr 10.96.0.0/16 drop" in said
    reading = parse.read(said)
    assert (len(list(reading.values)), len(reading.problems)) == (1, 0)


def test_the_options_reach_the_table() -> None:
    ports = [{"port": 80, "nodePort": 30080}]
    text = dump({**SERVICE, "spec": {**SERVICE["spec"], "type": "NodePort", "ports": ports}}, SLICE)
    assert "0x1 " in run(text, *OPTIONS, "--masquerade-bit", "0").stdout.replace("0x00000001", "0x1")
    assert "ct state invalid" not in run(text, *OPTIONS, "--tcp-be-liberal").stdout
    assert "elements = { 192.168.50.11 }" in run(text, *OPTIONS, "--node-ip", "192.168.50.11").stdout
    assert "fib daddr type local" in run(text, *OPTIONS, "--nodeport-addresses", "0.0.0.0/0").stdout
    assert "ip saddr != 10.244.0.0/16" in run(text, *OPTIONS, "--cluster-cidr", "fd00::/48,10.244.0.0/16").stdout


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("objects", "family"), [((SERVICE, SLICE), "IPv4"), ((SIX, SLICE_SIX), "IPv6")], ids=["IPv4", "IPv6"]
)
def test_nft_loads_it(objects: tuple[Object, ...], family: Family) -> None:
    text = run(dump(*objects), *OPTIONS).stdout
    table = "ip6" if family == "IPv6" else "ip"
    with namespace() as netns:
        nft(netns, "-f", "-", stdin=text)
        (listed,) = parse.read(nft(netns, "list", "table", table, "clusterip")).values
        (printed,) = parse.read(text).values
        assert dict(listed.chains) == dict(printed.chains)
        assert {n: set(s.elements) for n, s in listed.sets.items()} == {
            n: set(s.elements) for n, s in printed.sets.items()
        }


@pytest.mark.kernel
async def test_it_lists_as_what_the_proxy_writes() -> None:
    text = run(dump(SERVICE, SLICE), *OPTIONS, "--cluster-cidr", "10.244.0.0/16").stdout
    config = Config(detector=FromCIDR("10.244.0.0/16"), node_port_addresses=())
    backends = (Backend("10.244.1.2", 8080, True),)
    entry = Entry(PortName("shop", "web", ""), "IPv4", "TCP", 80, "10.96.0.10", cluster=backends, has_backends=True)
    book = Book.of([compile_entry(entry, config)])
    with namespace() as theirs, namespace() as ours:
        nft(theirs, "-f", "-", stdin=text)
        with contextlib.closing(Rules("IPv4", netns=ours)) as rules:
            await rules.load(delta.load(book, delta.Installed(), config))
        assert nft(theirs, "list", "ruleset") == nft(ours, "list", "ruleset")


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    with fresh("rules") as name:
        yield name


def nft(netns: str, *words: str, stdin: str = "") -> str:
    argv = ("ip", "netns", "exec", netns, "nft", *words)
    return subprocess.run(argv, input=stdin, text=True, capture_output=True, timeout=60, check=True).stdout
