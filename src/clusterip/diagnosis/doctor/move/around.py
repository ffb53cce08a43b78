"""What stands around the Services' rules and may rely on the mode: others' rules, tools, the kernel itself. Pure."""

import re
from collections.abc import Iterator

from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.doctor.move.ipvs import served
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.trace import Tracer
from clusterip.errors import BadInput
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.nft.text import rule_text

NAMED = 12
_OLDEST = (5, 13)  # of Linux. Source: kube-proxy's documentation of nftables mode
_ASKED = 8  # ways through FORWARD
_OURS = re.compile(r"KUBE-|KUBE_")
# In rules of others, what is gone after the move; and in manifests, what reads it.
_GONE = {
    "ipvs": re.compile(r"--match-set KUBE-|kube-ipvs0|-m ipvs\b|@KUBE-"),
    "iptables": re.compile(r"-[jg] KUBE-(?!FIREWALL|KUBELET)|(?:jump|goto) KUBE-(?!FIREWALL|KUBELET)"),
}
_READS = {
    "ipvs": re.compile(r"ipvsadm|ip_vs|kube-ipvs0|collector\.ipvs"),
    "iptables": re.compile(r"iptables-save|ip6?tables\b.*KUBE-|KUBE-(?:SVC|SEP|SERVICES|NODEPORTS)"),
}
_KINDS = ("DaemonSet", "Deployment", "StatefulSet", "CronJob", "Job", "Pod", "ConfigMap")


def find(known: Known, facts: Facts, mode: str) -> Iterator[Finding]:
    yield from _kernel(known)
    yield from _others_rules(known, mode)
    yield from _tools(known, mode)
    if mode == "ipvs":
        yield from _forward(known, facts)


def _kernel(known: Known) -> Iterator[Finding]:
    for given in known.of_kind("Bundle"):
        release = str(given.values.document.get("kernel", ""))
        found = re.match(r"(\d+)\.(\d+)", release)
        if found and (int(found[1]), int(found[2])) < _OLDEST:
            message = f"The kernel is {release}; nftables mode of kube-proxy needs Linux {_OLDEST[0]}.{_OLDEST[1]}."
            place = given.at(given.values.line, f"kernel: {release}")
            yield Finding("move-kernel", "E", "kernel", message, (place,), None, "a newer kernel first")


def _others_rules(known: Known, mode: str) -> Iterator[Finding]:
    found = [*_iptables_rules(known, mode), *_nft_rules(known, mode)]
    if not found:
        return
    message = f"{len(found)} {'rule' if len(found) == 1 else 'rules'} of others {'asks' if len(found) == 1 else 'ask'} "
    message += f"for what {mode} mode keeps in the kernel and nftables mode does not: they will never match, or cannot "
    message += "be loaded any more."
    remedy = "say it by addresses and ports: a packet for a Service has its backend's from prerouting on"
    yield Finding("move-foreign-rules", "W", "rules of others", message, tuple(found[:NAMED]), None, remedy)


def _iptables_rules(known: Known, mode: str) -> Iterator[Evidence]:
    built_in = {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
    for source in known.iptables:
        for table in source.values.ruleset:
            for chain in table.chains.values():
                if _OURS.match(chain.name):
                    continue
                for number, rule in enumerate(chain.rules):
                    text = line_text(chain.name, rule)
                    # The proxy's own jumps from built-in chains go with it.
                    own = chain.name in built_in and ("kube" in rule.comment or mode == "iptables")
                    if not own and _GONE[mode].search(text):
                        yield source.rule(table.name, chain.name, number, f"{table.name}: {text}")


def _nft_rules(known: Known, mode: str) -> Iterator[Evidence]:
    for source in known.nft:
        for table in source.values:
            if table.name in ("nat", "filter", "mangle", "raw", "kube-proxy", "clusterip"):
                continue  # iptables' own, which its dump tells better, or the proxy's
            for chain in table.chains.values():
                for number, rule in enumerate(chain.rules):
                    text = rule_text(rule)
                    if _GONE[mode].search(text):
                        name = f"{table.family} {table.name}"
                        yield source.rule(name, chain.name, number, f"{name} {chain.name}: {text}")


def _tools(known: Known, mode: str) -> Iterator[Finding]:
    for document in known.documents:
        manifest = document.values
        if manifest.kind not in _KINDS or manifest.name.startswith("kube-proxy"):
            continue
        said = next((t for t in _strings(manifest.document) if _READS[mode].search(t)), "")
        if said:
            line = next((part.strip() for part in said.splitlines() if _READS[mode].search(part)), said)
            object_ = f"{manifest.kind.lower()} {manifest.namespace}/{manifest.name}"
            message = f"It reads what {mode} mode keeps in the kernel, and will find nothing there."
            place = document.at(manifest.line, line[:200])
            remedy = "clusterip trace and clusterip verify read every mode; nft list table ip kube-proxy shows this one"
            yield Finding("move-tools", "W", object_, message, (place,), None, remedy)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)


def _forward(known: Known, facts: Facts) -> Iterator[Finding]:
    """What IPVS sends on passes INPUT and OUTPUT; in nftables mode a pod's packet to a Service passes FORWARD."""
    tracer = Tracer(facts)
    pods = [p.status.pod_ip for p in facts.pods if p.status.pod_ip and not p.spec.host_network]
    backends = sorted({(s.address, s.port) for one in served(known)[0] for s in one.server.servers})
    for address, port in backends[:_ASKED]:
        source = next((p for p in pods if p != address and (":" in p) == (":" in address)), "")
        if not source:
            continue
        destination = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            answer = tracer.ask(f"pod:{source}", destination)
        except BadInput:
            continue
        if answer.verdict in ("dropped", "rejected"):
            last = answer.steps[-1]
            message = (
                f"A pod's packet to a Service passes FORWARD in nftables mode, which IPVS goes around: {source} to "
            )
            message += f"{destination} would be {answer.verdict} there, as a packet to the pod itself is today."
            place = Evidence(f"{last.table} {last.chain}: {last.rule or last.effect}", last.file, last.line)
            remedy = "accept the pods' range in FORWARD: iptables -I FORWARD -s 10.244.0.0/16 -j ACCEPT"
            yield Finding("move-forward", "E", f"{last.table}/{last.chain}", message, (place,), None, remedy)
            return
