"""The proxy's one loop: what the Mirror tells -> service table -> proxiers -> kernel. Owns all of them.

While a sync runs, changes gather in the Mirror, folded; so nothing here needs a lock or a queue.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Never

from clusterip.client.view import Change, Ref
from clusterip.errors import ClusterIPError, Unavailable
from clusterip.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from clusterip.model.status import Object
from clusterip.proxy import conntrack_reconcile, node
from clusterip.proxy.handover import Joining, NotProved, Report, Target, every_service, share_places
from clusterip.proxy.health import Health, eligible
from clusterip.proxy.metrics import Metrics
from clusterip.proxy.node import RangeChanged
from clusterip.proxy.pace import DEEP_CHECK, Pace
from clusterip.proxy.parts import FamilyParts, Others, Settings, Source
from clusterip.proxy.pending import Counted, FamilyProxier, Synced
from clusterip.proxy.progress import Progress, Reached
from clusterip.proxy.rivals import Rivals
from clusterip.proxy.service_health import checks
from clusterip.services.resolve import NodeContext
from clusterip.services.table import Entry, Family
from clusterip.services.tracker import ServiceName, ServiceTable, touched

log = logging.getLogger(__name__)

_ROUNDS = 3  # of following the API between a hand-over's load and its proof

TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"  # on a slice: when what it tells of happened


class Loop:
    def __init__(
        self,
        source: Source,
        families: Sequence[FamilyParts],
        health: Health,
        metrics: Metrics,
        settings: Settings,
        others: Others | None = None,
    ) -> None:
        self._source = source
        self._families = tuple(families)
        self._health = health
        self._metrics = metrics
        self._settings = settings
        self._others = others
        self._joining: Joining | None = None
        self._asked: tuple[Target, asyncio.Future[None]] | None = None
        self._report: Report | None = None
        self._waiting: asyncio.Timeout | None = None
        self._table = ServiceTable([f.proxier.family for f in families])
        self._context = NodeContext(settings.node)
        self._pace = Pace(settings.min_sync_period, settings.sync_period)
        self._triggers: dict[Family, list[float]] = {f.proxier.family: [] for f in families}
        self._born = time.time()
        self._fresh = True  # something was noted since the last sync
        self._noted = Reached()
        self._progress = Progress()
        self._rivals = Rivals(settings.netns)
        self.complete = asyncio.Event()  # all rules have been written once

    def __repr__(self) -> str:
        return f"Loop(reached={self._progress.reached} noted={self._noted} {[f.proxier for f in self._families]})"

    async def run(self) -> Never:
        """Nothing is written before all lists are complete. Raises RangeChanged."""
        await self._source.synced.wait()
        log.info("proxy.loop.listed revision=%s", self._source.revision)
        self._queue(f.proxier.family for f in self._families)
        await self._take(within=0.05)  # there may be nothing at all in the cluster
        with contextlib.closing(self._rivals):
            await self._follow()

    async def _follow(self) -> Never:
        while True:
            now = time.monotonic()
            if self._asked is not None and self.complete.is_set():
                await self._hand_over(self._asked[0])
                continue
            pending = any(f.proxier.pending for f in self._families)
            if now >= self._pace.next_sync(pending, self._fresh):
                await self._sync()
            elif now >= self._pace.next_check():
                await self._check()
            else:
                until = min(self._pace.next_sync(pending, self._fresh), self._pace.next_check())
                await self._take(within=until - time.monotonic())

    @property
    def parts(self) -> tuple[FamilyParts, ...]:
        """In force."""
        return self._families

    async def move(self, target: Target) -> None:
        """Let another dataplane take over; when this returns it serves. Raises ClusterIPError: then nothing has
        changed. One at a time, from any task but the loop's."""
        assert self._asked is None, "one hand-over at a time"
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked = (target, done)
        if self._waiting is not None:
            self._waiting.reschedule(0)
        await done

    def status(self) -> Object:
        """What `clusterip status` shows of this node."""
        proxiers = [f.proxier for f in self._families]
        pending = any(p.pending for p in proxiers)
        if self._waiting is not None and not pending:  # all that the source has told is in the kernel
            self._progress.reached = Reached.by(self._source)
        return {
            "node": self._settings.node,
            "mode": self._settings.mode,
            **self._progress.document(),
            "pending": pending,
            "drift": [*filter(None, [self._rivals.complaint]), *(line for p in proxiers for line in p.drift)],
            "entries": sum(len(p.entries) for p in proxiers),
            "rules": sum(sum(p.counts.values()) for p in proxiers),
            "families": {p.family: p.status() for p in proxiers},
            "change": self._report.document() if self._report else None,
            "left": list(self._others.left) if self._others else [],
        }

    async def _take(self, within: float) -> bool:
        """True if something had changed. `within`: seconds."""
        try:
            async with asyncio.timeout(None if within == math.inf else within) as self._waiting:
                changes = await self._source.changes()
        except TimeoutError:
            return False
        finally:
            self._waiting = None
        self._note(changes)
        return True

    def _note(self, changes: Mapping[Ref, Change]) -> None:
        self._noted = Reached.by(self._source)
        names = touched(changes.values())
        if any(ref.kind == "Node" and ref.name == self._settings.node for ref in changes):
            names |= self._note_node()
        for change in changes.values():
            match change.after or change.before:
                case Service():
                    self._metrics.services_total.inc()
                    self._metrics.services_pending.inc()
                case EndpointSlice(address_type=family):
                    self._metrics.endpoints_total.inc()
                    self._metrics.endpoints_pending.inc()
                    self._note_trigger(family, change.after)
                case ServiceCIDR():
                    self._load_all()
        if self._joining is not None:
            self._joining.note(names, self._source.view, self._context)
        entries = self._table.update(names, self._source.view, self._context)
        noted = [f.proxier.family for f in self._families if f.proxier.note(entries)]
        if noted:
            self._fresh = True
            self._queue(noted)

    def _note_node(self) -> set[ServiceName]:
        """The Services whose backends may be others now: all, if the node has moved to another zone."""
        ours = self._source.view.get(Node, "", self._settings.node)
        self._health.node_eligible = eligible(ours)
        ranges = self._settings.pod_ranges
        if ours is not None and ranges is not None and node.pod_ranges(ours) != ranges:
            was, now = ",".join(ranges), ",".join(node.pod_ranges(ours)) or "none"
            raise RangeChanged(f"node {self._settings.node}: its pod range was {was} and is {now}: restart to use it")
        if ours is None or (context := node.context(ours, self._settings.node)) == self._context:
            return set()
        log.info("proxy.node.zone was=%r now=%r", self._context.zone, context.zone)
        self._context = context
        self._load_all()
        return every_service(self._source.view)

    def _load_all(self) -> None:
        """What all rules rest on has changed."""
        for family in self._families:
            family.proxier.load_next()
        if self._joining is not None:
            self._joining.load_next()
        self._fresh = True

    def _note_trigger(self, address_type: str, after: object) -> None:
        """When the change of a slice was called for; times before our start tell nothing about us."""
        text = after.metadata.annotations.get(TRIGGER_TIME, "") if isinstance(after, EndpointSlice) else ""
        for family, triggers in self._triggers.items():
            if text and family == address_type:
                try:
                    triggers.append(datetime.fromisoformat(text).timestamp())
                except ValueError:
                    log.warning("proxy.trigger_time.unreadable value=%r", text)

    def _queue(self, families: Iterable[Family]) -> None:
        for family in families:
            self._health.queued(family, time.monotonic())
            self._metrics.queued.labels(family).set_to_current_time()

    async def _sync(self) -> None:
        self._fresh = False
        failed = False
        for family in self._families:
            if family.proxier.pending:
                failed = not await self._sync_family(family) or failed
        now = time.monotonic()
        if failed:
            self._pace.failed(now)
            return
        self._pace.synced(now)
        self._metrics.services_pending.set(0)
        self._metrics.endpoints_pending.set(0)
        self._progress.synced(self._noted)
        self.complete.set()

    async def _sync_family(self, family: FamilyParts) -> bool:
        """True if it succeeded. A change is mostly refused because a chain of ours is gone: then all is written."""
        proxier, name = family.proxier, family.proxier.family
        self._health.queued(name, time.monotonic())
        partial = not proxier.full_next
        done = await self._try(proxier)
        if done is None and partial:
            done = await self._try(proxier)
        if done is None:
            return False
        self._health.updated(name, time.monotonic())
        self._measure(proxier, done)
        if done.udp or done.full:  # while rules were missing, flows may have begun that go nowhere
            await self._end_stale_flows(proxier)
        if done.health_checks or family.service_health.unopened:
            await family.service_health.update(checks(proxier.entries.values()), await family.served_addresses())
        return True

    async def _try(self, proxier: FamilyProxier) -> Synced | None:
        full = proxier.full_next
        try:
            return await proxier.sync()
        except ClusterIPError as error:
            log.error("proxy.sync.failed family=%s full=%s error=%r", proxier.family, full, error.message)
            self._progress.failed(error.message)
            self._metrics.sync_failed(proxier.family, full)
            return None

    def _measure(self, proxier: FamilyProxier, done: Synced) -> None:
        metrics, name = self._metrics, proxier.family
        facts = (name, done.full, len(done.changes), sum(done.written.values()), done.seconds * 1000)
        log.info("proxy.sync.done family=%s full=%s entries=%d rules=%d ms=%.0f revision=%s", *facts, self._noted)
        metrics.duration.labels(name).observe(done.seconds)
        (metrics.full if done.full else metrics.partial).labels(name).observe(done.seconds)
        metrics.last.labels(name).set_to_current_time()
        self._count(proxier, done.written)
        triggers, self._triggers[name] = self._triggers[name], []
        for triggered in triggers:
            if triggered >= self._born:
                metrics.programming.labels(name).observe(max(0.0, time.time() - triggered))

    def _count(self, proxier: FamilyProxier, written: Counted) -> None:
        self._metrics.wrote(proxier.family, proxier.counts, written)
        self._metrics.no_local.labels("internal", proxier.family).set(proxier.sums.internal_gaps)
        self._metrics.no_local.labels("external", proxier.family).set(proxier.sums.external_gaps)

    async def _end_stale_flows(self, proxier: FamilyProxier) -> None:
        entries = [e for e in proxier.entries.values() if e.protocol == "UDP"]
        started = time.monotonic()
        try:
            ended = await asyncio.to_thread(
                conntrack_reconcile.reconcile, proxier.family, entries, self._settings.netns
            )
        except (ClusterIPError, OSError) as error:
            log.error("proxy.conntrack.failed family=%s error=%r", proxier.family, str(error))
            return
        self._metrics.conntrack.labels(proxier.family).observe(time.monotonic() - started)
        self._metrics.conntrack_deleted.labels(proxier.family).inc(ended)
        if ended:
            log.info("proxy.conntrack.ended family=%s flows=%d", proxier.family, ended)

    async def _check(self) -> None:
        """Has anybody touched our rules? If so, the next sync, which may start at once, writes them anew."""
        disturbed = False
        for family in self._families:
            proxier = family.proxier
            self._health.queued(proxier.family, time.monotonic())  # a check that hangs is no evidence of health
            try:
                drift = await proxier.check(deep=time.monotonic() - proxier.checked > DEEP_CHECK)
                await proxier.sweep()
            except ClusterIPError as error:
                log.error("proxy.check.failed family=%s error=%r", proxier.family, error.message)
                self._progress.failed(error.message)
                proxier.load_next()
                continue
            if drift:
                log.warning("proxy.rules.disturbed family=%s found=%d first=%r", proxier.family, len(drift), drift[0])
                self._progress.repairs += 1
                self._fresh = disturbed = True
            elif not proxier.pending:
                self._health.updated(proxier.family, time.monotonic())
        now = time.monotonic()
        self._pace.checked(now)
        if self._rivals.looked(now, disturbed):
            log.error("proxy.rules.contested what=%r", self._rivals.complaint)
        if self._others is not None and self._others.due(now):
            await self._others.remove(self._settings.mode, self.entries())

    def entries(self) -> Iterable[Entry]:
        """In force."""
        return itertools.chain.from_iterable(f.proxier.entries.values() for f in self._families)

    async def _hand_over(self, target: Target) -> None:
        was = self._settings.mode
        self._report = report = Report(self._report.number + 1 if self._report else 1, was, target.mode)
        log.info("proxy.handover.begins was=%s to=%s", was, target.mode)
        try:
            joining = await self._join(target, report)
        except (ClusterIPError, OSError) as error:
            await self._take_back(target)
            report.enter("failed")
            refused = error if isinstance(error, ClusterIPError) else Unavailable(f"{target.mode}: {error}")
            report.error, report.hint = refused.message, refused.hint
            log.error("proxy.handover.failed stays=%s wanted=%s error=%r", was, target.mode, refused.message)
            self._answer(refused)
            return
        finally:
            self._joining = None
        report.enter("withdrawing")
        self._promote(target, joining)
        for family in self._families:
            await self._end_stale_flows(family.proxier)
        if self._others is not None:
            await self._others.remove(target.mode, self.entries())
        report.enter("done")
        log.info("proxy.handover.done was=%s now=%s left=%d", was, target.mode, len(self.status()["left"]))
        self._answer(None)

    def _answer(self, refused: ClusterIPError | None) -> None:
        assert self._asked is not None, "somebody has asked"
        (_, done), self._asked = self._asked, None
        if refused is not None and not done.done():
            done.set_exception(refused)
        elif not done.done():
            done.set_result(None)

    async def _join(self, target: Target, report: Report) -> Joining:
        """The target, written and proved, and as new as the one in force. Raises ClusterIPError or OSError."""
        report.enter("loading")
        if self._others is not None:
            await self._others.yield_to(target.mode)
        beside = not share_places(self._settings.mode, target.mode)
        joining = self._joining = Joining(target, self._source.view, self._context)
        await joining.sync()
        for _ in range(_ROUNDS):
            await self._take(within=0)
            await joining.sync()
            await (self._sync() if beside and any(f.proxier.pending for f in self._families) else asyncio.sleep(0))
        report.enter("verifying")
        try:
            await joining.verify()
        except NotProved as error:  # others write, too: once more, from what is there
            log.warning("proxy.handover.again reason=%r", error.message)
            await joining.sync()
            await joining.verify()
        return joining

    async def _take_back(self, target: Target) -> None:
        """The dataplane in force stays. Where the other writes over it, it is written anew."""
        mode = self._settings.mode
        if share_places(mode, target.mode):
            self._load_all()
            await self._sync()
        if self._others is not None:
            await self._others.remove(mode, self.entries())

    def _promote(self, target: Target, joining: Joining) -> None:
        now = time.monotonic()
        self._families, self._table = target.families, joining.table
        self._settings = replace(
            self._settings,
            mode=target.mode,
            min_sync_period=target.min_sync_period,
            sync_period=target.sync_period,
        )
        self._pace = Pace(target.min_sync_period, target.sync_period)
        self._pace.synced(now)
        names = [f.proxier.family for f in target.families]
        self._triggers = {name: self._triggers.get(name, []) for name in names}
        self._health.serve(names, target.sync_period, now)
        self._metrics.serve(target.mode, target.counters, names)
        for family in target.families:
            self._count(family.proxier, family.proxier.counts)
        self._fresh = True
