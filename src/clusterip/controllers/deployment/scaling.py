"""How many pods each ReplicaSet of a Deployment is to have in the next step. Pure: numbers in, numbers out.

Source: Kubernetes docs, "Deployments": rolling update, recreate, proportional scaling.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from clusterip.controllers.deployment.limits import max_surge, max_unavailable
from clusterip.controllers.deployment.sets import DESIRED, MOST, Sets
from clusterip.model.objects import Deployment, ReplicaSet

Sizes: TypeAlias = Mapping[str, int]  # ReplicaSet -> replicas; those left out stay as they are


def size_of_new(deployment: Deployment, sets: Sets) -> int:
    """Replicas of the new ReplicaSet in this step, whether it exists yet or not."""
    wanted, has = deployment.spec.replicas, sets.new.spec.replicas if sets.new else 0
    if deployment.spec.strategy.type == "Recreate" or has > wanted:
        return wanted
    room = wanted + max_surge(deployment) - _total(sets.all)
    return has + max(min(room, wanted - has), 0)


def sizes_of_old(deployment: Deployment, sets: Sets) -> Sizes:
    """Those that can go now: first what does not work anyway, then what the new ones replace."""
    if deployment.spec.strategy.type == "Recreate":
        return {rs.metadata.name: 0 for rs in sets.active_old}
    least = deployment.spec.replicas - max_unavailable(deployment)
    pending = sets.new.spec.replicas - _working(sets.new) if sets.new else 0
    may_go = max(_total(sets.all) - least - pending, 0)
    sizes = {rs.metadata.name: rs.spec.replicas for rs in sets.active_old}
    for rs in sets.active_old:
        broken = min(rs.spec.replicas - _working(rs), may_go)
        sizes[rs.metadata.name] -= broken
        may_go -= broken
    spare = max(min(sum(map(_working, sets.all)) - least, may_go), 0)
    for rs in sets.active_old:
        step = min(sizes[rs.metadata.name], spare)
        sizes[rs.metadata.name] -= step
        spare -= step
    return {name: size for rs in sets.active_old if (size := sizes[name := rs.metadata.name]) != rs.spec.replicas}


def _working(rs: ReplicaSet) -> int:
    """Its status may still be of a time when it was larger."""
    return min(rs.status.available_replicas, rs.spec.replicas)


def was_scaled(deployment: Deployment, sets: Sets) -> bool:
    """Somebody changed spec.replicas since the ReplicaSets were last sized."""
    return any(
        rs.metadata.annotations.get(DESIRED, str(deployment.spec.replicas)) != str(deployment.spec.replicas)
        for rs in sets.all
        if rs.spec.replicas > 0
    )


def rescaled(deployment: Deployment, sets: Sets) -> Sizes:
    """After a change of spec.replicas: all to the one that is active, else to each its part."""
    wanted = deployment.spec.replicas
    active = [rs for rs in sets.all if rs.spec.replicas > 0]
    if len(active) <= 1:
        only = active[0] if active else sets.new
        return {only.metadata.name: wanted} if only and only.spec.replicas != wanted else {}
    if sets.new and sets.new.spec.replicas == wanted == sets.new.status.available_replicas:
        return {rs.metadata.name: 0 for rs in sets.active_old}
    if deployment.spec.strategy.type != "RollingUpdate":
        return {}
    allowed = wanted + max_surge(deployment) if wanted else 0
    return _in_proportion(active, allowed - _total(active), allowed)


def _in_proportion(active: list[ReplicaSet], more: int, allowed: int) -> Sizes:
    """Deals `more` (or, below zero, fewer) out by size; what rounding leaves goes to the largest."""
    in_order = sorted(active, key=lambda rs: (-rs.spec.replicas, rs.metadata.name))
    sizes: dict[str, int] = {}
    left = more
    for rs in in_order:
        most = int(rs.metadata.annotations.get(MOST, "0") or 0) or _total(active)
        part = round(rs.spec.replicas * allowed / most) - rs.spec.replicas
        part = max(min(part, left), 0) if more > 0 else min(max(part, left), 0)
        sizes[rs.metadata.name] = rs.spec.replicas + part
        left -= part
    sizes[in_order[0].metadata.name] = max(sizes[in_order[0].metadata.name] + left, 0)
    return sizes


def _total(sets: Iterable[ReplicaSet]) -> int:
    return sum(rs.spec.replicas for rs in sets)
