"""Whose rules these are: of a mode that is no longer the proxy's, or of a proxy that is no longer there. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clusterip.diagnosis.doctor import proxies
from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.doctor.programmed import Programmed, share_list
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.rulesets import proxylog

_REPLACED = {"true", "strict"}  # cilium-config: kube-proxy-replacement


class Told(NamedTuple):
    mode: str  # "iptables", "ipvs", "nftables", "ebpf"
    place: Evidence


def find(known: Known, programs: Sequence[Programmed], refused: bool) -> Iterator[Finding]:
    """`refused`: rules of another mode were found to refuse what IPVS serves; that says it better."""
    yield from _orphaned(known, programs)
    told = told_mode(known)
    if told is None:
        # A virtual server says what mode is in use, where nothing else does.
        served = [p for p in programs if p.form == "ipvs" and p.shares]
        told = Told("ipvs", served[0].place) if served and not known.nft else None
    # Beneath the sockets of eBPF mode nftables mode answers for the packets.
    used = {"ebpf", "nftables"} if told and told.mode == "ebpf" else {told.mode} if told else set()
    stale = [p for p in programs if told and p.form not in used and p.shares]
    if told is None or not stale or refused:
        return
    current = {p.frontend: p for p in programs if p.form in used}
    differing = [p for p in stale if p.frontend in current and current[p.frontend].shares != p.shares]
    p = (differing or stale)[0]
    message = f"The proxy runs in {told.mode} mode, and {len(stale)} frontends of {p.form} mode are still in the "
    message += f"kernel: {p.frontend} -> {share_list(p.shares)}. Nobody keeps them current. They take the packet "
    message += "before the rules in use do."
    evidence = (p.place, told.place)
    remedy = proxies.by(known, p.writer).cleanup
    yield Finding("stale-mode-rules", "E", f"{p.form} rules", message, evidence, None, remedy)


def told_mode(known: Known) -> Told | None:
    """As the log or the configuration says; the last one counts."""
    found: Told | None = None
    for config in known.of_kind("KubeProxyConfiguration"):
        mode = config.values.document.get("mode")
        if mode in ("iptables", "ipvs", "nftables", "ebpf"):
            found = Told(mode, config.at(config.values.line, f"KubeProxyConfiguration: mode: {mode}"))
    for log in known.logs:
        for event in proxylog.events(log.values):
            if isinstance(event, proxylog.ModeChosen):
                found = Told(event.mode, log.at(event.line, f"log: using {event.mode}"))
    return found


def _orphaned(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    ours = [p for p in programs if p.shares]
    if not ours:
        return
    p = ours[0]
    proxy = proxies.by(known, p.writer)
    # Our own proxy need be no pod.
    place = _replaced(known) or (_no_proxy(known) if proxy.name != proxies.OURS.name else None)
    if place is None:
        return
    message = f"{len(ours)} Service frontends are in the kernel ({p.frontend} -> {share_list(p.shares)} for one), and "
    message += f"no proxy keeps them: {place.text}. They go on rewriting packets as on the day it left."
    yield Finding("orphaned-rules", "E", f"{p.form} rules", message, (p.place, place), None, proxy.cleanup)


def _replaced(known: Known) -> Evidence | None:
    for document in known.of_kind("ConfigMap"):
        data = document.values.document.get("data")
        value = data.get("kube-proxy-replacement") if isinstance(data, dict) else None
        if str(value).lower() in _REPLACED:
            return document.at(document.values.line, f"{document.values.name}: kube-proxy-replacement: {value}")
    return None


def _no_proxy(known: Known) -> Evidence | None:
    """Of the pods of kube-system none is a proxy; as long as these were given at all."""
    sets = [d for d in known.of_kind("DaemonSet") if d.values.namespace == "kube-system"]
    if sets and not any("proxy" in d.values.name or "router" in d.values.name for d in sets):
        first = sets[0]
        names = ", ".join(d.values.name for d in sets[:3])
        return first.at(first.values.line, f"of {len(sets)} DaemonSets in kube-system ({names}) none is kube-proxy")
    system = [p for p in known.pods if p.metadata.namespace == "kube-system"]
    if len(system) < 2 or any("proxy" in p.metadata.name or "router" in p.metadata.name for p in system):
        return None
    return Evidence(f"of {len(system)} pods in kube-system none is kube-proxy")
