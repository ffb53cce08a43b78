"""Deltas: what they leave is what a load gives, and no step of them opens a gap. Held by a kernel of its own."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.ipvs.strategies_ipvs import configs
from tests.dataplane.strategies import V4, V6, Pool, hosts, tables

from clusterip.dataplane.ipvs import At, Book, Config, Present, RealServer, Seen, compile_entry, delta, sets
from clusterip.dataplane.ipvs.chains import Jump, Shape, jumps, rewrite
from clusterip.dataplane.ipvs.delta import Addresses, Command, Delta, Members, Rules, Servers, Verb
from clusterip.dataplane.ipvs.sets import Member
from clusterip.services.table import Backend, Entry, PortName
from clusterip.services.tracker import Change


@dataclass
class Kernel:
    """As strict as the real one: what is there cannot be added, and what is not cannot be deleted."""

    config: Config
    servers: dict[At, Present] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    members: set[Member] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    device: bool = False
    rules: str = ""

    def seen(self) -> Seen:
        installed = frozenset(jumps()) if self.rules else frozenset[Jump]()
        return Seen(
            dict(self.servers),
            frozenset(self.names),
            frozenset(self.members),
            frozenset(self.addresses),
            self.device,
            jumps=installed,
        )

    def apply(self, change: Delta) -> None:
        for step in change.steps:
            match step:
                case Members(text):
                    for line in text.splitlines():
                        self.line(line)
                        self.check()
                case Servers(commands):
                    for command in commands:
                        self.command(command)
                        self.check()
                case Rules(text):
                    self.rules = text
                case Addresses(bind, unbind, device):
                    self.device = self.device or device
                    assert self.device
                    assert not self.addresses & set(bind)
                    assert self.addresses >= set(unbind)
                    self.addresses = (self.addresses | set(bind)) - set(unbind)
                    self.check()

    def line(self, line: str) -> None:
        verb, name, rest = line.split(" ", 2)
        kinds = {sets.name(kind, self.config): kind for kind in sets.SETS}
        if verb == "create":
            assert name not in self.names
            self.names.add(name)
            return
        member = Member(kinds[name], rest)
        assert name in self.names
        assert (member in self.members) == (verb == "del")
        self.members ^= {member}

    def command(self, c: Command) -> None:
        now = self.servers.get(c.at)
        match c.verb:
            case Verb.ADD_SERVER:
                assert now is None
                self.servers[c.at] = Present(c.at, c.scheduler, c.persistent)
            case Verb.EDIT_SERVER:
                assert now is not None
                self.servers[c.at] = replace(now, scheduler=c.scheduler, persistent=c.persistent)
            case Verb.DELETE_SERVER:
                del self.servers[c.at]
            case _:
                assert now is not None
                assert c.real is not None
                assert (c.real in now.weights) == (c.verb is not Verb.ADD_REAL)
                weights = {**now.weights, c.real: c.weight}
                if c.verb is Verb.DELETE_REAL:
                    del weights[c.real]
                self.servers[c.at] = replace(now, weights=weights)

    def check(self) -> None:
        """Whatever a bound address lets in meets a virtual server; the rest is refused."""
        for address in self.addresses:
            assert Member(sets.ADDRESSES, address) in self.members
        for kind in (sets.CLUSTER_IP, sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL, sets.BALANCER):
            for member in self.members:
                if member.kind == kind:
                    address, _, port = member.text.partition(",")
                    protocol, _, number = port.partition(":")
                    assert At(protocol.upper(), address, int(number)) in self.servers  # type: ignore[arg-type]


class Served(Kernel):
    """Holds besides, after each step, that virtual servers of before and after lead to their backends."""

    def __init__(self, config: Config, before: Book, after: Book) -> None:
        super().__init__(config)
        self.before = {s.at: set(s.reals) for s in before.servers}
        self.after = {s.at: set(s.reals) for s in after.servers}
        self.watching = False

    def check(self) -> None:
        super().check()
        for at in self.before.keys() & self.after.keys() if self.watching else ():
            serving = {real for real, weight in self.servers[at].weights.items() if weight}
            assert serving <= self.before[at] | self.after[at]
            assert serving or not self.before[at] or not self.after[at]


def changes(before: Book, after: Book) -> list[Change]:  # type: ignore[type-arg]
    keys = sorted(before.pieces.keys() | after.pieces.keys())
    found = (Change(before.pieces.get(k), after.pieces.get(k)) for k in keys)
    return [c for c in found if c.before != c.after]


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_a_delta_leaves_what_a_load_gives_and_no_step_opens_a_gap(pool: Pool, data: st.DataObject) -> None:
    config = data.draw(configs(pool, data.draw(hosts(pool))))
    first, then = (Book.of(compile_entry(e, config) for e in data.draw(tables(pool)).values()) for _ in range(2))
    kernel = Served(config, first, then)
    kernel.apply(delta.load(first, kernel.seen(), config))
    kernel.watching = True
    book = Book.of(first.pieces.values())
    listed = changes(first, then)
    change = delta.delta(book.shift(listed), config)
    assert bool(change.steps) <= bool(listed)
    kernel.apply(change)
    book.write(listed)
    book.retire(change.retired)
    assert_holds(kernel, then, config)
    assert (book.members, book.addresses, book.drops, book.pieces) == (
        then.members,
        then.addresses,
        then.drops,
        then.pieces,
    )
    assert book.kinds == Counter(member.kind for member in then.members)
    idle = [(at, real) for at, reals in book.retired.items() for real in reals]
    kernel.apply(delta.sweep(idle))
    assert all(set(p.weights) == set(kernel.after[p.at]) for p in kernel.servers.values())


def assert_holds(kernel: Kernel, book: Book, config: Config) -> None:
    serving = {at: {r for r, weight in p.weights.items() if weight} for at, p in kernel.servers.items()}
    assert serving == {s.at: set(s.reals) for s in book.servers}
    assert {p.at: p.parameters for p in kernel.servers.values()} == {
        s.at: (s.scheduler, s.persistent) for s in book.servers
    }
    assert kernel.members == set(book.members)
    assert kernel.addresses == set(book.addresses)
    assert _chains(kernel.rules) == _chains(rewrite(book.shape, config, jumps()))


def _chains(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("-I")]


@given(data=st.data())
def test_a_load_heals_whatever_is_there(data: st.DataObject) -> None:
    config = data.draw(configs(V4, data.draw(hosts(V4))))
    found, wanted = (Book.of(compile_entry(e, config) for e in data.draw(tables(V4)).values()) for _ in range(2))
    kernel = Kernel(config)
    kernel.apply(delta.load(found, kernel.seen(), config))
    kernel.apply(delta.load(wanted, kernel.seen(), config))
    assert_holds(kernel, wanted, config)


CONFIG = Config()
OLD, NEW = Backend("10.244.1.2", 80), Backend("10.244.1.3", 80)
WEB = PortName("shop", "web", "")
PLACE = At("TCP", "10.96.0.10", 80)


def entry(*backends: Backend, protocol: str = "TCP") -> Entry:
    return Entry(WEB, "IPv4", protocol, 80, "10.96.0.10", cluster=backends, has_backends=bool(backends))  # type: ignore[arg-type]


def commands(before: Entry, after: Entry, book: Book | None = None) -> list[Command]:
    piece, next_piece = compile_entry(before, CONFIG), compile_entry(after, CONFIG)
    book = book or Book.of([piece])
    change = delta.delta(book.shift([Change(piece, next_piece)]), CONFIG)
    book.write([Change(piece, next_piece)])
    book.retire(change.retired)
    return [c for step in change.steps if isinstance(step, Servers) for c in step.commands]


def test_a_tcp_backend_that_leaves_is_emptied_and_one_of_udp_deleted() -> None:
    real = RealServer("10.244.1.2", 80)
    assert commands(entry(OLD, NEW), entry(NEW)) == [Command(Verb.EDIT_REAL, PLACE, real=real, weight=0)]
    udp = commands(entry(OLD, NEW, protocol="UDP"), entry(NEW, protocol="UDP"))
    assert udp == [Command(Verb.DELETE_REAL, PLACE._replace(protocol="UDP"), real=real)]


def test_a_backend_that_comes_back_before_it_is_empty_takes_connections_again() -> None:
    book = Book.of([compile_entry(entry(OLD, NEW), CONFIG)])
    commands(entry(OLD, NEW), entry(NEW), book)
    assert book.retired == {PLACE: {RealServer("10.244.1.2", 80)}}
    back = commands(entry(NEW), entry(OLD, NEW), book)
    assert back == [Command(Verb.EDIT_REAL, PLACE, real=RealServer("10.244.1.2", 80))]
    assert book.retired == {}


def test_virtual_servers_in_excluded_ranges_stay() -> None:
    others = At("TCP", "203.0.113.9", 80)
    stale = At("TCP", "10.96.0.99", 80)
    seen = Seen({at: Present(at, "rr") for at in (others, stale)})
    change = delta.load(Book(), seen, Config(exclude_cidrs=("203.0.113.0/24",)))
    deleted = [c.at for step in change.steps if isinstance(step, Servers) for c in step.commands]
    assert deleted == [stale]


def test_an_address_that_two_ports_share_stays_while_one_needs_it() -> None:
    dns = [
        Entry(PortName("kube-system", "dns", "t"), "IPv4", "TCP", 53, "10.96.0.2"),
        Entry(PortName("kube-system", "dns", "u"), "IPv4", "UDP", 53, "10.96.0.2"),
    ]
    pieces = [compile_entry(e, CONFIG) for e in dns]
    book = Book.of(pieces)
    one = book.shift([Change(pieces[0], None)])
    assert one.unbound == frozenset()
    both = book.shift([Change(p, None) for p in pieces])
    assert both.unbound == {"10.96.0.2"}
    assert both.shape == Shape()


def test_a_change_of_nothing_is_nothing() -> None:
    piece = compile_entry(entry(OLD), CONFIG)
    assert delta.delta(Book.of([piece]).shift([Change(piece, piece)]), CONFIG).steps == ()


@given(data=st.data())
def test_a_clean_up_leaves_nothing_but_what_is_others(data: st.DataObject) -> None:
    config = data.draw(configs(V4, data.draw(hosts(V4))))
    book = Book.of(compile_entry(e, config) for e in data.draw(tables(V4)).values())
    kernel = Kernel(config)
    kernel.apply(delta.load(book, kernel.seen(), config))
    others = At("TCP", "203.0.113.9", 8443)
    kernel.servers[others] = Present(others, "wlc")
    change = delta.clean_up(kernel.seen(), config)
    deleted = [c for step in change.steps if isinstance(step, Servers) for c in step.commands]
    for command in deleted:
        kernel.command(command)
    assert set(kernel.servers) == {others}
    unbound = {a for step in change.steps if isinstance(step, Addresses) for a in step.unbind}
    destroyed = {line for step in change.steps if isinstance(step, Members) for line in step.text.splitlines()}
    assert unbound == kernel.addresses
    assert destroyed == {f"destroy {name}" for name in kernel.names}
