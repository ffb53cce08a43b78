"""Real rules in a namespace of their own, in both variants."""

import subprocess
from collections.abc import Iterator

import pytest
from tests.spaces import fresh

from clusterip.dataplane.iptables import Config, Counts, FromCIDR, Piece, compile_entry, delta
from clusterip.dataplane.iptables.apply import Rules, WriteWatch, clean_up, usable
from clusterip.dataplane.iptables.compare import compare, without
from clusterip.dataplane.iptables.delta import Installed
from clusterip.errors import Unavailable
from clusterip.kernel import iptables as kernel
from clusterip.kernel.iptables import RestoreRefused, VariantName
from clusterip.kernel.run import run as run_program
from clusterip.services.table import Backend, Entry, PortName
from clusterip.services.tracker import Change

pytestmark = pytest.mark.kernel

CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"))


@pytest.fixture
def netns() -> Iterator[str]:
    with fresh("ipt") as name:
        yield name


@pytest.fixture(params=["nft", "legacy"])
def variant(request: pytest.FixtureRequest) -> VariantName:
    chosen: VariantName = request.param
    return chosen


def differences(saved: str, pieces: list[Piece], config: Config) -> tuple[str, ...]:
    return compare(saved, pieces, config).differences


def run(netns: str, *argv: str) -> str:
    return subprocess.run(("ip", "netns", "exec", netns, *argv), check=True, capture_output=True, text=True).stdout


def piece(name: str, *backends: str, address: str = "10.96.0.10", node_port: int = 30080) -> Piece:
    ends = tuple(Backend(b, 8080) for b in backends)
    entry = Entry(
        PortName("default", name, "http"), "IPv4", "TCP", 80, address, node_port=node_port, cluster=ends,
        has_backends=bool(ends),
    )  # fmt: skip
    return compile_entry(entry, CONFIG)


WEB = piece("web", "10.244.1.2", "10.244.2.3", "10.244.2.4")
LESS = piece("web", "10.244.1.2")
IDLE = piece("idle", address="10.96.0.11")


async def loaded(netns: str, variant: VariantName, *pieces: Piece) -> Rules:
    programs = await usable("IPv4", netns, variant)
    assert programs is not None
    rules = Rules(programs)
    await rules.apply(delta.load(pieces, Installed(), CONFIG, rules.variant))
    return rules


async def test_what_we_load_is_what_we_read_back(netns: str, variant: VariantName) -> None:
    rules = await loaded(netns, variant, WEB, IDLE)
    assert differences((await rules.observe()).text, [WEB, IDLE], CONFIG) == ()


async def test_a_delta_gives_what_a_load_would(netns: str, variant: VariantName) -> None:
    rules = await loaded(netns, variant, WEB)
    await rules.apply(delta.delta([Change(WEB, LESS), Change(None, IDLE)], CONFIG))
    assert differences((await rules.observe()).text, [LESS, IDLE], CONFIG) == ()
    await rules.apply(delta.delta([Change(LESS, None)], CONFIG))
    assert differences((await rules.observe()).text, [IDLE], CONFIG) == ()


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (("-t", "nat", "-F"), "nat/PREROUTING: a rule of ours is gone"),
        (("-t", "nat", "-F", "KUBE-SERVICES"), "nat/KUBE-SERVICES: its rules are not ours"),
        (("-t", "nat", "-I", "KUBE-SERVICES", "-j", "RETURN"), "nat/KUBE-SERVICES: its rules are not ours"),
        (("-t", "nat", "-D", "KUBE-POSTROUTING", "1"), "nat/KUBE-POSTROUTING: its rules are not ours"),
        (("-t", "nat", "-N", "KUBE-SVC-ABC"), "nat/KUBE-SVC-ABC: nobody asked for this chain"),
        (("-t", "mangle", "-X", "KUBE-PROXY-CANARY"), "mangle/KUBE-PROXY-CANARY: the chain is gone"),
        (("-D", "FORWARD", "1"), "filter/FORWARD: a rule of ours is gone"),
    ],
)
async def test_what_others_do_to_our_rules_is_seen_and_repaired(
    netns: str, variant: VariantName, argv: tuple[str, ...], found: str
) -> None:
    rules = await loaded(netns, variant, WEB)
    epoch = (await rules.observe()).epoch
    run(netns, f"iptables-{variant}", *argv)
    assert await rules.watch.look() > epoch, "seen without reading the rules"
    seen = await rules.observe()
    assert any(found in line for line in differences(seen.text, [WEB], CONFIG))
    await rules.apply(delta.load([WEB], delta.installed(seen.text, CONFIG), CONFIG, rules.variant))
    assert differences((await rules.observe()).text, [WEB], CONFIG) == ()


async def test_a_load_writes_only_what_is_not_there(netns: str, variant: VariantName) -> None:
    rules = await loaded(netns, variant, WEB, IDLE)
    run(netns, f"iptables-{variant}", "-t", "nat", "-F", WEB.chains[0].name)
    seen = await rules.observe()
    everything = delta.load([WEB, IDLE], delta.installed(seen.text, CONFIG), CONFIG, rules.variant)
    needed = without(everything, compare(seen.text, [WEB, IDLE], CONFIG))
    assert needed.text == f"*nat\n:{WEB.chains[0].name} - [0:0]\n{WEB.chains[0].rules}COMMIT\n"
    assert needed.written == Counts(nat=2)
    await rules.apply(needed)
    assert differences((await rules.observe()).text, [WEB, IDLE], CONFIG) == ()


async def test_rules_of_kubelet_in_the_chain_we_share_stay(netns: str, variant: VariantName) -> None:
    iptables = f"iptables-{variant}"
    run(netns, iptables, "-N", "KUBE-FIREWALL")
    run(netns, iptables, "-A", "KUBE-FIREWALL", "-m", "mark", "--mark", "0x8000/0x8000", "-j", "DROP")
    programs = await usable("IPv4", netns, variant)
    assert programs is not None
    rules = Rules(programs)
    for _ in range(2):
        seen = await rules.observe()
        everything = delta.load([WEB], delta.installed(seen.text, CONFIG), CONFIG, rules.variant)
        await rules.apply(without(everything, compare(seen.text, [WEB], CONFIG)))
    assert differences((await rules.observe()).text, [WEB], CONFIG) == ()
    kept = run(netns, iptables, "-S", "KUBE-FIREWALL").splitlines()
    assert len(kept) == 3
    assert any("0x8000" in rule for rule in kept)


async def test_rules_of_others_are_not_our_business(netns: str, variant: VariantName) -> None:
    rules = await loaded(netns, variant, WEB)
    run(netns, f"iptables-{variant}", "-t", "nat", "-N", "CNI-HOSTPORT")
    run(netns, f"iptables-{variant}", "-I", "FORWARD", "-j", "ACCEPT")
    seen = await rules.observe()
    assert differences(seen.text, [WEB], CONFIG) == ()
    await rules.apply(delta.load([WEB], delta.installed(seen.text, CONFIG), CONFIG, rules.variant))
    assert "-A FORWARD -j ACCEPT" in run(netns, f"iptables-{variant}", "-S", "FORWARD")


async def test_our_own_deltas_do_not_look_like_anothers(netns: str, variant: VariantName) -> None:
    rules = await loaded(netns, variant, WEB)
    epoch = (await rules.observe()).epoch
    await rules.apply(delta.delta([Change(WEB, LESS)], CONFIG))
    await rules.apply(delta.delta([Change(None, IDLE)], CONFIG))
    assert await rules.watch.look() == epoch


async def test_the_order_of_services_in_a_shared_chain_means_nothing(netns: str, variant: VariantName) -> None:
    other = piece("other", "10.244.1.3", address="10.96.0.11", node_port=30081)
    for first, second in ((WEB, other), (other, WEB)):
        rules = await loaded(netns, variant, first)
        await rules.apply(delta.delta([Change(None, second)], CONFIG))
        assert differences((await rules.observe()).text, [WEB, other], CONFIG) == ()


async def test_a_write_of_anothers_in_the_middle_of_ours_is_seen(netns: str) -> None:
    rules = await loaded(netns, "nft", WEB)
    epoch = await rules.watch.look()
    run(netns, "iptables-nft", "-N", "FOREIGN")
    await rules.watch.wrote(blocks=0)
    assert await rules.watch.look() > epoch


async def test_a_rule_behind_the_last_one_is_not_where_it_belongs(netns: str, variant: VariantName) -> None:
    rules = await loaded(netns, variant, WEB)
    text = f"*nat\n-D KUBE-SERVICES {WEB.nat[0].spec}\n-A KUBE-SERVICES {WEB.nat[0].spec}\nCOMMIT\n"
    await kernel.restore(rules.programs, text)
    assert differences((await rules.observe()).text, [WEB], CONFIG) == ("nat/KUBE-SERVICES: its rules are not ours",)


async def test_both_families_share_one_watch_of_the_nft_variant(netns: str) -> None:
    rules = await loaded(netns, "nft", WEB)
    six = await usable("IPv6", netns, "nft")
    assert six is not None
    other = Rules(six, rules.watch)
    epoch = await rules.watch.look()
    await other.apply(delta.Delta("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n"))
    assert await rules.watch.look() == epoch
    assert await WriteWatch(six).look() == 1, "who has not looked yet knows nothing"


async def test_a_refused_line_is_quoted(netns: str, variant: VariantName) -> None:
    rules = await loaded(netns, variant, WEB)
    text = "*nat\n:KUBE-X - [0:0]\n-A KUBE-X -j NOWHERE\nCOMMIT\n"
    with pytest.raises(RestoreRefused, match="'-A KUBE-X -j NOWHERE'") as caught:
        await rules.apply(delta.Delta(text))
    assert caught.value.line == 3
    assert differences((await rules.observe()).text, [WEB], CONFIG) == (), "nothing of the block is in force"


async def test_cleaning_up_leaves_what_is_others_byte_for_byte(netns: str) -> None:
    for name in ("iptables-nft", "iptables-legacy"):
        run(netns, name, "-t", "nat", "-N", "CNI-HOSTPORT")
        run(netns, name, "-t", "nat", "-A", "PREROUTING", "-j", "CNI-HOSTPORT")
        for table in ("mangle", "filter"):
            run(netns, name, "-t", table, "-A", "FORWARD", "-s", "203.0.113.9", "-j", "DROP")
    before = state(netns)
    for chosen in ("nft", "legacy"):
        variant: VariantName = "nft" if chosen == "nft" else "legacy"
        await loaded(netns, variant, WEB, IDLE)
    assert state(netns) != before
    assert await clean_up(CONFIG, netns) == ()
    after = [line for line in state(netns) if "KUBE-FIREWALL" not in line and "block incoming" not in line]
    assert after == before
    assert await clean_up(CONFIG, netns) == (), "twice is once"


async def test_what_others_still_refer_to_is_named_and_the_rest_goes(netns: str, variant: VariantName) -> None:
    iptables = f"iptables-{variant}"
    await loaded(netns, variant, WEB, IDLE)
    run(netns, iptables, "-t", "nat", "-N", "CNI-HOSTPORT")
    run(netns, iptables, "-t", "nat", "-A", "CNI-HOSTPORT", "-j", "KUBE-MARK-MASQ")
    [error] = await clean_up(CONFIG, netns)
    assert "KUBE-MARK-MASQ" in error.message
    left = [line for line in run(netns, f"{iptables}-save").splitlines() if "KUBE-" in line and "FIREWALL" not in line]
    assert left == [":KUBE-MARK-MASQ - [0:0]", "-A CNI-HOSTPORT -j KUBE-MARK-MASQ"]


def state(netns: str) -> list[str]:
    saved = run(netns, "iptables-nft-save") + run(netns, "iptables-legacy-save")
    return [line for line in saved.splitlines() if not line.startswith("#")]


async def test_ipv6_that_is_switched_off_is_not_usable(netns: str) -> None:
    assert await usable("IPv6", netns)
    run(netns, "sysctl", "-w", "net.ipv6.conf.all.disable_ipv6=1")
    assert await usable("IPv6", netns) is None


async def test_addresses_of_the_node_are_found(netns: str) -> None:
    run(netns, "ip", "link", "set", "lo", "up")
    run(netns, "ip", "addr", "add", "192.168.50.11/24", "dev", "lo")
    assert await kernel.local_addresses("IPv4", netns) == ("127.0.0.1", "192.168.50.11")
    assert await kernel.local_addresses("IPv6", netns) == ("::1",)


async def test_plain_programs_say_their_variant_and_version() -> None:
    programs = await kernel.detect("IPv4")
    assert programs.variant in ("nft", "legacy")
    assert programs.version > kernel.OLDEST


async def test_a_missing_program_is_said_by_name() -> None:
    with pytest.raises(Unavailable, match="no such program"):
        await run_program(("iptables-of-the-future", "--version"))
