"""Claims follow from the evidence: what is not so in the evidence is not claimed."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

from clusterip.client.api import Api
from clusterip.errors import Unavailable
from clusterip.kernel.capture import Flag, Packet
from clusterip.lab.demo import packet
from clusterip.lab.demo.packet import Journey
from clusterip.lab.demo.script import perform
from clusterip.lab.demo.stage import Backend, Place, Stage, Tools
from clusterip.lab.demo.values import Claim, Counted, Ran, Say, Shown, Title

IP, CLIENT, PORT = "10.96.103.181", "10.244.1.4", 40123
POD = Backend("app-b", "10.244.2.7", "node-2", Place("app-b", "demo.b"))
OTHER = Backend("app-a", "10.244.1.5", "node-1", Place("app-a", "demo.a"))


def stage() -> Stage:
    """No cluster behind it: these steps only look at what was collected."""
    return Stage(
        api=cast("Api", None),
        namespace="demo",
        tools=Tools("kubectl", Path(), "iptables"),
        nodes=(Place("node-1", "demo.node-1"),),
        pod_netns=lambda pod: pod.metadata.name,
        address=IP,
        chain="KUBE-SVC-X",
    )


def there(at: float, to: str, port: int, *, outgoing: bool) -> Packet:
    return Packet(CLIENT, to, "tcp", PORT, port, Flag.SYN, at=at, outgoing=outgoing)


def back(at: float, source: str, port: int) -> Packet:
    return Packet(source, CLIENT, "tcp", port, PORT, Flag.SYN | Flag.ACK, at=at)


GOOD = Journey(
    curl=Ran("client#", f"curl http://{IP}/hostname", "app-b\n"),
    port=PORT,
    client=CLIENT,
    at_client=(there(1.0, IP, 80, outgoing=True), back(1.3, IP, 80), *[there(1.4, IP, 80, outgoing=True)] * 2),
    at_backends=((OTHER, ()), (POD, (there(1.1, POD.address, 8080, outgoing=False), back(1.2, POD.address, 8080)))),
    counters=(Counted("KUBE-SEP-A", 3, 3), Counted("KUBE-SEP-B", 5, 6)),
    conntrack=Ran(
        "node-1#",
        "conntrack -L",
        f"tcp 6 117 TIME_WAIT src={CLIENT} dst={IP} sport={PORT} dport=80 "
        f"src={POD.address} dst={CLIENT} sport=8080 dport={PORT} [ASSURED] mark=0 use=1\n",
    ),
)


def shown(journey: Journey) -> tuple[Shown, ...]:
    return (
        *packet._leaves(stage(), journey),
        *packet._rewritten(stage(), journey),
        *packet._tracked(stage(), journey),
        *packet._comes_back(stage(), journey),
    )


def claims(values: Iterable[Shown]) -> list[Claim]:
    return [value for value in values if isinstance(value, Claim)]


def failed(journey: Journey) -> list[str]:
    return [claim.text for claim in claims(shown(journey)) if not claim.held]


def test_a_good_journey_bears_out_every_claim() -> None:
    assert failed(GOOD) == []
    assert len(claims(shown(GOOD))) == 8


def test_an_answer_from_a_pods_own_address_is_not_passed_over() -> None:
    bad = replace(GOOD, at_client=(GOOD.at_client[0], back(1.3, POD.address, 8080), *GOOD.at_client[2:]))
    assert any("arrived as" in text for text in failed(bad))
    assert any("packets that the client saw" in text for text in failed(bad))


def test_a_masqueraded_source_is_not_called_the_clients() -> None:
    syn = replace(there(1.1, POD.address, 8080, outgoing=False), source="10.244.2.1")
    bad = replace(GOOD, at_backends=((OTHER, ()), (POD, (syn, GOOD.at_backends[1][1][1]))))
    assert failed(bad) == [f"The pod sees its client's own address, {CLIENT}."]


def test_two_pods_that_saw_the_connection_are_one_too_many() -> None:
    bad = replace(GOOD, at_backends=((OTHER, GOOD.at_backends[1][1]), GOOD.at_backends[1]))
    assert "One pod saw the connection." in failed(bad)


def test_two_rules_that_counted_are_one_too_many() -> None:
    bad = replace(GOOD, counters=(Counted("KUBE-SEP-A", 3, 4), Counted("KUBE-SEP-B", 5, 6)))
    assert len(failed(bad)) == 1


def test_an_entry_that_names_another_pod_is_noticed() -> None:
    entry = replace(GOOD.conntrack, output=GOOD.conntrack.output.replace(POD.address, OTHER.address))
    assert len(failed(replace(GOOD, conntrack=entry))) == 1


def test_nothing_captured_fails_and_does_not_break() -> None:
    bad = replace(GOOD, at_client=(), at_backends=((OTHER, ()), (POD, ())), curl=Ran("client#", "curl", "", 28))
    assert len(failed(bad)) == 4


async def breaks(_: Stage) -> AsyncIterator[Shown]:
    yield Title("broken")
    raise Unavailable("three ready endpoints: not within 30 s")


async def goes_on(_: Stage) -> AsyncIterator[Shown]:
    yield Say("fine")


BROKEN = [
    Title("broken"),
    Claim("This step could be carried out to its end.", False, "three ready endpoints: not within 30 s"),
]


async def test_a_step_that_breaks_off_is_a_failed_claim_and_the_next_is_tried() -> None:
    values = [value async for value in perform(stage(), (goes_on, breaks, goes_on))]
    assert values == [Say("fine"), *BROKEN, Say("fine")]


async def test_without_the_first_step_there_is_nothing_to_show() -> None:
    first, second, *rest = [value async for value in perform(stage(), (breaks, goes_on))]
    assert [first, second] == BROKEN
    assert Say("fine") not in rest
