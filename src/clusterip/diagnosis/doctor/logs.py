"""What kube-proxy's log, its configuration and its health say of how current the rules are. Pure."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from clusterip.diagnosis.doctor import proxies
from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.programmed import service_name
from clusterip.diagnosis.doctor.programmed_nft import name_of
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.packet import socket
from clusterip.rulesets import klog, proxylog
from clusterip.rulesets.evidence import shortened

LATE = 120.0  # seconds: a minute is the longest that kube-proxy goes without a sync
SLOW_SYNC = 10.0  # seconds: ten times the period at which kube-proxy takes up changes


def find(known: Known) -> Iterator[Finding]:
    yield from _in_trouble(known)
    yield from _unhealthy(known)
    for log in known.logs:
        events = proxylog.events(log.values)
        failed = [e for e in events if isinstance(e, proxylog.SyncFailed)]
        yield from _locked(known, log, [e for e in failed if e.locked])
        yield from _failing(known, log, [e for e in failed if not e.locked], events)
        yield from _slow(known, log, [e for e in events if isinstance(e, proxylog.SyncTook)], events)
        yield from _stopped(known, log, [e for e in events if isinstance(e, proxylog.Stopped)])


def _in_trouble(known: Known) -> Iterator[Finding]:
    trouble = known.proxy.trouble
    if trouble:
        evidence = (Evidence(trouble.evidence),)
        remedy = known.proxy.logs if trouble.id == "sync-failing" else known.proxy.restart()
        yield Finding(trouble.id, "E", f"node {known.node}", trouble.message, evidence, None, remedy)


def _unhealthy(known: Known) -> Iterator[Finding]:
    """/healthz that tells on itself: the last update is long ago."""
    for health in known.healthz:
        last, now = _when(health.values.last_updated), _when(health.values.current_time)
        if last is None or now is None or (now - last).total_seconds() < LATE:
            continue
        message = f"The proxy has finished no sync for {_time((now - last).total_seconds())}: its last was at "
        message += f"{health.values.last_updated}. What changed since is not in the kernel."
        evidence = (
            health.at(1, f"lastUpdated {health.values.last_updated}, currentTime {health.values.current_time}"),
        )
        remedy = f"{known.proxy.logs}   # why; then restart it"
        yield Finding("sync-failing", "E", f"{_named(known.proxy)} ({health.file})", message, evidence, None, remedy)


def _named(proxy: proxies.Proxy) -> str:
    """In an object's name, which scripts know: kube-proxy where either may be meant."""
    return proxies.KUBE_PROXY.name if proxy is proxies.EITHER else proxy.name


def _object(known: Known, log: Sourced[klog.Log]) -> str:
    return f"{_named(proxies.of_log(known, log.values))} ({log.file})"


def _when(text: str) -> datetime | None:
    """ "2021-10-18 20:50:44.12 +0000 UTC", to the second."""
    try:
        return datetime.strptime(text[:19].replace("T", " "), "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None


def _failing(
    known: Known, log: Sourced[klog.Log], failed: Sequence[proxylog.SyncFailed], events: Sequence[proxylog.Event]
) -> Iterator[Finding]:
    if not failed:
        return
    proxy = proxies.of_log(known, log.values)
    last = failed[-1]
    refused = _refused_rules(log.values, last.line)
    chains = sorted({chain for e in failed for chain in e.chains})
    program = last.program or "the kernel"
    partial = bool(chains)
    scope = "What the batch would have changed is old" if partial else "No Service of this node is updated"
    message = (
        f"{program} refused the last changes of {proxy.name}{_at_lines(last)}: {shortened(last.why, 200)}. A batch is "
    )
    message += f"applied as a whole or not at all. {scope} until one is accepted."
    if chains:
        message += f" The kernel lacks {', '.join(chains)}: the names are hashes of Service and port, so which Service "
        message += "it is must be computed, not read from the log."
    if affected := _affected(refused):
        message += f" Among them: {', '.join(affected)}."
    cause, remedy = _cause(proxy, last.why, refused, partial)
    message += f" {cause}" if cause else ""
    evidence = [log.at(last.line, shortened(last.why, 300)), *refused]
    yield Finding("sync-failing", "E", _object(known, log), message, tuple(evidence), None, remedy)


def _at_lines(event: proxylog.SyncFailed) -> str:
    if not event.lines:
        return ""
    shown = ", ".join(map(str, event.lines[:5]))
    return f" at line {shown} of the batch" if len(event.lines) == 1 else f" at lines {shown} of the batch"


def _refused_rules(log: klog.Log, line: int) -> list[Evidence]:
    """The rules that the log quotes beside the refusal."""
    entry = next((e for e in log.entries if e.line == line), None)
    quoted = [text.strip() for text in (*log.before, *(entry.body if entry else ()))]
    return [
        Evidence(shortened(t, 300)) for t in quoted if t.startswith(("-A ", "add rule ", "add element ", "add map "))
    ]


_FRONTEND = re.compile(r"(?:daddr|-d) ([\da-fA-F.:]+?)(?:/\d+)? .*?dport (\d+)")


def _affected(refused: Sequence[Evidence]) -> list[str]:
    """The Service ports that the refused rules are of, as their chains and comments name them."""
    found: dict[str, str] = {}
    for evidence in refused:
        words = evidence.text.split()
        names = [name for name in (*map(name_of, words), service_name(_quoted(evidence.text))) if name]
        where = _FRONTEND.search(evidence.text)
        for name in names[:1]:
            found.setdefault(name, f"{name} ({socket(where[1], int(where[2][:5]))})" if where else name)
    return list(found.values())


def _quoted(text: str) -> str:
    return text.split('"')[1] if text.count('"') > 1 else ""


def _cause(proxy: proxies.Proxy, why: str, refused: Sequence[Evidence], partial: bool) -> tuple[str, str]:
    """What is known to lead to such a refusal, and what ends it."""
    rules = " ".join(e.text for e in refused)
    if "Interface does not exist" in why:
        return (
            '"iif" wants an interface that exists; a prefix of names needs "iifname". '
            "Some versions of kube-proxy write it so with detectLocalMode: InterfaceNamePrefix.",
            "upgrade kube-proxy, or set detectLocalMode: ClusterCIDR and clusterCIDR in its configuration; "
            + proxy.restart(),
        )
    if " -s  " in rules or "Bad argument" in why:
        return (
            "A rule has an option without its value: -s with nothing after it is a cluster CIDR that is not set.",
            f"set clusterCIDR in the proxy's configuration (--cluster-cidr); {proxy.restart()}",
        )
    if partial:
        return (
            "Somebody flushed the table, or the proxy lost count of what is in it.",
            proxy.restart("that writes everything anew"),
        )
    if "Couldn't load match" in why or "Extension" in why or "No such file" in why or "not supported" in why.lower():
        return (
            "The kernel lacks a module that the rules need.",
            f"modprobe xt_comment xt_mark xt_statistic; {proxy.restart()}",
        )
    return "", proxy.restart("and look at its first errors")


def _locked(known: Known, log: Sourced[klog.Log], failed: Sequence[proxylog.SyncFailed]) -> Iterator[Finding]:
    if not failed:
        return
    first, last = failed[0], failed[-1]
    message = f"{len(failed)} sync{'s were' if len(failed) > 1 else ' was'} aborted (first {first.time}, last "
    message += f"{last.time}) while another program held the xtables lock: the rules are as old as the last sync that "
    message += "got it."
    evidence = [log.at(last.line, shortened(last.why, 300))]
    for health in known.healthz:
        message += " That /healthz answers is no evidence that the rules are current."
        evidence.append(health.at(1, f"lastUpdated: {health.values.last_updated}"))
    remedy = "lsof /run/xtables.lock   # who holds it; then compare rules with slices: clusterip verify"
    yield Finding("xtables-lock", "W", _object(known, log), message, tuple(evidence), None, remedy)


def _slow(
    known: Known, log: Sourced[klog.Log], took: Sequence[proxylog.SyncTook], events: Sequence[proxylog.Event]
) -> Iterator[Finding]:
    slow = [e for e in took if e.seconds >= SLOW_SYNC]
    if not slow:
        return
    worst = max(slow, key=lambda e: e.seconds)
    sizes = [e for e in events if isinstance(e, proxylog.Reloading)]
    size = f" for {sizes[-1].services} Services and {sizes[-1].endpoints} endpoints" if sizes else ""
    others = ", ".join(_time(e.seconds) for e in took if e is not worst)
    message = f"A sync took {_time(worst.seconds)}{size}" + (f" (others: {others})" if others else "") + ". A change "
    message += "reaches this node's kernel up to that late, and rules in a dump may be as old."
    evidence = tuple(log.at(e.line, f"sync took {_time(e.seconds)}") for e in slow)
    evidence += tuple(log.at(e.line, f"{e.services} Services, {e.endpoints} endpoints") for e in sizes[-1:])
    remedy = "upgrade the proxy (newer ones write only what changed); raise minSyncPeriod in its configuration to "
    remedy += "sync less often but more at a time"
    yield Finding("slow-sync", "W", _object(known, log), message, evidence, None, remedy)


def _time(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)} min {rest:.0f} s" if minutes else f"{rest:.1f} s"


def _stopped(known: Known, log: Sourced[klog.Log], stopped: Sequence[proxylog.Stopped]) -> Iterator[Finding]:
    if not stopped:
        return
    proxy = proxies.of_log(known, log.values)
    last = stopped[-1]
    message = f"The proxy ended: {shortened(last.why, 240)}. The rules are frozen as the last good sync left them; "
    message += "on a node that was just started there are none."
    evidence = [log.at(last.line, shortened(last.why, 300))]
    remedy = f"{proxy.logs} --previous" if proxy is proxies.KUBE_PROXY else proxy.logs
    if "nf_conntrack_max" in last.why or ("conntrack" in last.why and "permission denied" in last.why):
        message += " It may not set this sysctl: it runs in a container that is not allowed to, or in a network "
        message += "namespace other than the host's."
        remedy = "in its configuration: conntrack: {maxPerCore: 0, min: 0}, or set it on the host: sysctl -w "
        remedy += f"net.netfilter.nf_conntrack_max={_wanted_max(log.values) or 131072}"
    for config in known.of_kind("KubeProxyConfiguration"):
        conntrack = config.values.document.get("conntrack")
        if isinstance(conntrack, dict):
            shown = ", ".join(f"{k}: {'null' if v is None else v}" for k, v in conntrack.items())
            evidence.append(
                config.at(config.values.line, f"conntrack: {{{shown}}} (null is the default: 32768 a core)")
            )
    yield Finding("proxy-not-running", "E", _object(known, log), message, tuple(evidence), None, remedy)


def _wanted_max(log: klog.Log) -> str:
    return next((e.fields["nfConntrackMax"] for e in reversed(log.entries) if "nfConntrackMax" in e.fields), "")
