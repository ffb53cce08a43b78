"""Pods come, go, fail and recover; the address stays."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from clusterip.lab.demo import dial, reading
from clusterip.lab.demo.stage import APP, FIELD, POD_PORT, Backend, Place, Stage, until
from clusterip.lab.demo.values import Claim, Ran, Say, Shown, Title, Wait

AT_ONCE = 5.0  # milliseconds within which a refusal comes
SOON = 1.0  # seconds for a slice to reach the kernels: a tenth is usual, but a demo runs on busy machines too
ENDPOINTS = (
    f"kubectl get endpointslices -l kubernetes.io/service-name={APP} -o jsonpath="
    """'{range .items[*].endpoints[*]}{.addresses[0]}{"  ready: "}{.conditions.ready}{"\\n"}{end}'"""
)


async def more_pods(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("More pods: the EndpointSlice follows, and so do the rules")
    yield await stage.here(f"kubectl scale deployment {APP} --replicas=5")
    yield Wait("waiting for five ready pods")
    await stage.settled(5)
    listing = await stage.on(stage.nodes[0], f"{stage.tools.iptables} -t nat -L {stage.chain} -n", only=("KUBE-SEP",))
    yield replace(listing, marks=reading.odds(listing.output))
    parts = await _shares(stage)
    yield Claim(
        "Five rules now, 1/5, 1/4, 1/3, 1/2 and 1, so each pod is drawn with 1/5.",
        len(parts) == 5 and all(abs(float(part) - 0.2) < 1e-8 for part in parts),
        ", ".join(f"{float(part):.9f}" for part in parts),
    )
    yield await stage.here(f"kubectl scale deployment {APP} --replicas=3")
    yield Wait("waiting for three pods")
    await stage.settled(3)
    parts = await _shares(stage)
    yield Claim(
        "Back to three pods, and three rules.",
        len(parts) == 3 and all(abs(float(part) - 1 / 3) < 1e-8 for part in parts),
        ", ".join(f"{float(part):.9f}" for part in parts),
    )


async def _shares(stage: Stage) -> tuple[Fraction, ...]:
    """How often each backend is drawn, by the rules of the first node."""
    rules = reading.jumps(await stage.nat(stage.nodes[0], stage.chain))
    return reading.shares([rule.chance for rule in rules if "KUBE-SEP" in rule.to])


async def new_pods(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("Every pod is replaced; the address and the name stay")
    fqdn = f"{APP}.{stage.namespace}.svc.cluster.local"
    lookup = f"dig +short {fqdn} @{stage.dns}"
    yield Say("First the client looks the name up, and keeps the answer, as a cache would. Then all pods go.")
    asked = await stage.on(stage.client, lookup, marks=(stage.address,))
    yield asked
    stale = asked.output.strip()
    yield Claim(f"The name {fqdn} is the ClusterIP.", stale == stage.address, stale)
    old = await stage.backends()
    yield await stage.here(f"kubectl delete pods -l app={APP} --wait=false")
    yield Wait("waiting for three new pods")
    await until("three pods, all of them new", lambda: _replaced(stage, old), 30)
    await stage.settled(3)
    yield await stage.here("kubectl get pods -o wide")
    field = await stage.here(FIELD, marks=(stage.address,))
    yield field
    yield Claim(
        f"The pods are new, with new addresses; the Service still has {stage.address}.",
        field.output.strip() == stage.address,
        field.output,
    )
    curl = await stage.on(stage.client, f"curl -sS -m 3 --resolve {APP}:80:{stale} http://{APP}/hostname")
    yield curl
    names = {pod.name for pod in await stage.backends()}
    yield Claim(
        "The answer from the cache is as good as ever: it led to a pod that did not exist when it was given.",
        curl.output.strip() in names,
        curl.output,
    )
    by_name = await stage.here(f"kubectl exec client -- curl -sS -m 3 http://{APP}/hostname")
    yield by_name
    yield Claim("By its name, looked up now, a new pod answers too.", by_name.output.strip() in names, by_name.output)


async def _replaced(stage: Stage, old: Sequence[Backend]) -> bool:
    pods = await stage.backends()
    gone = {pod.name for pod in old}
    new = {pod.address for pod in pods if pod.name not in gone}
    return len(pods) == len(new) == 3 and await stage.ready() == new


@dataclass(frozen=True, slots=True)
class Left:
    """When endpoints changed, in seconds after the cause."""

    slice: float
    kernels: float  # the last node's; an upper bound, since we look again and again


async def _watch(stage: Stage, ready: frozenset[str], start: float) -> Left:
    """Wait until slices and kernels have just `ready`. `start` is of time.perf_counter."""

    async def look() -> bool:
        return await stage.ready() == ready

    await until(f"{len(ready)} ready endpoints", look, 15)
    left = time.perf_counter() - start
    await stage.programmed(ready)
    return Left(left, time.perf_counter() - start)


async def _tell(stage: Stage, pods: Sequence[Backend], path: str) -> tuple[Ran, ...]:
    """POST to each pod from its own node, all at once."""
    nodes = {node.name: node for node in stage.nodes}
    url = "http://{}:{}{}".format
    return tuple(
        await asyncio.gather(
            *(stage.on(nodes[pod.node], f"curl -sS -X POST {url(pod.address, POD_PORT, path)}") for pod in pods)
        )
    )


async def one_fails(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("One pod fails its readiness probe")
    pods = await stage.backends()
    failing, others = pods[0], pods[1:]
    yield Say(f"We tell {failing.name} to answer 503 on /healthz. It keeps running.")
    told = await _tell(stage, (failing,), "/fail")
    left = await _watch(stage, frozenset(pod.address for pod in others), time.perf_counter())
    for ran in told:
        yield ran
    listed = await stage.here("kubectl get pods", marks=(failing.name, "0/1"))
    yield listed
    yield await stage.here(ENDPOINTS, marks=(f"{failing.address}  ready: false",))
    yield Claim(
        f"It still runs, and is not ready; the EndpointSlice said so {left.slice:.2f} s after it began to fail.",
        any(failing.name in line and "0/1" in line and "Running" in line for line in listed.lines),
        listed.output,
    )
    later = left.kernels - left.slice
    yield Claim(f"The rules of all nodes left it out at most {later * 1000:.0f} ms after that.", later < SOON)
    direct = await stage.on(stage.client, f"curl -sS -m 3 http://{failing.address}:{POD_PORT}/hostname")
    yield direct
    counts = await dial.spread(stage.client.netns, stage.address, 60)
    yield Claim(
        f"Asked directly it still answers; of 60 connections to the ClusterIP {counts[failing.name]} went there.",
        direct.output.strip() == failing.name
        and counts[failing.name] == 0
        and sum(counts[pod.name] for pod in others) == 60,
        f"{direct.output.strip()}; {dict(counts)}",
    )


async def all_fail(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("All pods fail: a refusal, at once")
    ready = await stage.ready()
    yield Say("Now the others fail as well.")
    for ran in await _tell(stage, [pod for pod in await stage.backends() if pod.address in ready], "/fail"):
        yield ran
    yield Wait("waiting for the next probes")
    await stage.settled(0)
    yield await stage.here(ENDPOINTS, marks=("ready: false",))
    node = stage.nodes[0]
    await until("a rule that refuses", lambda: _refuses(stage), 10)
    yield Say("No pod is left to draw. Instead of the jump, each node has a rule that refuses:")
    yield await stage.on(
        node, f"{stage.tools.iptables} -L KUBE-SERVICES -n | grep {stage.address}", marks=("REJECT", "has no endpoints")
    )
    yield await stage.on(stage.client, f"curl -sS -m 3 http://{stage.address}/hostname")
    for place, what in ((stage.client, "a pod"), (node, "a node")):
        tries = [await dial.attempt(place.netns, stage.address) for _ in range(5)]
        times = sorted(attempt.milliseconds for attempt in tries)
        yield Claim(
            f"From {what}, connect() fails with ECONNREFUSED after {times[2]:.2f} ms: nobody waits for a time-out.",
            all(attempt.what == "ECONNREFUSED" for attempt in tries) and times[2] < AT_ONCE,
            ", ".join(map(str, tries)),
        )


async def _refuses(stage: Stage) -> bool:
    """Whether every node has the rule."""
    command = f"{stage.tools.iptables} -w -S KUBE-SERVICES"
    listings = await asyncio.gather(*(stage.on(node, command) for node in stage.nodes))
    return all(
        any(f"-d {stage.address}/32" in line and "REJECT" in line for line in listing.lines) for listing in listings
    )


async def recovery(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("They recover")
    yield Say("All three are told to be well again. The next probe sees it.")
    pods = await stage.backends()
    told = await _tell(stage, pods, "/ok")
    start = time.perf_counter()
    connected = await until("a connection", lambda: _connects(stage.client, stage.address), 15)
    first = time.perf_counter() - start
    for ran in told:
        yield ran
    await stage.settled(len(pods))
    counts = await dial.spread(stage.client.netns, stage.address, 60)
    yield Claim(
        f"The first connection succeeded {first:.2f} s after they were well again; nothing was restarted.",
        connected,
    )
    yield Claim(
        f"All three answer again: {', '.join(str(counts[pod.name]) for pod in pods)} of 60 connections.",
        all(counts[pod.name] for pod in pods) and sum(counts[pod.name] for pod in pods) == 60,
        str(dict(counts)),
    )
    field = await stage.here(FIELD, marks=(stage.address,))
    yield field
    yield Claim(
        f"Through all of this the address was {stage.address}.", field.output.strip() == stage.address, field.output
    )


async def _connects(place: Place, address: str) -> bool:
    return (await dial.attempt(place.netns, address)).what == "connected"
