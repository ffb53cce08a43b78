"""What a move of this cluster to nftables mode would change, for the Services and nodes at hand. Pure.

    find(known, facts, programs)      # from whatever mode it is in: IPVS, iptables

Findings `move-...` are no faults of today: W says that something behaves otherwise after the move, or that somebody who
relies on it has to do something; I is good to know; E says that the move itself cannot be done here.
"""

from collections.abc import Iterator, Sequence

from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.doctor.modes import told_mode
from clusterip.diagnosis.doctor.move import around, ipvs, ports
from clusterip.diagnosis.doctor.programmed import Programmed
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.findings import Evidence, Finding

_DEPRECATED = "Kubernetes has deprecated IPVS mode since 1.35."


def find(known: Known, facts: Facts, programs: Sequence[Programmed]) -> Iterator[Finding]:
    mode, evidence = _mode(known, programs)
    if mode in ("nftables", "ebpf"):
        message = f"{mode} mode is in use already: there is nothing to move."
        yield Finding("move-mode", "I", "mode", message, evidence)
        return
    if mode not in ("ipvs", "iptables"):
        message = "What was given does not tell which mode is in use, so nothing can be said of a move."
        remedy = "give iptables-save, ipvsadm -Ln, ipset save, or the proxy's configuration"
        yield Finding("move-mode", "I", "mode", message, evidence, None, remedy)
        return
    count = len({p.key for p in programs if p.form == mode and p.key.name})
    message = f"From {mode} to nftables mode, with {count} {'Service' if count == 1 else 'Services'} in the kernel. "
    message += f"{_DEPRECATED} " if mode == "ipvs" else ""
    message += "Connections that are open stay with their backends."
    remedy = "set mode: nftables in the proxy's configuration, one node first"
    yield Finding("move-mode", "I", "mode", message, evidence, None, remedy)
    if mode == "ipvs":
        yield from ipvs.find(known)
    yield from ports.find(known, programs, mode)
    yield from around.find(known, facts, mode)


def _mode(known: Known, programs: Sequence[Programmed]) -> tuple[str, tuple[Evidence, ...]]:
    """As the configuration or a log says it, else as the kernel shows it; "": neither does."""
    told = told_mode(known)
    if told is not None:
        return told.mode, (told.place,)
    if known.ipvs:
        first = next((p for p in programs if p.form == "ipvs"), None)
        return "ipvs", (first.place,) if first else ()
    first = next((p for p in programs if p.shares), None)
    return (first.form, (first.place,)) if first else ("", ())
