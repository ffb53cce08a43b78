"""Whoever undoes our rules again and again: mostly another proxy of the same node, with another configuration.

Each of the two takes the other's rules for damage and writes its own. To serve is more than to be right, so ours does
that as well, and says so.
"""

from collections import deque
from pathlib import Path

from clusterip.errors import ClusterIPError
from clusterip.kernel.nft_writers import Writer, Writers

TIMES, WITHIN = 3, 30.0  # as many repairs within so many seconds are no accident
_PROGRAMS = ("iptables", "ip6tables", "xtables")  # how those begin that we run ourselves
_MACHINES = 0xEFFFFFFC  # inode of the PID namespace that the kernel's numbers are of: PROC_PID_INIT_INO


class Rivals:
    def __init__(self, netns: str = "") -> None:
        self.complaint = ""  # in words; "": there is no reason for one
        self._netns = netns
        self._repairs: deque[float] = deque(maxlen=TIMES)  # monotonic times
        self._writers: Writers | None = None  # listens while our rules are undone
        self._seen: set[Writer] = set()

    def __repr__(self) -> str:
        return f"Rivals({self.complaint!r})"

    def looked(self, now: float, disturbed: bool) -> bool:
        """Our rules have, or have not, been undone since the last look. True: from now on there is a complaint."""
        if disturbed:
            return self._disturbed(now)
        if self._repairs and self._repairs[-1] < now - WITHIN:
            self.close()
            self.complaint = ""
            self._repairs.clear()
            self._seen.clear()
        return False

    def _disturbed(self, now: float) -> bool:
        self._repairs.append(now)
        if self._writers is None:
            self._listen()
        else:
            self._seen |= {w for w in self._writers.seen() if not _is_ours(w)}
        if len(self._repairs) < TIMES or self._repairs[0] < now - WITHIN:
            return False
        had, self.complaint = self.complaint, self._words()
        return not had

    def close(self) -> None:
        if self._writers is not None:
            self._writers.close()
            self._writers = None

    def _listen(self) -> None:
        try:
            self._writers = Writers(self._netns)
        except ClusterIPError:
            self._writers = None  # it is not known who it is, then

    def _words(self) -> str:
        who = ", ".join(sorted({f"{w.program} (process {_process(w.pid)})" for w in self._seen})[:3])
        return (f"our rules are undone again and again{f'; written to nf_tables meanwhile: {who}' if who else ''}. "
                f"Is another proxy running on this node?")  # fmt: skip


def _is_ours(writer: Writer) -> bool:
    """Or may be: the programs that we run ourselves are told from others' by nothing."""
    if writer.program.startswith(_PROGRAMS) or Path(f"/proc/self/task/{writer.pid}").exists():
        return True
    in_container = Path("/proc/self/ns/pid").stat().st_ino != _MACHINES
    return in_container and writer.program == Path("/proc/self/comm").read_text().strip()


def _process(thread: int) -> int:
    """Of a thread that still lives; else its own number."""
    try:
        status = Path(f"/proc/{thread}/status").read_text()
    except OSError:
        return thread
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("Tgid:")))
