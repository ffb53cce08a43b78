"""What the proxy says of itself: how far the kernel has come."""

from datetime import UTC, datetime


class Progress:
    """How far the kernel has come."""

    def __init__(self) -> None:
        self.revision = ""  # the newest that the kernel reflects
        self.last_sync = ""  # RFC 3339; "": none yet
        self.syncs = 0
        self.failures = 0
        self.last_error = ""
        self.repairs = 0  # times that others had changed our rules

    def synced(self, revision: str) -> None:
        self.revision = revision
        self.last_sync = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.syncs += 1
        self.last_error = ""

    def failed(self, message: str) -> None:
        self.failures += 1
        self.last_error = message
