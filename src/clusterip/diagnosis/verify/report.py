"""What `verify` found, as values; JSON by msgspec, with the same promises as the answer of `trace`."""

from fractions import Fraction
from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal[
    "missing",  # the kernel does not know the frontend
    "extra",  # the kernel answers where the API has nothing to answer
    "dropped",
    "rejected",
    "stale-backend",  # the kernel sends to a backend that the API does not have there
    "missing-backend",
    "share",  # of a backend: not what it should be
    "masquerade",
    "affinity",
    "verdict",  # refused and dropped are exchanged, or something passes that should not
    "program",  # one of eBPF mode does not run at its hook
]


Verdict: TypeAlias = Literal["equal", "different", "unproven"]


class Witness(Struct, frozen=True):
    """A packet that shows the difference; the arguments of `clusterip trace`."""

    source: str  # "pod:10.244.1.7", "node", "outside:203.0.113.9"
    destination: str  # "10.96.0.20:80/tcp"
    interface: str = ""  # it comes in by

    @property
    def arguments(self) -> str:
        return f"{self.source} {self.destination}" + (f" --in {self.interface}" if self.interface else "")


class Difference(Struct, frozen=True):
    kind: Kind
    object: str  # "service demo/web:http"; "10.96.0.20:80/tcp" where no Service has it; "hook connect4"
    frontend: str  # "10.96.0.20:80/tcp"; of a program one of those that it should serve
    clients: str  # "pods", "the node, outside", "10.244.1.7"
    api: str  # what the API says
    kernel: str  # what the kernel does
    witness: Witness
    share: Fraction  # of those clients' new connections that are concerned; 0: all end as they should, by another way


class Unproven(Struct, frozen=True):
    """Something in the way of an answer."""

    what: str  # the rule or match that is not modelled, the thing that is not known
    object: str  # what hangs on it


class Verification(Struct, frozen=True, rename="camel"):
    api_version: str = "clusterip/v1"
    kind: Literal["Verification"] = "Verification"
    verdict: Verdict = "equal"
    services: int = 0  # ports of Services
    frontends: int = 0  # places that the API answers for
    premises: tuple[str, ...] = ()  # sentences: what was taken as given
    differences: tuple[Difference, ...] = ()
    unproven: tuple[Unproven, ...] = ()
    others: tuple[str, ...] = ()  # places to which somebody else's rules send packets: not the proxy's business
    remarks: tuple[str, ...] = ()  # sentences: what stops packets that the rules deliver; no part of the verdict

    @property
    def exit_status(self) -> int:
        return {"equal": 0, "different": 1, "unproven": 2}[self.verdict]
