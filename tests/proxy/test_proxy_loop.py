"""The loop from API objects to the kernel, and back to what it tells of itself."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from tests.client.fake_apiserver import FakeApiServer
from tests.proxy.running import Running, node_object, running, service, slice_of
from tests.waiting import until

from clusterip.dataplane.iptables import Counts, Delta
from clusterip.dataplane.iptables.apply import Observed, Rules
from clusterip.kernel import iptables as kernel
from clusterip.kernel.iptables import RestoreRefused, VariantName
from clusterip.kernel.run import run
from clusterip.model.resources import ENDPOINT_SLICES, NODES, SERVICES, Resource
from clusterip.model.status import ApiError, Object
from clusterip.proxy import chains
from clusterip.proxy.node import RangeChanged
from clusterip.proxy.parts import Settings

pytestmark = pytest.mark.kernel


async def saved(proxy: Running) -> str:
    return await kernel.save(proxy.proxier.plane.rules.programs)


async def test_an_empty_cluster_gets_the_base_rules(netns: str) -> None:
    async with running(netns) as proxy:
        await until(lambda: proxy.loop.status()["syncs"] > 0)
        assert proxy.proxier.plane.total == kernel_counts(await saved(proxy))
        assert (proxy.proxier.plane.total.nat, proxy.proxier.plane.total.filter) == (5, 4)


def kernel_counts(text: str) -> Counts:
    """As kube-proxy counts: rules in chains of ours."""
    counts, table = {"nat": 0, "filter": 0}, ""
    for line in text.splitlines():
        table = line[1:] if line.startswith("*") else table
        if line.startswith("-A KUBE-") and table in counts:
            counts[table] += 1
    return Counts(**counts)


@pytest.mark.parametrize("services", [1, 3])
async def test_the_rules_are_as_many_as_kube_proxys(netns: str, services: int) -> None:
    async with running(netns) as proxy:
        for i in range(services):
            await proxy.put(service(f"web{i}", f"10.96.0.{10 + i}"), slice_of(f"web{i}", "10.244.1.2", "10.244.2.2"))
        total = proxy.proxier.plane.total
        assert (total.nat, total.filter) == (5 + 8 * services, 4)
        assert total == kernel_counts(await saved(proxy))


class WithoutSlices(FakeApiServer):
    """Lists everything but EndpointSlices, until told."""

    halted = True

    def _list(self, request: web.Request, resource: Resource, namespace: str) -> Object:
        if resource is ENDPOINT_SLICES and self.halted:
            raise ApiError(503, "ServiceUnavailable", "not yet")
        return super()._list(request, resource, namespace)


async def test_nothing_is_written_or_removed_before_all_lists_are_complete(netns: str) -> None:
    async with running(netns) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        before = (await saved(proxy)).splitlines()
    server = WithoutSlices()
    async with running(netns, server=server) as proxy:
        await server.put(SERVICES, service("other", "10.96.0.99"))
        await asyncio.sleep(0.3)
        assert [line for line in before if line[:1] != "#"] == [
            line for line in (await saved(proxy)).splitlines() if line[:1] != "#"
        ]
        server.halted = False
        await proxy.at(server.revision)
        text = await saved(proxy)
        assert "default/other" in text
        assert "default/web" not in text


async def test_a_change_is_programmed_and_told(netns: str) -> None:
    async with running(netns) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        assert "--to-destination 10.244.1.2:8080" in await saved(proxy)
        await proxy.put(slice_of("web", "10.244.1.2", "10.244.2.2"))
        assert "--to-destination 10.244.2.2:8080" in await saved(proxy)
        await proxy.put(slice_of("web"))
        text = await saved(proxy)
        assert "default/web:http has no endpoints" in text
        assert "KUBE-SEP-" not in text
        await proxy.remove(service())
        assert "default/web" not in await saved(proxy)
        status = proxy.loop.status()
        assert status["failures"] == 0
        assert status["revision"] == str(proxy.server.revision)
        assert status["drift"] == []


async def test_a_revision_is_told_of_each_kind_by_itself(netns: str) -> None:
    """What one watch has brought says nothing of another, however new it is."""
    async with running(netns) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        proxy.server.lag[ENDPOINT_SLICES] = 3.0
        await proxy.server.put(ENDPOINT_SLICES, slice_of("web", "10.244.2.2"))
        slices = proxy.server.revision
        await proxy.server.put(SERVICES, service("newer", "10.96.0.98"))
        await until(lambda: proxy.loop.status()["revision"] == str(slices + 1))
        reached = proxy.loop.status()["revisions"]
        assert (reached["Service"], reached["EndpointSlice"] < slices) == (slices + 1, True)
        assert "10.244.2.2" not in await saved(proxy)
        await proxy.at(slices + 1)
        assert "10.244.2.2" in await saved(proxy)


async def test_only_the_changed_service_is_written(netns: str) -> None:
    async with running(netns) as proxy:
        for i in range(30):
            await proxy.server.put(SERVICES, service(f"web{i}", f"10.96.0.{10 + i}"))
            await proxy.server.put(ENDPOINT_SLICES, slice_of(f"web{i}", "10.244.1.2", "10.244.2.2"))
        await proxy.at(proxy.server.revision)
        written: list[Delta] = []
        proxy.proxier.plane.rules = Recording(proxy.proxier.plane.rules, written)
        await proxy.put(slice_of("web7", "10.244.1.2"))
        [delta] = written
        assert "web7" in delta.text
        assert "web8" not in delta.text
        assert "KUBE-SERVICES - " not in delta.text


class Recording(Rules):
    def __init__(self, rules: Rules, written: list[Delta]) -> None:
        super().__init__(rules.programs, rules.watch)
        self._written = written

    async def apply(self, change: Delta) -> None:
        self._written.append(change)
        await super().apply(change)


@pytest.mark.parametrize("variant", ["nft", "legacy"])
@pytest.mark.parametrize(
    "damage",
    [
        ("-t", "nat", "-F"),
        ("-t", "nat", "-F", "KUBE-SERVICES"),
        ("-t", "nat", "-D", "PREROUTING", "1"),
        ("-F", "FORWARD"),
        ("-t", "mangle", "-X", "KUBE-PROXY-CANARY"),
    ],
)
async def test_what_others_destroy_is_back_within_the_sync_period_and_theirs_stays(
    netns: str, variant: VariantName, damage: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "CANARY_PATIENCE", 0.3)
    iptables = f"iptables-{variant}"
    await run((iptables, "-t", "nat", "-N", "FOREIGN"), netns=netns)
    async with running(netns, variant=variant) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        before = sorted(line for line in (await saved(proxy)).splitlines() if line[:1] in "-:*")
        await run((iptables, *damage), netns=netns)
        await run((iptables, "-t", "nat", "-A", "FOREIGN", "-j", "RETURN"), netns=netns)
        await until(lambda: proxy.loop.status()["repairs"] == 1 and not proxy.proxier.pending, within=8.0)
        after = (await saved(proxy)).splitlines()
        assert "-A FOREIGN -j RETURN" in after
        assert sorted(line for line in after if line[:1] in "-:*" and line != "-A FOREIGN -j RETURN") == before
        assert proxy.loop.status()["drift"] == [], "what has been mended is no difference any more"


async def test_while_nobody_writes_no_program_is_started(netns: str) -> None:
    async with running(netns, settings=Settings("node-1", "iptables", 0.0, 0.05)) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        await asyncio.sleep(0.2)
        proxy.proxier.plane.rules = Blind(proxy.proxier.plane.rules.programs, proxy.proxier.plane.rules.watch)
        await asyncio.sleep(0.3)
        assert proxy.loop.status()["failures"] == 0


class Blind(Rules):
    async def observe(self) -> Observed:
        raise RestoreRefused("iptables-save", 0, "", "nobody should look")


class Refusing(Rules):
    """A kernel that refuses, as often as told."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules.programs, rules.watch)
        self.refusals = 0

    async def apply(self, change: Delta) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RestoreRefused("iptables-restore", 3, "-A X", "no memory")
        await super().apply(change)


async def test_a_refused_change_is_kept_and_written_with_the_next_try(netns: str) -> None:
    async with running(netns, rules=Refusing) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        refusing = proxy.proxier.plane.rules
        assert isinstance(refusing, Refusing)
        refusing.refusals = 2
        await proxy.put(slice_of("web", "10.244.2.2"))
        assert refusing.refusals == 0
        text = await saved(proxy)
        assert "--to-destination 10.244.2.2:8080" in text
        assert "10.244.1.2" not in text
        assert proxy.loop.status()["failures"] == 2
        metrics = proxy.metrics.text().decode()
        assert 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"} 2.0' in metrics
        assert 'kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family="IPv4"} 1.0' in metrics


async def test_rules_that_cannot_be_written_make_unwell_until_they_can(netns: str) -> None:
    async with running(netns, settings=Settings("node-1", "iptables", 0.0, 0.1), rules=Refusing) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        refusing = proxy.proxier.plane.rules
        assert isinstance(refusing, Refusing)
        assert proxy.health.healthy(time.monotonic())
        refusing.refusals = 1_000_000
        await proxy.server.put(ENDPOINT_SLICES, slice_of("web", "10.244.2.2"))
        await until(lambda: not proxy.health.healthy(time.monotonic()))
        assert "no memory" in proxy.loop.status()["lastError"]
        refusing.refusals = 0
        await until(lambda: proxy.health.healthy(time.monotonic()))
        assert "10.244.2.2" in await saved(proxy)


class Hanging(Rules):
    async def observe(self) -> Observed:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")


async def test_a_check_that_hangs_makes_unwell(netns: str) -> None:
    async with running(netns, settings=Settings("node-1", "iptables", 0.0, 0.1)) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        proxy.proxier.plane.rules = Hanging(proxy.proxier.plane.rules.programs, proxy.proxier.plane.rules.watch)
        await run(("iptables", "-N", "FOREIGN"), netns=netns)
        await until(lambda: not proxy.health.healthy(time.monotonic()))


async def test_after_a_refused_change_everything_is_written_at_once(netns: str) -> None:
    async with running(netns, settings=Settings("node-1", "iptables", 0.0, 30.0), rules=Refusing) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
        await run(("iptables", "-t", "nat", "-F"), netns=netns)
        await run(("iptables", "-t", "nat", "-X"), netns=netns)
        await proxy.put(slice_of("web", "10.244.2.2"))  # names chains that are gone
        assert "--to-destination 10.244.2.2:8080" in await saved(proxy)
        assert proxy.loop.status()["failures"] == 1


async def test_a_proxy_that_starts_again_takes_over_what_it_finds(netns: str) -> None:
    async with running(netns) as proxy:
        await proxy.put(service(), slice_of("web", "10.244.1.2"))
    async with running(netns) as proxy:
        await proxy.put(service("other", "10.96.0.99"))
        text = await saved(proxy)
        assert "default/web" not in text, "stale chains of the Service that went meanwhile are gone"
        assert text.count("-A FORWARD ") == 4


async def test_another_zone_means_other_backends(netns: str) -> None:
    zone = "topology.kubernetes.io/zone"
    hinted = slice_of("web", "10.244.1.2", "10.244.2.2")
    for endpoint, name in zip(hinted["endpoints"], ("east", "west"), strict=True):
        endpoint["hints"] = {"forZones": [{"name": name}]}
    async with running(netns, node=node_object(**{zone: "east"})) as proxy:
        await proxy.put(service(), hinted)
        assert "10.244.2.2" not in await saved(proxy)
        await proxy.put(node_object(**{zone: "west"}))
        text = await saved(proxy)
        assert "--to-destination 10.244.2.2" in text
        assert "10.244.1.2" not in text


async def test_another_pod_range_of_the_node_ends_the_loop(netns: str) -> None:
    here = node_object()
    here["spec"] = {"podCIDR": "10.244.1.0/24"}
    settings = Settings("node-1", "iptables", 0.0, 0.3, pod_ranges=("10.244.1.0/24",))
    async with running(netns, settings=settings, node=here) as proxy:
        await until(lambda: proxy.loop.status()["syncs"] > 0)
        there = node_object()
        there["spec"] = {"podCIDR": "10.244.7.0/24"}
        await proxy.server.put(NODES, there)
        with pytest.raises(RangeChanged, match=r"its pod range was 10\.244\.1\.0/24 and is 10\.244\.7\.0/24"):
            await asyncio.wait_for(proxy.ended, 5)


async def test_the_time_from_a_change_to_the_kernel_is_measured(netns: str) -> None:
    async with running(netns) as proxy:
        changed = slice_of("web", "10.244.1.2")
        for when in (datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(seconds=1)):
            annotations = {"endpoints.kubernetes.io/last-change-trigger-time": when.isoformat()}
            changed["metadata"]["annotations"] = annotations
            changed["endpoints"].append({"addresses": [f"10.244.2.{when.year % 100}"]})
            await proxy.put(service(), changed)
        count = 'kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 1.0'
        assert count in proxy.metrics.text().decode(), "what was called for before our start tells nothing about us"


async def test_syncs_keep_their_distance(netns: str) -> None:
    async with running(netns, settings=Settings("node-1", "iptables", 0.5, 5.0)) as proxy:
        await until(lambda: proxy.loop.status()["syncs"] == 1)
        await asyncio.sleep(0.6)
        await proxy.put(service())  # after idle it goes at once
        await proxy.server.put(ENDPOINT_SLICES, slice_of("web", "10.244.1.2"))
        await asyncio.sleep(0.1)
        assert "10.244.1.2" not in await saved(proxy)
        await proxy.at(proxy.server.revision)
        assert "10.244.1.2" in await saved(proxy)


async def test_a_large_cluster_is_written_without_the_comments_of_endpoints(netns: str) -> None:
    async with running(netns, settings=Settings("node-1", "iptables", 0.0, 3.0)) as proxy:
        for i in range(6):
            ends = [f"10.244.{i}.{j}" for j in range(1, 201)]
            await proxy.server.put(SERVICES, service(f"web{i}", f"10.96.0.{10 + i}"))
            await proxy.server.put(ENDPOINT_SLICES, slice_of(f"web{i}", *ends))
        await proxy.at(proxy.server.revision)
        assert proxy.proxier.plane.large
        assert proxy.loop.status()["families"]["IPv4"]["largeCluster"]
        await proxy.put(slice_of("web0", "10.244.0.1"))
        text = await saved(proxy)
        assert "10.244.0.2/32" in text, "stale chains stay for a while"
        async with asyncio.timeout(15):
            while "10.244.0.2/32" in await saved(proxy):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
