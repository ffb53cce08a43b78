"""Drawn Services on a real cluster: every client sees at every frontend what the specification says.

CLUSTERIP_MODE=nftables CLUSTERIP_MATRIX_SEED=7 CLUSTERIP_MATRIX_SERVICES=24 pytest tests/e2e/test_matrix.py
"""

import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.e2e.matrix import backends, odds
from tests.e2e.matrix.drawing import Dealer
from tests.e2e.matrix.stage import Stage, is_ready, staged

from clusterip.model import resources
from clusterip.model.objects import Pod

from .conftest import MODE, Cluster

pytestmark = pytest.mark.e2e

SEED = os.environ.get("CLUSTERIP_MATRIX_SEED") or secrets.token_hex(4)
SERVICES = int(os.environ.get("CLUSTERIP_MATRIX_SERVICES", "24"))


class Play:
    """What is changed from round to round."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.gone: set[str] = set()
        self.ill = {"blue-3", "dark-1"}
        self.flock = 2

    def missing(self, pods: Mapping[str, Pod]) -> str:
        """Of the pods that should be there; "" if they all are, and as they should be."""
        flock = [p for p in pods.values() if p.metadata.labels.get("color") == backends.FLOCK]
        if (len(flock), sum(map(is_ready, flock))) != (self.flock, self.flock):
            return f"{len(flock)} pods of {backends.FLOCK}, {self.flock} wanted"
        for name in {b.name for b in backends.BACKENDS} | set(backends.VISITORS):
            pod = pods.get(name)
            if name in self.gone:
                if pod is not None and not pod.metadata.deletion_timestamp:
                    return f"{name} is still there"
            elif pod is None or not pod.status.pod_ip or is_ready(pod) == (name in self.ill):
                return f"{name} is not as it should be"
        return ""

    async def tell(self, word: str, *pods: str) -> None:
        for pod in pods:
            await self.stage.tell(pod, word)
        self.ill = self.ill | set(pods) if word == "fail" else self.ill - set(pods)

    async def scale(self, replicas: int) -> None:
        self.flock = replicas
        scale = {"spec": {"replicas": replicas}}
        await self.stage.api.patch(resources.DEPLOYMENTS, "matrix", backends.FLOCK, scale)

    async def delete(self, *pods: str) -> None:
        for pod in pods:
            self.gone.add(pod)
            await self.stage.api.delete(resources.PODS, "matrix", pod)


async def test_every_client_sees_at_every_frontend_what_the_specification_says(
    cluster: Cluster, tmp_path: Path
) -> None:
    sys.stdout.write(f"CLUSTERIP_MATRIX_SEED={SEED}\n")
    async with staged(cluster, MODE, tmp_path) as stage:
        play = Play(stage)
        ill, play.ill = play.ill, set()
        await stage.settle(play.missing)
        await play.tell("fail", *sorted(ill))
        setting = await stage.setting(await stage.settle(play.missing))
        dealer = Dealer(SEED, tuple(setting.nodes[0].ips), await stage.spots())
        drawn = {one.name: one for one in dealer.services(range(1, SERVICES + 1))}
        await stage.put(drawn.values())
        await seen(stage, play, "at first")

        for step in range(1, odds.ROUNDS):
            leaving = dealer.lot.sample(sorted(drawn), SERVICES // 9)
            await stage.remove(leaving)
            kept = [one for name, one in drawn.items() if name not in leaving]
            changed = [dealer.again(one) for one in dealer.lot.sample(kept, SERVICES // 3)]
            new = dealer.services(range(100 * step, 100 * step + SERVICES // 9))
            if step == 1:
                await play.tell("fail", "red-2")
                await play.tell("ok", "blue-3")
                await play.scale(4)
            else:
                await play.tell("ok", "red-2")
                await play.scale(1)
                await play.delete(*backends.LEAVING)  # one of them lingers, and serves on
            await stage.put([*changed, *new])
            drawn = {one.name: one for one in [*kept, *changed, *new]}
            await seen(stage, play, f"after change {step}")


async def seen(stage: Stage, play: Play, when: str) -> None:
    start = time.monotonic()
    now = await stage.settle(play.missing)
    settled = time.monotonic()
    report = await stage.look(await stage.setting(now))
    took = f"settled in {settled - start:.0f} s, asked in {time.monotonic() - settled:.0f} s"
    sys.stdout.write(f"{when}: {report.summary()}; {took}\n")
    assert report.right, f"{when}, CLUSTERIP_MATRIX_SEED={SEED}\n{report.text(stage.cluster.name)}"
