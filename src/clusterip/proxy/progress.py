"""What the proxy says of itself: how far the kernel has come."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from clusterip.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from clusterip.model.status import Object
from clusterip.proxy.parts import Source

_KINDS = (Service, EndpointSlice, Node, ServiceCIDR)


@dataclass(frozen=True, slots=True)
class Reached:
    """Revisions: the newest of all, and of each kind the one up to which all of it is known. Each kind is
    watched by itself, so of one all may be known up to a revision of which another's watch has not told yet."""

    newest: str = ""
    kinds: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.newest

    @classmethod
    def by(cls, source: Source) -> "Reached":
        """With all that its `changes` has told."""
        kinds = {kind.__name__: to for kind in _KINDS if (to := source.told(kind))}
        return cls(str(max(kinds.values(), default="")), kinds)


class Progress:
    """How far the kernel has come."""

    def __init__(self) -> None:
        self.reached = Reached()  # the kernel reflects it
        self.last_sync = ""  # RFC 3339; "": none yet
        self.syncs = 0
        self.failures = 0
        self.last_error = ""
        self.repairs = 0  # times that others had changed our rules

    def synced(self, reached: Reached) -> None:
        self.reached = reached
        self.last_sync = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.syncs += 1
        self.last_error = ""

    def failed(self, message: str) -> None:
        self.failures += 1
        self.last_error = message

    def document(self) -> Object:
        return {
            "revision": self.reached.newest,
            "revisions": dict(self.reached.kinds),
            "lastSync": self.last_sync,
            "syncs": self.syncs,
            "failures": self.failures,
            "lastError": self.last_error,
            "repairs": self.repairs,
        }
