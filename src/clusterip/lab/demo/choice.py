"""How connections spread: one by one, and with affinity."""

from collections.abc import AsyncIterator

from clusterip.lab.demo import dial, reading
from clusterip.lab.demo.stage import APP, Stage, until
from clusterip.lab.demo.values import Bars, Claim, Counted, Counters, Say, Shown, Title, Wait

CONNECTIONS = 300
UNEVEN = 1e-4  # a spread this unlikely is called uneven: once in ten thousand demos by chance


async def many_connections(stage: Stage) -> AsyncIterator[Shown]:
    yield Title(f"{CONNECTIONS} connections")
    yield Wait(f"opening {CONNECTIONS} connections")
    node = stage.nodes[[node.name for node in stage.nodes].index((await stage.until_running("client")).spec.node_name)]
    before = reading.jumps(await stage.nat(node, stage.chain))
    counts = await dial.spread(stage.client.netns, stage.address, CONNECTIONS)
    after = reading.jumps(await stage.nat(node, stage.chain))
    pods = await stage.backends()
    yield Bars(tuple((pod.name, counts[pod.name]) for pod in pods))
    answered = sum(counts[pod.name] for pod in pods)
    yield Claim("Each was answered by one of the three pods.", answered == CONNECTIONS, str(dict(counts)))
    even = reading.evenness([counts[pod.name] for pod in pods])
    yield Claim(
        f"The spread is even: chi-square {even.chi_square:.2f}, p = {even.p:.2f} (fair lots are this uneven "
        f"{_often(even.p)}).",
        even.p >= UNEVEN,
        f"p = {even.p:.2g}",
    )
    rows = tuple(
        Counted(new.to, old.packets, new.packets)
        for old, new in zip(before, after, strict=False)
        if "KUBE-SEP" in new.to
    )
    yield Counters(rows)
    rose = sum(row.after - row.before for row in rows)
    yield Claim(
        f"The rules counted {CONNECTIONS} packets, one a connection.", rose == CONNECTIONS, f"they counted {rose}"
    )


def _often(p: float) -> str:
    return f"{p * 100:.0f} times in 100" if p >= 0.01 else "less than once in 100"


async def affinity(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("sessionAffinity: ClientIP pins a client")
    yield Say(
        "With None, the default, every connection draws. With ClientIP, a client stays with the pod it drew first."
    )
    yield await stage.here(f"""kubectl patch service {APP} -p '{{"spec":{{"sessionAffinity":"ClientIP"}}}}'""")
    yield Wait("waiting for the rules")
    await until("rules with affinity", lambda: _remembers(stage, True), 10)
    listed = await stage.on(
        stage.nodes[0],
        f"{stage.tools.iptables} -t nat -L {stage.chain} -n",
        marks=("recent: CHECK seconds: 10800",),
        only=("recent:",),
    )
    yield listed
    counts = await dial.spread(stage.client.netns, stage.address, 20)
    (favourite, number) = counts.most_common(1)[0]
    yield Claim(f"Of 20 connections of the client, {number} went to {favourite}.", number == 20, str(dict(counts)))
    yield await stage.here(f"""kubectl patch service {APP} -p '{{"spec":{{"sessionAffinity":"None"}}}}'""")
    yield Wait("waiting for the rules")
    await until("rules without affinity", lambda: _remembers(stage, False), 10)
    counts = await dial.spread(stage.client.netns, stage.address, 40)
    yield Claim(
        f"Back to None: 40 connections spread over {len(counts)} pods again.", len(counts) == 3, str(dict(counts))
    )


async def _remembers(stage: Stage, wanted: bool) -> bool:
    """Whether the chain's rules are, on every node, with or without affinity as wanted."""
    for node in stage.nodes:
        rules = await stage.nat(node, stage.chain)
        if ("--rcheck" in rules) != wanted or "KUBE-SEP" not in rules:
            return False
    return True
