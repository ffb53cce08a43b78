"""The new dataplane is whole and proved before the old one goes; what fails leaves the old one as it was."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import pytest
from tests.proxy.running import TABLES, Running, node_object, running, service, slice_of

from clusterip.dataplane.nftables.apply import Rules
from clusterip.dataplane.nftables.delta import Delta
from clusterip.errors import ClusterIPError
from clusterip.kernel.run import run
from clusterip.model.resources import ENDPOINT_SLICES, NODES
from clusterip.proxy.handover import NotProved, Target
from clusterip.proxy.leftovers import Leftovers
from clusterip.proxy.parts import FamilyParts
from clusterip.proxy.proxier import Proxier
from clusterip.proxy.service_health import ServiceHealth
from clusterip.proxy.tables import TablePlane

pytestmark = pytest.mark.kernel


class Others(Leftovers):
    """Notes what was there when it was called to take away."""

    def __init__(self, netns: str, directory: str) -> None:
        super().__init__(directory, netns=netns)
        self.seen: list[tuple[str, str, str]] = []  # mode in force, iptables' rules, nftables' elements

    async def remove(self, mode: str, *given: object) -> None:
        chains = (await run(("iptables-nft-save",), netns=self._netns)).stdout.decode()
        self.seen.append((mode, chains, await tables(self._netns)))
        await super().remove(mode, ())


async def tables(netns: str) -> str:
    return (await run(("nft", "list", "table", "ip", "clusterip"), netns=netns, check=False)).stdout.decode()


class Damaged(Rules):
    """After each load, `times` times, somebody takes an element away."""

    def __init__(self, netns: str, times: int) -> None:
        super().__init__("IPv4", netns=netns)
        self.times = times
        self._netns = netns

    async def load(self, load: Delta) -> None:
        await super().load(load)
        if self.times:
            self.times -= 1
            await run(("nft", "flush", "map", "ip", "clusterip", "service-ips"), netns=self._netns)


class Slow(Rules):
    """While it loads, the API changes."""

    def __init__(self, netns: str, meanwhile: Callable[[], object]) -> None:
        super().__init__("IPv4", netns=netns)
        self._meanwhile: Callable[[], object] | None = meanwhile

    async def load(self, load: Delta) -> None:
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            done = meanwhile()
            assert asyncio.iscoroutine(done)
            await done
        await super().load(load)


async def told(proxy: Running) -> None:
    """The proxy's mirror has what the API server has."""
    async with asyncio.timeout(10):
        while int(proxy.mirror.revision) < proxy.server.revision:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def target(proxy: Running, rules: Rules, cidrs: Sequence[str] = TABLES.service_cidrs) -> Target:
    async def nobody(*_: object) -> None:
        pass

    async def addresses() -> tuple[str, ...]:
        return ("192.168.50.11",)

    proxier = Proxier(TablePlane(TABLES, rules, addresses, lambda: tuple(cidrs), 0.3))
    health = ServiceHealth("IPv4", lambda: proxy.health.healthy(time.monotonic()), nobody)
    return Target("nftables", (FamilyParts(proxier, health, addresses),), 0.0, 0.3)


async def test_the_old_dataplane_goes_when_the_new_one_is_whole_and_both_have_followed_the_api(
    netns: str, tmp_path: object
) -> None:
    others = Others(netns, f"{tmp_path}/bpf")
    async with running(netns, variant="nft", others=others) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))

        async def meanwhile() -> None:
            await proxy.server.put(ENDPOINT_SLICES, slice_of("web", "10.244.1.3"))
            await told(proxy)

        others.seen.clear()
        with contextlib.closing(Slow(netns, meanwhile)) as rules:
            await proxy.loop.move(target(proxy, rules))
            mode, chains, elements = others.seen[0]
            assert mode == "nftables"
            assert "10.96.0.10 . tcp . 80" in elements
            assert "10.244.1.3 . 8080" in elements
            assert "--to-destination 10.244.1.3:8080" in chains
            assert "10.244.1.2" not in chains + elements
            status = proxy.loop.status()
            assert (status["mode"], status["change"]["phase"], status["left"]) == ("nftables", "done", [])
            assert set(status["change"]["seconds"]) == {"loading", "verifying", "withdrawing"}
            assert "KUBE-SERVICES" not in (await run(("iptables-nft-save",), netns=netns)).stdout.decode()
            metrics = proxy.metrics.text().decode()
            assert "sync_proxy_rules_nftables_sync_failures_total" in metrics
            assert "iptables_total" not in metrics
            # The loop goes on in the new mode.
            await proxy.server.put(ENDPOINT_SLICES, slice_of("web", "10.244.1.4"))
            async with asyncio.timeout(10):
                while "10.244.1.4 . 8080" not in await tables(netns):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def test_what_all_rules_rest_on_may_change_meanwhile(netns: str, tmp_path: object) -> None:
    ranges = ["10.96.0.0/16"]
    async with running(netns, variant="nft", others=Others(netns, f"{tmp_path}/bpf")) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))

        async def meanwhile() -> None:
            ranges.append("10.99.0.0/24")
            zone = {"topology.kubernetes.io/zone": "b"}
            await proxy.server.put(NODES, node_object(**zone))
            await told(proxy)

        with contextlib.closing(Slow(netns, meanwhile)) as rules:
            await proxy.loop.move(target(proxy, rules, ranges))
            assert "10.99.0.0/24" in await tables(netns)


async def test_what_is_not_as_it_was_written_does_not_take_over(netns: str, tmp_path: object) -> None:
    others = Others(netns, f"{tmp_path}/bpf")
    async with running(netns, variant="nft", others=others) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        before = (await run(("iptables-nft-save",), netns=netns)).stdout.decode().count("-A ")
        with (
            contextlib.closing(Damaged(netns, times=2)) as rules,
            pytest.raises(NotProved, match="read back otherwise"),
        ):
            await proxy.loop.move(target(proxy, rules))
        status = proxy.loop.status()
        assert (status["mode"], status["change"]["phase"]) == ("iptables", "failed")
        assert "read back otherwise" in status["change"]["error"]
        assert await tables(netns) == ""
        assert (await run(("iptables-nft-save",), netns=netns)).stdout.decode().count("-A ") == before
        assert proxy.health.healthy(time.monotonic())
        await proxy.put(slice_of("web", "10.244.1.3"))
        assert "10.244.1.3:8080" in (await run(("iptables-nft-save",), netns=netns)).stdout.decode()


async def test_damage_that_others_do_meanwhile_is_mended_once(netns: str, tmp_path: object) -> None:
    async with running(netns, variant="nft", others=Others(netns, f"{tmp_path}/bpf")) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        with contextlib.closing(Damaged(netns, times=1)) as rules:
            await proxy.loop.move(target(proxy, rules))
            assert "10.96.0.10 . tcp . 80" in await tables(netns)


async def test_what_the_kernel_refuses_is_told_and_the_old_mode_goes_on(netns: str, tmp_path: object) -> None:
    class Refused(Rules):
        async def load(self, load: Delta) -> None:
            raise ClusterIPError("nf_tables: no memory")

    async with running(netns, variant="nft", others=Others(netns, f"{tmp_path}/bpf")) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        with (
            contextlib.closing(Refused("IPv4", netns=netns)) as rules,
            pytest.raises(ClusterIPError, match="no memory"),
        ):
            await proxy.loop.move(target(proxy, rules))
        await proxy.put(slice_of("web", "10.244.1.3"))
        assert "10.244.1.3:8080" in (await run(("iptables-nft-save",), netns=netns)).stdout.decode()
