"""What is wrong with the Services of a cluster, from whatever was given: findings by stable ids. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from clusterip.diagnosis.doctor import (
    absent,
    affinity,
    chances,
    drift,
    firewall,
    hooked,
    host,
    ipvs,
    ipvs_addresses,
    kinds,
    logs,
    masquerade,
    modes,
    move,
    notfaults,
    ownpods,
    policies,
    proxies,
    ranges,
    refusals,
    selection,
    shadows,
    slices,
    sockets,
    structure,
    tables,
    tracking,
)
from clusterip.diagnosis.doctor import missing as lacking
from clusterip.diagnosis.doctor.known import Known, known
from clusterip.diagnosis.doctor.missing import Missing
from clusterip.diagnosis.doctor.nftlisted import with_listed
from clusterip.diagnosis.doctor.programmed import (
    Chains,
    Programmed,
    iptables_frontends,
    ipvs_frontends,
    names_by_digest,
)
from clusterip.diagnosis.doctor.programmed_nft import nft_frontends
from clusterip.diagnosis.doctor.programmed_own import own_frontends
from clusterip.diagnosis.facts import Input, merge
from clusterip.diagnosis.findings import Finding
from clusterip.rulesets.recognise import Recognised

# Findings that say why a Service has no endpoints: its refusal in the rules is then no news.
_EXPLAIN = frozenset(
    {"selector-matches-no-pod", "all-endpoints-not-ready", "named-port-missing", "family-mismatch", "no-endpoints"}
)


class Diagnosis(Struct, frozen=True, kw_only=True, rename="camel"):
    """As JSON it is an interface, like the answer of `trace`."""

    api_version: str = "clusterip/v1"
    kind: str = "Diagnosis"
    inputs: tuple[Input, ...] = ()
    findings: tuple[Finding, ...] = ()  # what costs most first
    missing: tuple[Missing, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 nothing is broken, 1 something is."""
        return int(any(f.level == "E" for f in self.findings))


def diagnose(
    inputs: Sequence[Recognised], node: str = "", *, moving: bool = False, proxy: proxies.Proxy | None = None
) -> Diagnosis:
    """`node`: whose view is asked for, by its name in the API; "": nobody's in particular. `moving`: not what is wrong,
    but what a move to nftables mode would change. `proxy`: the node's, if whoever asks knows it."""
    facts = merge(inputs, node)
    all_known = proxies.with_proxy(with_listed(known(inputs, node)), proxy)
    if moving:
        choices = [Chains(source.values.ruleset.tables.get("nat")) for source in all_known.iptables]
        found = list(move.find(all_known, facts, _programs(all_known, choices)))
    else:
        found = list(_findings(all_known, inputs, node))
    wanting = lacking.missing(all_known)
    found += lacking.find(all_known, wanting)
    return Diagnosis(
        inputs=facts.inputs,
        findings=tuple(sorted(dict.fromkeys(found), key=lambda finding: finding.rank)),
        missing=wanting,
    )


def _programs(known: Known, choices: Sequence[Chains]) -> tuple[Programmed, ...]:
    names = names_by_digest(known)
    return (
        *(
            p
            for source, chains in zip(known.iptables, choices, strict=True)
            for p in iptables_frontends(source, chains, names)
        ),
        *(p for rules in known.nft for p in nft_frontends(rules)),
        *(p for rules in known.nft for p in own_frontends(rules)),
        *ipvs_frontends(known),
        *sockets.socket_frontends(known),
    )


def _findings(known: Known, inputs: Sequence[Recognised], node: str) -> Iterator[Finding]:
    choices = [Chains(source.values.ruleset.tables.get("nat")) for source in known.iptables]
    programs = _programs(known, choices)
    unreached = tuple(hooked.find(known))
    files = {f.evidence[0].file for f in unreached}  # what they masquerade is no question then
    found = [
        *selection.find(known),
        *slices.find(known),
        *kinds.find(known),
        *policies.find(known),
        *ranges.find(known),
        *logs.find(known),
        *host.find(known, programs),
        *ownpods.find(known),
        *ipvs.find(known),
        *ipvs_addresses.find(known),
        *sockets.find(known),
        *unreached,
        *masquerade.find(known, [p for p in programs if p.file not in files]),
        *chances.find(known, programs),
        *affinity.find(known, programs),
        *drift.find(known, programs),
        *tracking.find(known, programs),
        *tables.find(known, programs),
        *firewall.find(known, merge(inputs, node), programs),
    ]
    # A slot that the maps lack is a backend that they do not use: one says it better.
    slots = {f.evidence[:1] for f in found if f.id == "ebpf-slot-missing"}
    found = [f for f in found if f.id != "missing-endpoint" or f.evidence[:1] not in slots]
    explained = {f.object.removeprefix("service ").partition(":")[0] for f in found if f.id in _EXPLAIN}
    refused = refusals.refusals(known)
    told = [*refusals.find(known, refused, programs, explained), *refusals.blackholes(known, refused)]
    found = [*policies.once(found, told)]
    found += absent.find(known, programs, refused)
    found += modes.find(known, programs, any(f.id == "stale-mode-rules" for f in told))
    found += shadows.find(known, choices, any(f.id == "host-firewall" for f in found))
    found += structure.find(known, [r for r in refused if not r.local])
    yield from found
    if not any(f.level == "E" for f in found):
        yield from notfaults.find(known, programs)
