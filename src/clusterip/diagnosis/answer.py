"""The answer to one question: where does this packet go, by which rules, with which probability.

One value for text, JSON and screen alike. As JSON it is an interface: fields are added, never renamed or given another
meaning; probabilities are exact fractions as text ("1/3"), with a decimal beside them.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from clusterip.diagnosis.findings import Finding
from clusterip.diagnosis.packet import Packet
from clusterip.services.table import Family

Verdict: TypeAlias = Literal["delivered", "rejected", "dropped", "passed", "unknown"]
Provenance: TypeAlias = Literal["modelled", "observed"]

EXIT_STATUS: dict[Verdict, int] = {"delivered": 0, "rejected": 1, "dropped": 1, "passed": 1, "unknown": 2}


class Step(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that happened to the packet."""

    hook: str  # "prerouting", "forward", "input", "output", "postrouting"; "routing"; "conntrack": an entry decides
    table: str = ""  # "nat", "ip kube-proxy", "ipvs"; "": no rule did it
    chain: str = ""
    rule: str = ""  # as its own tool prints it
    effect: str = ""  # "jump", "mark 0x4000", "dnat 10.244.0.3:80", "masquerade", "accept", "drop", "reject", ...
    packet_before: Packet
    packet_after: Packet
    file: str = ""  # where the rule stands
    line: int = 0  # from 1; 0: not known


class Outcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that may become of the packet.

    The probabilities of the outcomes that share one `when` sum up to 1.
    """

    verdict: Verdict
    probability: Fraction
    probability_decimal: float
    backend: str = ""  # "10.244.0.3:80": where it arrives, if its destination was rewritten
    masquerade: bool = False
    source: str = ""  # the client's address as the backend sees it; "": not known
    basis: Literal["exact", "longRun"] = "exact"  # longRun: a share over many connections, not a chance of each
    when: tuple[str, ...] = ()  # what must be so for it; (): nothing that is not known
    reason: str = ""
    steps: tuple[Step, ...] = ()


class OverFamily(Struct, frozen=True, rename="camel"):
    """What becomes of the same question over another address family of the Service that was named."""

    family: Family
    verdict: Verdict
    reason: str
    answers: bool = False  # as of a Trace

    @property
    def exit_status(self) -> int:
        return _exit_status(self.verdict, answers=self.answers)


class Trace(Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = "clusterip/v1"
    kind: Literal["Trace"] = "Trace"
    packet: Packet
    verdict: Verdict
    reason: str  # a sentence
    source: Provenance = "modelled"
    steps: tuple[Step, ...] = ()  # of the likeliest outcome
    outcomes: tuple[Outcome, ...] = ()  # the likeliest first; those of an unknown client before those of a known one
    reply: tuple[Step, ...] = ()  # the way back from the likeliest outcome's backend to the client
    findings: tuple[Finding, ...] = field(default=())
    service: str = ""  # asked for: "default/web:http"; "": none that is known
    answers: bool = False  # passed, and the destination is known to be somebody's: it arrives all the same
    other_families: tuple[OverFamily, ...] = ()  # where a Service was named that has addresses of both

    @property
    def exit_status(self) -> int:
        """0 delivered, 1 not delivered, 2 could not answer; over several families 1 if it is not over one of them."""
        found = {_exit_status(self.verdict, answers=self.answers), *(o.exit_status for o in self.other_families)}
        return 1 if 1 in found else max(found)


def _exit_status(verdict: Verdict, *, answers: bool) -> int:
    return 0 if verdict == "passed" and answers else EXIT_STATUS[verdict]


def to_json(value: Struct | Iterable[Struct]) -> bytes:
    """Indented, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=plain), indent=2) + b"\n"


def plain(value: object) -> str:
    """Fractions as text, for msgspec's encoders. Raises NotImplementedError for other types, as they ask."""
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    raise NotImplementedError(type(value).__name__)
