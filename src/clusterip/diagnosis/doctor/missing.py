"""What was not given, and what it would tell: the command that gives it. Nothing is guessed in its place. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.findings import Evidence, Finding

NAMED = 5
_OBJECTS = "kubectl get services,endpointslices,pods,nodes -A -o yaml"


class Missing(Struct, frozen=True):
    what: str  # "API objects"
    command: str  # that prints it
    why: str


def missing(known: Known) -> tuple[Missing, ...]:
    return tuple(_missing(known))


def _missing(known: Known) -> Iterator[Missing]:
    if not (known.services or known.slices or known.endpoints):
        yield Missing(
            "the API's objects", _OBJECTS, "whether the rules hold what the API says; which pods stand behind"
        )
    elif not known.slices and not known.endpoints:
        yield Missing("EndpointSlices", _OBJECTS, "which backends each Service has")
    if not known.holds_rules:
        command = "iptables-save; ip6tables-save; nft list ruleset; ipvsadm -Ln; ipset save"
        yield Missing("the node's rules", command, "what the kernel of a node does with the Services")
    yield from _tables(known)
    if known.ipvs and not known.interfaces:
        yield Missing("the node's addresses", "ip addr", "whether kube-ipvs0 carries an address of a node")
    if not known.conntrack and known.holds_rules:
        yield Missing("the connection table", "conntrack -L", "whether old entries overrule the rules")


def _tables(known: Known) -> Iterator[Missing]:
    """A dump of one table says nothing of the others; a listing leaves out interfaces and masks."""
    tables = {table.name for source in known.iptables for table in source.values.ruleset}
    if known.iptables and not {"nat", "filter"} <= tables:
        lacking = " and ".join(sorted({"nat", "filter"} - tables))
        yield Missing(f"the table {lacking}", "iptables-save", "which rules refuse, accept or rewrite a packet besides")
    hidden = any(t.name in ("nat", "filter") and "KUBE-SERVICES" in t.chains for s in known.nft for t in s.values)
    if hidden and not known.iptables:
        yield Missing("whole rules", "iptables-save", "what nft only names of the rules of iptables")
    if any(source.values.told_by == "listing" for source in known.iptables):
        yield Missing(
            "whole rules", "iptables-save", "what `iptables -L` leaves out: interfaces, which table, every chain"
        )


def find(known: Known, lacking: Sequence[Missing]) -> Iterator[Finding]:
    problems = known.problems
    yield from _mixed(known)
    if not lacking and not problems:
        return
    message = "To say more, give also: " + "; ".join(f"{m.command} ({m.why})" for m in lacking) + "." if lacking else ""
    if problems:
        message += (
            f" {len(problems)} lines or files could not be read."
            if len(problems) > 1
            else " One line could not be read."
        )
    evidence = tuple(Evidence(p.why, p.file, p.line) for p in problems[:NAMED])
    remedy = lacking[0].command if lacking else ""
    yield Finding("incomplete-input", "I", "input", message.strip(), evidence, None, remedy)


def _mixed(known: Known) -> Iterator[Finding]:
    """iptables-nft warns that iptables-legacy has tables as well."""
    warned = [source for source in known.iptables if source.values.legacy_too]
    if not warned or any(source.values.variant == "legacy" for source in known.iptables):
        return
    message = "iptables warns that its legacy variant has tables too, and they are not in what was given: their "
    message += "rules may take a packet before those that are."
    evidence = (Evidence("# Warning: iptables-legacy tables present", warned[0].file),)
    remedy = "iptables-legacy-save   # and give it together with this dump"
    yield Finding("mixed-backends", "W", "iptables-legacy", message, evidence, None, remedy)
