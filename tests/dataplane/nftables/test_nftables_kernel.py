"""What is computed is what the kernel holds, what others do to it is seen, and a load heals it. Only tests run nft.

Holds the model of the other tests against the kernel, too.
"""

import contextlib
import errno
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataplane.nftables.model import Model, meaning
from tests.dataplane.nftables.strategies_nft import RANGES, configs
from tests.dataplane.strategies import V4, V6, Pool, tables
from tests.spaces import fresh

from clusterip.dataplane.nftables import delta as d
from clusterip.dataplane.nftables.apply import Generation, Rules, clean_up
from clusterip.dataplane.nftables.book import Book
from clusterip.dataplane.nftables.compare import compare, compare_shape
from clusterip.dataplane.nftables.compile import compile_entry
from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.nftables.encode import messages
from clusterip.dataplane.node import FromCIDR
from clusterip.kernel import nftables as k
from clusterip.kernel.netlink import attributes
from clusterip.kernel.nftables import TransactionRefused
from clusterip.rulesets.nft import parse
from clusterip.rulesets.nft import values as v
from clusterip.rulesets.nft.text import table_text
from clusterip.services.table import Backend, Entry, EntryKey, PortName
from clusterip.services.tracker import Change

pytestmark = pytest.mark.kernel
POOLS = pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    with fresh("nft") as name:
        yield name


def nft(netns: str, *words: str, stdin: str = "") -> str:
    argv = ("ip", "netns", "exec", netns, "nft", *words)
    done = subprocess.run(argv, input=stdin, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ip(pool: Pool) -> str:
    return "ip6" if pool is V6 else "ip"


def listed(netns: str, pool: Pool) -> v.Table:
    """Of the highest bit alone nft makes a prefix of one bit when it prints a mask."""
    text = nft(netns, "list", "table", ip(pool), "clusterip")
    reading = parse.read(text.replace("meta mark 0x80000000/1", "meta mark & 0x80000000 == 0x80000000"))
    assert not reading.problems
    return next(iter(reading.values))


def everything(pool: Pool) -> tuple[Config, list[Entry]]:
    """A table in which every chain, set and map occurs."""
    config = Config(
        pool.family,
        pool.node_ip,
        FromCIDR(pool.pod_range),
        node_port_addresses=(pool.node_ip,),
        service_cidrs=(RANGES[pool.family],),
    )
    backends = tuple(sorted(pool.backends, key=str))
    local = tuple(b for b in backends if b.local)
    plain = Entry(
        PortName("default", "web", "http"),
        pool.family,
        "TCP",
        80,
        pool.cluster_ips[0],
        node_port=30080,
        external_ips=pool.external_ips,
        load_balancer_ips=pool.balancers,
        source_ranges=pool.ranges,
        external_local=True,
        cluster=backends,
        local=local,
        has_backends=True,
    )
    sticky = replace(plain, name=PortName("default", "dns", ""), protocol="UDP", affinity_seconds=3661, node_port=30053)
    empty = Entry(PortName("a", "none", "p"), pool.family, "SCTP", 9, pool.cluster_ips[1], node_port=30090)
    return config, [plain, sticky, empty]


@POOLS
@settings(max_examples=15)
@given(data=st.data())
async def test_the_kernel_holds_what_was_computed(pool: Pool, data: st.DataObject) -> None:
    history: list[Mapping[EntryKey, Entry]] = data.draw(st.lists(tables(pool), min_size=2, max_size=4))
    config = data.draw(configs(pool))
    with namespace() as netns, contextlib.closing(Rules(pool.family, netns=netns)) as rules:
        have = {key: compile_entry(entry, config) for key, entry in history[0].items()}
        book, model = Book.of(have.values()), Model()
        load = d.load(book, await rules.observe(), config)
        await rules.load(load)
        model = model.commit(load.transactions[0])
        for table in history[1:]:
            want = {key: compile_entry(entry, config) for key, entry in table.items()}
            changes = [Change(have.get(k), want.get(k)) for k in sorted(have.keys() | want.keys())]
            shift = book.shift(changes)
            part = d.delta(shift)
            await rules.apply(part)
            for transaction in part.transactions:
                model = model.commit(transaction)
            book.write(changes, shift)
            have = want
            assert meaning(listed(netns, pool)) == meaning(d.table(book, config)) == meaning(model.table())
            assert await rules.observe() == model.installed()
            assert compare(await rules.read(), book, config) == ()
            assert compare_shape(await rules.glance(), book, config) == ()
        second = data.draw(configs(pool))
        book = Book.of(compile_entry(e, second) for e in history[0].values())
        await rules.load(d.load(book, await rules.observe(), second))
        assert meaning(listed(netns, pool)) == meaning(d.table(book, second))
        assert await clean_up(pool.family, netns=netns)
        assert nft(netns, "list", "ruleset") == ""


@POOLS
async def test_nft_makes_the_same_of_the_printed_program(pool: Pool) -> None:
    config, entries = everything(pool)
    book = Book.of(compile_entry(e, config) for e in entries)
    with namespace() as ours, namespace() as theirs:
        with contextlib.closing(Rules(pool.family, netns=ours)) as rules:
            await rules.load(d.load(book, d.Installed(), config))
        nft(theirs, "-f", "-", stdin=table_text(d.table(book, config)))
        raw, text = (nft(n, "list", "table", ip(pool), "clusterip").splitlines() for n in (ours, theirs))
        assert sorted(raw) == sorted(text)


@POOLS
async def test_a_load_over_itself_changes_nothing_and_forgets_no_client(pool: Pool) -> None:
    config, entries = everything(pool)
    book = Book.of(compile_entry(e, config) for e in entries)
    with namespace() as netns, contextlib.closing(Rules(pool.family, netns=netns)) as rules:
        await rules.load(d.load(book, d.Installed(), config))
        clients = next(s.name for s in book.sets)
        nft(netns, "add", "element", ip(pool), "clusterip", clients, "{", pool.pods[0], "}")
        await rules.load(d.load(book, await rules.observe(), config))
        table = listed(netns, pool)
        assert [e.key for e in table.sets[clients].elements] == [v.Address(pool.pods[0])]
        assert compare(await rules.read(), book, config) == ()


def test_room_for_the_clients_of_a_sticky_backend_is_made_as_they_come() -> None:
    """A set of 65,535 that is announced takes 2 MB of the kernel's memory; the kernel gives the others that limit, too,
    as the tests above see, which compare what we write with what nft makes of the printed program."""
    config, (_, sticky, _) = everything(V4)
    steps = d.load(Book.of([compile_entry(sticky, config)]), d.Installed(), config).transactions[0]
    announced = {
        step.set.name: k.SET_DESCRIPTION in attributes(message.body)
        for step in steps
        if isinstance(step, d.AddSet)
        for message in messages((step,), "IPv4")
    }
    assert {told for name, told in announced.items() if name.startswith("clients-")} == {False}
    assert {told for name, told in announced.items() if not name.startswith("clients-")} == {True}


DAMAGE = (
    ("delete", "table", "{ip}", "clusterip"),
    ("add", "table", "{ip}", "clusterip", "{{", "flags", "dormant;", "}}"),
    ("flush", "chain", "{ip}", "clusterip", "services"),
    ("flush", "map", "{ip}", "clusterip", "service-ips"),
    ("delete", "element", "{ip}", "clusterip", "endpoints", "{{", "{vip}", ".", "tcp", ".", "80", ".", "0", "}}"),
    ("add", "element", "{ip}", "clusterip", "cluster-ips", "{{", "{pod}", "}}"),
    ("add", "rule", "{ip}", "clusterip", "nat-prerouting", "accept"),
    ("insert", "rule", "{ip}", "clusterip", "pick-4", "drop"),
    ("add", "chain", "{ip}", "clusterip", "stranger"),
    ("chain", "{ip}", "clusterip", "filter-input", "{{", "policy", "drop;", "}}"),
    ("add", "set", "{ip}", "clusterip", "stranger", "{{", "type", "mark;", "}}"),
    ("-f", "-"),
)


@pytest.mark.parametrize("words", DAMAGE, ids=lambda w: " ".join(w[:2]))
@POOLS
async def test_damage_is_seen_and_healed(pool: Pool, words: tuple[str, ...]) -> None:
    config, entries = everything(pool)
    book = Book.of(compile_entry(e, config) for e in entries)
    facts = {"ip": ip(pool), "vip": pool.cluster_ips[0], "pod": pool.pods[0]}
    # Another endpoint in one's place: only its value differs.
    vip, table = f"{pool.cluster_ips[0]} . tcp . 80 . 0", f"{ip(pool)} clusterip endpoints"
    swap = f"delete element {table} {{ {vip} }}\nadd element {table} {{ {vip} : {pool.pods[1]} . 80 }}\n"
    with namespace() as netns, contextlib.closing(Rules(pool.family, netns=netns)) as rules:
        await rules.load(d.load(book, d.Installed(), config))
        epoch = await rules.look()
        assert (compare(await rules.read(), book, config), await rules.look()) == ((), epoch)
        nft(netns, *(w.format(**facts) for w in words), stdin=swap)
        assert await rules.look() > epoch
        assert len(compare(await rules.read(), book, config)) >= 1
        shape = await rules.glance()
        # Where the kernel counts elements, a glance misses only one that was put in another's place.
        if shape.counted and words[0] != "-f":
            assert len(compare_shape(shape, book, config)) >= 1
        await rules.load(d.load(book, await rules.observe(), config))
        assert compare(await rules.read(), book, config) == ()


@POOLS
async def test_a_table_of_another_make_is_replaced(pool: Pool) -> None:
    config, entries = everything(pool)
    book = Book.of(compile_entry(e, config) for e in entries)
    with namespace() as netns, contextlib.closing(Rules(pool.family, netns=netns)) as rules:
        old = f"""table {ip(pool)} clusterip {{
          set service-ips {{ type mark; }}
          chain nat-prerouting {{ type filter hook prerouting priority 7; jump services; }}
          chain services {{ meta mark @service-ips drop; }}
        }}"""
        nft(netns, "-f", "-", stdin=old)
        await rules.load(d.load(book, await rules.observe(), config))
        assert compare(await rules.read(), book, config) == ()


@POOLS
async def test_the_longest_names_that_kubernetes_allows_fit(pool: Pool) -> None:
    """Of namespace, Service and port 63 characters each; an IPv6 address may have 39."""
    config, entries = everything(pool)
    prefix = "2001:db8:1111:2222:3333:4444:5555:666" if pool is V6 else "203.0.113.20"
    backends = tuple(Backend(f"{prefix}{n}", 65535, local=True) for n in range(3))
    named = PortName("n" * 63, "s" * 63, "p" * 63)
    entry = replace(
        entries[0], name=named, protocol="SCTP", affinity_seconds=86399, cluster=backends, local=backends[:2]
    )
    book = Book.of([compile_entry(entry, config)])
    with namespace() as netns, contextlib.closing(Rules(pool.family, netns=netns)) as rules:
        await rules.apply(d.load(book, await rules.observe(), config))
        assert meaning(listed(netns, pool)) == meaning(d.table(book, config))
        assert {s.name for s in book.sets} <= listed(netns, pool).sets.keys()
        assert len({s.name for s in book.sets}) == len(backends)


async def test_others_writes_are_told_from_ours() -> None:
    config, entries = everything(V4)
    book = Book.of(compile_entry(e, config) for e in entries)
    with namespace() as netns, contextlib.closing(Rules("IPv4", netns=netns)) as rules:
        epoch = await rules.look()
        await rules.load(d.load(book, d.Installed(), config))
        assert await rules.look() == epoch
        nft(netns, "add", "table", "inet", "somebody")
        await rules.load(d.load(book, await rules.observe(), config))  # between our look and our write
        assert await rules.look() > epoch
        assert "table inet somebody" in nft(netns, "list", "tables")


async def test_one_familys_writes_are_not_the_others_strangers() -> None:
    generation = Generation()
    with (
        namespace() as netns,
        contextlib.closing(Rules("IPv4", generation, netns)) as four,
        contextlib.closing(Rules("IPv6", generation, netns)) as six,
    ):
        epoch = await six.look()
        await four.load(d.load(Book(), d.Installed(), Config()))
        await six.load(d.load(Book(), d.Installed(), Config(family="IPv6")))
        assert (await four.look(), await six.look()) == (epoch, epoch)


async def test_a_refused_transaction_names_its_step_and_changes_nothing() -> None:
    config, entries = everything(V4)
    book = Book.of(compile_entry(e, config) for e in entries)
    with namespace() as netns, contextlib.closing(Rules("IPv4", netns=netns)) as rules:
        await rules.load(d.load(book, d.Installed(), config))
        before = nft(netns, "list", "ruleset")
        steps = (d.DeleteElements("service-ips", (("10.96.0.10", "TCP", 80),)), d.DeleteChain("nowhere"))
        with pytest.raises(TransactionRefused) as caught:
            await rules.apply(d.Delta((steps,)))
        assert "delete chain nowhere" in caught.value.message
        assert (caught.value.errno, caught.value.index) == (errno.ENOENT, 1)
        assert nft(netns, "list", "ruleset") == before


async def test_a_full_map_is_refused_and_made_larger_by_a_load() -> None:
    config = Config(detector=FromCIDR("10.244.0.0/16"))
    name = PortName("default", "web", "http")
    entry = Entry(name, "IPv4", "TCP", 80, "10.96.0.10", cluster=(Backend("10.244.1.2", 80),), has_backends=True)
    many = replace(entry, cluster=tuple(Backend(f"10.244.{n // 250}.{n % 250 + 2}", 80) for n in range(1500)))
    with namespace() as netns, contextlib.closing(Rules("IPv4", netns=netns)) as rules:
        few_piece, many_piece = compile_entry(entry, config), compile_entry(many, config)
        book = Book.of([few_piece])
        await rules.load(d.load(book, d.Installed(), config))
        installed = await rules.observe()
        changes = [Change(few_piece, many_piece)]
        shift = book.shift(changes)
        assert d.overflows(shift, book, installed.sets)
        with pytest.raises(TransactionRefused) as caught:
            await rules.apply(d.delta(shift))
        assert caught.value.errno == errno.ENFILE
        assert "elements of endpoints" in caught.value.message
        book = Book.of([many_piece])
        await rules.load(d.load(book, await rules.observe(), config))
        assert (await rules.observe()).sets["endpoints"] == 8192
        assert compare(await rules.read(), book, config) == ()


async def test_clean_up_leaves_what_is_others() -> None:
    with namespace() as netns:
        nft(netns, "-f", "-", stdin="add table ip clusterip\nadd chain ip clusterip a\nadd table ip other\n")
        assert await clean_up("IPv4", netns=netns)
        assert not await clean_up("IPv4", netns=netns)
        assert not await clean_up("IPv6", netns=netns)
        assert nft(netns, "list", "tables") == "table ip other\n"
