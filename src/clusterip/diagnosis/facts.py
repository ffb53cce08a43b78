"""All that is known of one node and its cluster: from dumps, from the API, from a live kernel, in any mixture.

None, or an empty collection whose kind is not among `inputs`, means that it was not given, which is not the same as
that there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from clusterip.model.objects import EndpointSlice, Node, Pod, Service
from clusterip.rulesets.conntrack import Entries, Statistics
from clusterip.rulesets.evidence import Places, Problem
from clusterip.rulesets.ipset import IPSet
from clusterip.rulesets.iptables.values import Ruleset as IptablesRuleset
from clusterip.rulesets.ipvs import Connections as IPVSConnections
from clusterip.rulesets.ipvs import Services as IPVSServices
from clusterip.rulesets.nft.values import Ruleset as NftRuleset

NOWHERE = Places()


@dataclass(frozen=True, slots=True)
class Input:
    """One file, or one section of it."""

    file: str
    kind: str
    facts: int  # rules, entries, objects ...: how much it gave


@dataclass(frozen=True, slots=True)
class IptablesRules:
    """What one iptables variant holds for one family."""

    ruleset: IptablesRuleset
    variant: Literal["nft", "legacy", ""] = ""  # "": the text does not say
    ipv6: bool = False
    places: Places = NOWHERE


@dataclass(frozen=True, slots=True)
class NftRules:
    ruleset: NftRuleset
    places: Places = NOWHERE


@dataclass(frozen=True, slots=True)
class Facts:
    node: str = ""  # its name; "": not known
    iptables: tuple[IptablesRules, ...] = ()
    nft: tuple[NftRules, ...] = ()
    ipvs: IPVSServices | None = None
    ipvs_connections: IPVSConnections | None = None
    ipsets: Mapping[str, IPSet] = field(default_factory=dict)
    conntrack: Entries | None = None
    conntrack_statistics: Statistics | None = None
    sysctls: Mapping[str, str] = field(default_factory=dict)
    services: tuple[Service, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    problems: tuple[Problem, ...] = ()  # what could not be read
    inputs: tuple[Input, ...] = ()
