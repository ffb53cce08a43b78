"""All that a bug report needs to know of a node: what its programs say, and the end of its proxy's log."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from clusterip.errors import Unavailable
from clusterip.kernel.run import ProgramFailed, run
from clusterip.kernel.snapshot import COMMANDS, Command, Said

LOG_BYTES = 1 << 20  # of a log its end

MORE: tuple[Command, ...] = (
    Command("ipvsadm-connections", ("ipvsadm", "-Lnc")),
    Command("conntrack-statistics", ("conntrack", "-S")),
    Command("ip-6-rule", ("ip", "-6", "rule")),
    Command("healthz", ("curl", "--silent", "--max-time", "3", "http://127.0.0.1:10256/healthz")),
)
# Where kubelet puts the proxy's log, and kubeadm its configuration.
LOGS = ("/var/log/pods/kube-system_kube-proxy-*/*/*.log", "/var/log/kube-proxy.log")
CONFIGURATIONS = ("/var/lib/kube-proxy/config.conf", "/var/lib/kube-proxy/kube-proxy-config.yaml")


async def collect(netns: str = "") -> list[tuple[Command, Said]]:
    """Of a network namespace ("": our own). Nothing is changed; what cannot be had says why."""
    commands = (*COMMANDS, *MORE)
    found = await asyncio.gather(*(_said(command, netns) for command in commands))
    return list(zip(commands, found, strict=True))


async def _said(command: Command, netns: str) -> Said:
    try:
        done = await run(command.argv, netns=netns, check=False)
    except (ProgramFailed, Unavailable) as error:
        return Said(command.name, b"", error.message)
    # sysctl -a fails for settings that nobody may read, and tells all others.
    failed = done.returncode and not done.stdout
    why = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
    return Said(command.name, done.stdout, why if failed else "")


def matching(patterns: Iterable[str]) -> list[Path]:
    """Files of this machine, sorted."""
    return sorted(path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/")) if path.is_file())


def tail(path: Path, most: int = LOG_BYTES) -> bytes:
    """The last whole lines of a file. Raises OSError."""
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - most)
        file.seek(start)
        data = file.read(most)
    return data.partition(b"\n")[2] if start else data


def release() -> str:
    """Of this kernel."""
    return os.uname().release
