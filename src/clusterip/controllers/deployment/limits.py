"""How many pods may be too many, and how many too few, while a Deployment walks to a new template. Pure."""

import math

from clusterip.model.objects import Deployment, RollingUpdate


def max_surge(deployment: Deployment) -> int:
    """Pods beyond spec.replicas."""
    if deployment.spec.strategy.type != "RollingUpdate":
        return 0
    return _number(_rolling(deployment).max_surge, deployment.spec.replicas, up=True)


def max_unavailable(deployment: Deployment) -> int:
    """Pods that may be missing. One, when neither this nor a surge would allow a step."""
    spec = deployment.spec
    if spec.strategy.type != "RollingUpdate" or spec.replicas == 0:
        return 0
    allowed = _number(_rolling(deployment).max_unavailable, spec.replicas, up=False)
    if allowed == 0 and max_surge(deployment) == 0:
        allowed = 1
    return min(allowed, spec.replicas)


def _rolling(deployment: Deployment) -> RollingUpdate:
    return deployment.spec.strategy.rolling_update or RollingUpdate()


def _number(value: int | str, replicas: int, *, up: bool) -> int:
    """`value`: a number, or per cent of the replicas."""
    if isinstance(value, int):
        return value
    try:
        share = int(value.removesuffix("%")) * replicas / 100
    except ValueError:
        return 0
    return math.ceil(share) if up else math.floor(share)
