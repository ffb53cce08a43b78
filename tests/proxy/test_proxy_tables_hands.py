"""nftables mode: what becomes of the table under others' hands, under growth, under traffic, and after another mode."""

import asyncio
import contextlib
import re
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from tests.proxy.running import Running, running, running_tables, service, slice_of
from tests.proxy.test_proxy_packets import VIP, ask
from tests.proxy.world import FAR, OUTSIDE, POD_A, POD_B, World
from tests.waiting import until

from clusterip.proxy import leftovers

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True)
def clean(net: World) -> None:
    """Each test starts without rules and flows."""
    net.on_node("nft flush ruleset")
    with contextlib.suppress(Exception):
        net.on_node("conntrack -F")


HARM = ("nft flush ruleset", "nft delete table ip clusterip", "nft flush chain ip clusterip services",
        "nft flush map ip clusterip endpoints")  # fmt: skip


@pytest.mark.parametrize("harm", HARM)
async def test_what_others_destroy_is_back_and_theirs_stays(net: World, harm: str) -> None:
    async with running_tables(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        await asyncio.to_thread(net.on_node, harm)
        net.on_node("nft add table inet somebody", "iptables-nft -t nat -A PREROUTING -d 192.0.2.77 -j ACCEPT")
        await until(lambda: proxy.loop.status()["repairs"] >= 1 and not proxy.proxier.pending)
        assert (await ask(net, POD_A, VIP))[0] == POD_B
        ruleset = net.on_node("nft list ruleset")
        assert "table inet somebody" in ruleset
        assert "192.0.2.77" in ruleset


def mended(proxy: Running, times: int) -> bool:
    return proxy.loop.status()["repairs"] >= times and not proxy.proxier.pending


async def test_who_undoes_the_rules_again_and_again_is_named(net: World) -> None:
    async with running_tables(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        for repairs in range(1, 4):
            assert proxy.loop.status()["drift"] == [], "once or twice is an accident"
            await asyncio.to_thread(net.on_node, "nft flush map ip clusterip service-ips")
            await until(partial(mended, proxy, repairs))
        (complaint,) = proxy.loop.status()["drift"]
        assert re.search(r"undone again and again; written to nf_tables meanwhile: nft \(process \d+\)", complaint)
        assert (await ask(net, POD_A, VIP))[0] == POD_B


async def test_an_element_in_anothers_place_is_found_and_put_right(net: World) -> None:
    """No chain and no number shows it: every element is read."""
    async with running_tables(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        element = f"{VIP} . tcp . 80 . 0"
        await asyncio.to_thread(
            net.on_node,
            f"nft delete element ip clusterip endpoints {{ {element} }}",
            f"nft add element ip clusterip endpoints {{ {element} : {POD_A} . 8080 }}",
        )
        await until(lambda: proxy.loop.status()["repairs"] >= 1 and not proxy.proxier.pending)
        assert (await ask(net, OUTSIDE, VIP))[0] == POD_B
        assert proxy.loop.status()["drift"] == [], "what has been mended is no difference any more"


async def test_others_rules_are_no_drift(net: World) -> None:
    async with running_tables(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        checked = proxy.proxier.checked
        net.on_node("nft add table inet somebody")
        await until(lambda: proxy.proxier.checked > checked)
        assert proxy.loop.status()["repairs"] == 0
        assert proxy.proxier.drift == ()
        syncs = proxy.loop.status()["syncs"]
        await proxy.put(slice_of("web", POD_A))
        assert proxy.loop.status()["syncs"] == syncs + 1, "and no reason to write everything"
        assert proxy.loop.status()["failures"] == 0


def full_syncs(proxy: Running) -> float:
    (found,) = re.findall(r"sync_full_proxy_rules_duration_seconds_count\S* (\S+)", proxy.metrics.text().decode())
    return float(found)


async def test_a_full_map_is_made_larger(net: World) -> None:
    async with running_tables(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_B))
        many = [f"10.244.{n // 200 + 10}.{n % 200 + 2}" for n in range(1100)]
        full = full_syncs(proxy)
        await proxy.put(slice_of("web", *many))
        assert full_syncs(proxy) == full + 1, "and says that all was written"
        assert proxy.loop.status()["failures"] == 0
        assert "numgen random mod 1100" in net.on_node("nft list table ip clusterip")


async def test_a_changed_service_range_is_programmed(net: World) -> None:
    ranges: tuple[str, ...] = ()
    async with running_tables(net.node) as proxy:
        proxy.proxier.plane._service_cidrs = lambda: ranges
        await proxy.put(service(), slice_of("web", POD_B))
        ranges = ("10.99.0.0/24",)
        proxy.proxier.load_next()
        await until(lambda: "10.99.0.0/24 drop" in net.on_node("nft list chain ip clusterip check-cluster-ips"))


async def test_no_connection_is_lost_while_backends_change(net: World) -> None:
    """Growing and shrinking, as fast as the loop goes, while clients connect without pause."""
    async with running_tables(net.node) as proxy:
        await proxy.put(service(), slice_of("web", POD_A, POD_B, FAR))
        stop = threading.Event()
        counts: Counter[str] = Counter()
        clients = [threading.Thread(target=connect_on_and_on, args=(net, c, stop, counts)) for c in (OUTSIDE, POD_A)]
        for client in clients:
            client.start()
        try:
            sets = ((POD_A,), (POD_A, POD_B), (POD_B, FAR), (FAR,), (POD_A, POD_B, FAR))
            for number in range(100):
                await proxy.put(slice_of("web", *sets[number % len(sets)]))
        finally:
            stop.set()
            for client in clients:
                client.join()
    assert counts["lost"] == 0
    assert counts["made"] > 100


def connect_on_and_on(net: World, client: str, stop: threading.Event, counts: Counter[str]) -> None:
    while not stop.is_set():
        try:
            net.ask(client, VIP, timeout=0.9)
            counts["made"] += 1
        except OSError:
            counts["lost"] += 1


async def test_another_mode_is_taken_away_when_ours_is_complete(net: World, tmp_path: Path) -> None:
    async with running(net.node) as before:
        await before.put(service(), slice_of("web", POD_B))
    net.on_node("nft add table ip kube-proxy")
    assert "KUBE-SVC" in net.rules()
    async with running_tables(net.node) as proxy:
        await after_first_sync(net, proxy, "nftables", tmp_path)
        assert "KUBE-S" not in net.rules()
        assert "kube-proxy" not in net.on_node("nft list tables")
        await proxy.put(service(), slice_of("web", POD_A))
        assert (await ask(net, POD_A, VIP))[0] == POD_A
    async with running(net.node) as proxy:
        await after_first_sync(net, proxy, "iptables", tmp_path)
        assert "clusterip" not in net.on_node("nft list tables")
        assert "KUBE-SERVICES" in net.rules()
    async with running_tables(net.node):
        pass
    assert await leftovers.remove_all(net.node, str(tmp_path)) == ()
    assert "KUBE-S" not in net.rules()
    assert "clusterip" not in net.on_node("nft list tables")


async def after_first_sync(net: World, proxy: Running, mode: str, pins: Path) -> None:
    """`pins`: where eBPF mode would have left something."""
    async with asyncio.timeout(10):
        await proxy.loop.complete.wait()
    await leftovers.Leftovers(str(pins), netns=net.node).remove(mode, ())
