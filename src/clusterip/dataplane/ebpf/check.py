"""Can this machine balance sockets? Tried for real, for a moment, with small maps that lead nowhere."""

import errno
import os

from clusterip.dataplane.ebpf.attach import Place, probe
from clusterip.dataplane.ebpf.program import Program
from clusterip.errors import Unavailable
from clusterip.kernel import sockdestroy
from clusterip.kernel.bpf import BpfRefused

_HINT = "mode: nftables works without"


def check(place: Place, program: Program) -> None:
    """Raises Unavailable with one sentence that says what is missing. Blocking."""
    if os.geteuid() != 0:
        raise Unavailable("eBPF mode: loading programs needs root", hint=_HINT)
    if not (place.cgroup / "cgroup.procs").exists():
        raise Unavailable(f"eBPF mode: {place.cgroup} is no cgroup of version 2", hint=_HINT)
    try:
        probe(place, program)
    except BpfRefused as refused:
        raise Unavailable(f"eBPF mode: {_reason(refused)}", hint=_HINT) from refused
    if not sockdestroy.can_destroy():
        raise Unavailable(
            "eBPF mode: this kernel cannot end sockets (CONFIG_INET_DIAG_DESTROY), so connected datagram sockets would "
            "send to backends that are gone",
            hint=_HINT,
        )


def _reason(refused: BpfRefused) -> str:
    attaching = refused.message.endswith(f"attach: {os.strerror(refused.errno)} (EPERM)")
    match refused.errno:
        case errno.EPERM if attaching:
            return f"another program holds the hook for itself alone ({refused.message})"
        case errno.EPERM:
            return f"this process may not load programs, it needs CAP_BPF and CAP_NET_ADMIN ({refused.message})"
        case errno.ENOSYS:
            return "this kernel has no bpf(2) (CONFIG_BPF_SYSCALL)"
        case errno.EINVAL | errno.EACCES | errno.EOPNOTSUPP:
            return f"this kernel does not take the program, 5.18 and later do ({refused.message})"
        case _:
            return refused.message
