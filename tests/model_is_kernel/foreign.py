"""Firewalls of others, drawn: rules of the kinds that Docker, Calico, firewalld and ufw write, in tables of iptables or
in a table of nftables.
"""

import re
from typing import NamedTuple

from hypothesis import strategies as st
from tests.model_is_kernel.topology import CLIENT, NODE_IP, ONE, OUTSIDE, REMOTE, TWO

NETWORKS = (
    *(f"{a}/32" for a in (CLIENT, ONE, TWO, OUTSIDE, REMOTE, NODE_IP, "10.96.0.20")),
    *("10.244.0.0/16", "10.244.1.0/24", "10.96.0.0/16", "203.0.113.0/24", "192.168.50.0/24"),
)
OWN = ("FW-A", "FW-B", "FW-C")  # chains of the firewall's own; each jumps only to later ones
HOOKS = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}
CONNECTIONS = ("NEW", "RELATED,ESTABLISHED", "INVALID", "DNAT", "NEW,ESTABLISHED", "UNTRACKED", "SNAT")


class Rule(NamedTuple):
    table: str
    chain: str
    text: str
    first: bool = False  # before the Services' own rules


class Firewall(NamedTuple):
    """Of iptables. A policy is of a chain of the filter table."""

    rules: tuple[Rule, ...] = ()
    policies: tuple[tuple[str, str], ...] = ()


def _not(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from((text, text, f"! {text}"))


class Match(NamedTuple):
    kind: str  # a rule takes one of each
    text: str


@st.composite
def _match(draw: st.DrawFn, table: str, chain: str) -> Match:
    network = draw(st.sampled_from(NETWORKS))
    interface = draw(st.sampled_from(("cip0", "eth0", "cip+", "lo", "docker0")))
    mark = draw(st.sampled_from(("0x4000/0x4000", "0x10000/0x10000", "0x0/0xffff", "0x1")))
    kinds = [
        *(Match(side, draw(_not(f"{side} {network}"))) for side in ("-s", "-d")),
        Match("-p", draw(_not(f"-p {draw(st.sampled_from(('tcp', 'udp', 'icmp')))}"))),
        Match("mark", f"-m mark {draw(_not(f'--mark {mark}'))}"),
        Match("addrtype", f"-m addrtype {draw(_not('--dst-type LOCAL'))}"),
        Match("addrtype", "-m addrtype --src-type LOCAL"),
        Match("-p", f"-p tcp -m tcp {draw(_not(f'--dport {draw(st.sampled_from(PORTS))}'))}"),
        Match("-p", f"-p udp -m udp --dport {draw(st.sampled_from(PORTS))}"),
        Match("-p", f"-p tcp -m multiport {draw(_not(f'--dports {draw(st.sampled_from(MULTIPLE))}'))}"),
        Match("-p", "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN"),
        Match("statistic", "-m statistic --mode random --probability 0.50000000000"),
        Match("limit", "-m limit --limit 5/min --limit-burst 3"),
        Match("connmark", f"-m connmark {draw(_not('--mark 0x10000/0x10000'))}"),
        Match("set", f"-m set {draw(_not(f'--match-set {draw(st.sampled_from(IPSET_MATCHES))}'))}"),
        Match("iprange", "-m iprange --src-range 10.244.1.0-10.244.1.7"),
        Match("length", "-m length --length 40:80"),
        Match("pkttype", "-m pkttype --pkt-type unicast"),
        Match(
            "recent", f"-m recent {draw(st.sampled_from(('--set', '--rcheck', '--update --seconds 60')))} --name seen"
        ),
        Match("comment", f'-m comment --comment "{draw(st.sampled_from(("cali:h1", "ufw says no")))}"'),
    ]
    if chain not in ("OUTPUT", "POSTROUTING", *OWN):
        kinds.append(Match("-i", draw(_not(f"-i {interface}"))))
    if chain in ("PREROUTING", "INPUT", "FORWARD"):
        kinds.append(Match("physdev", f"-m physdev {draw(_not(draw(st.sampled_from(PHYSDEV_IN))))}"))
    if chain not in ("PREROUTING", "INPUT", *OWN):
        kinds.append(Match("-o", draw(_not(f"-o {interface}"))))
    if table != "raw":
        states = draw(_not(f"--ctstate {draw(st.sampled_from(CONNECTIONS))}"))
        kinds.append(Match("conntrack", f"-m conntrack {states}"))
    return draw(st.sampled_from(kinds))


PORTS = ("80", "8080", "30080", "53", "5353", "1:1023", "8000:9999")
PHYSDEV_IN = ("--physdev-in vclient", "--physdev-in v+", "--physdev-is-in")
# Sets of ipset, and matches of them.
IPSETS = f"""create pods hash:ip
add pods {CLIENT}
add pods {ONE}
create ranges hash:net
add ranges 10.244.0.0/16
add ranges 10.244.1.8/31 nomatch
create ports hash:ip,port
add ports 10.96.0.20,tcp:80
add ports {NODE_IP},udp:30080
"""
IPSET_MATCHES = ("pods src", "pods dst", "ranges src", "ranges dst", "ports dst,dst")
MULTIPLE = ("80,443", "8080,9090", "30080:30090,22", "22,25")


@st.composite
def _target(draw: st.DrawFn, table: str, chain: str) -> str:
    own = [c for c in OWN if chain not in OWN or c > chain]
    jumps = [f"-{draw(st.sampled_from('jg'))} {draw(st.sampled_from(own))}"] if own else []
    common = ["-j ACCEPT", "-j RETURN", "", *jumps, "-j LOG"]
    by_table = {
        "raw": ["-j CT --notrack", "-j DROP"],
        "mangle": ["-j MARK --set-xmark 0x10000/0x10000", "-j MARK --set-xmark 0x4000/0x4000", "-j DROP",
                   "-j MARK --set-xmark 0x1/0xffffffff", "-j CONNMARK --save-mark", "-j CONNMARK --restore-mark",
                   "-j CONNMARK --set-xmark 0x10000/0x10000"],
        "filter": ["-j DROP", "-j REJECT --reject-with icmp-port-unreachable",
                   "-j REJECT --reject-with icmp-host-prohibited", "-j DROP"],
    }  # fmt: skip
    nat = {
        "PREROUTING": [f"-p tcp -j DNAT --to-destination {TWO}:9090", f"-p tcp -j DNAT --to-destination {REMOTE}:8080"],
        "OUTPUT": [f"-p tcp -j DNAT --to-destination {ONE}:8080"],
        "POSTROUTING": ["-j MASQUERADE", f"-j SNAT --to-source {NODE_IP}"],
    }
    return draw(st.sampled_from(common + (nat.get(chain, []) if table == "nat" else by_table[table])))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    table = draw(st.sampled_from(("filter", "filter", "nat", "mangle", "raw")))
    chain = draw(st.sampled_from((*HOOKS[table], *HOOKS[table], *OWN)))
    target = draw(_target(table, chain))
    matches = draw(st.lists(_match(table, chain), max_size=2, unique_by=lambda match: match.kind))
    texts = [match.text for match in matches if not (match.kind == "-p" and target.startswith("-p"))]
    return Rule(table, chain, " ".join((*texts, target)).strip(), draw(st.booleans()))


@st.composite
def firewalls(draw: st.DrawFn) -> Firewall:
    drawn = draw(st.lists(rules(), max_size=8))
    policies = draw(st.sampled_from(((), (), (("FORWARD", "DROP"),), (("INPUT", "DROP"), ("FORWARD", "DROP")))))
    return Firewall((*drawn, *draw(st.sampled_from(TEMPLATES))), policies)


def _rules(table: str, first: bool, *lines: str) -> tuple[Rule, ...]:
    return tuple(Rule(table, line.split(" ", 1)[0], line.split(" ", 1)[1], first) for line in lines)


# As these programs lay out their rules, shortened.
TEMPLATES: tuple[tuple[Rule, ...], ...] = (
    (),
    (),
    _rules(  # firewalld: what is not asked for is refused
        "filter",
        False,
        "FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT",
        "FORWARD -i lo -j ACCEPT",
        "FORWARD -m conntrack --ctstate INVALID -j DROP",
        "FORWARD -j REJECT --reject-with icmp-host-prohibited",
        "INPUT -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT",
        "INPUT -i lo -j ACCEPT",
        "INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW,UNTRACKED -j ACCEPT",
        "INPUT -j REJECT --reject-with icmp-host-prohibited",
    ),
    _rules(  # Docker
        "filter",
        True,
        "FORWARD -j FW-A",
        "FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "FORWARD -i docker0 ! -o docker0 -j ACCEPT",
        "FW-A -i docker0 ! -o docker0 -j FW-B",
        "FW-A -j RETURN",
        "FW-B -o docker0 -j DROP",
        "FW-B -j RETURN",
    )
    + _rules("nat", False, "POSTROUTING -s 10.244.1.0/24 ! -o cip0 -j MASQUERADE"),
    _rules(  # Calico
        "filter",
        True,
        "FORWARD -j FW-A",
        "FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT",
        "FW-A -i cip+ -j FW-B",
        "FW-A -o cip+ -m conntrack --ctstate NEW -j FW-C",
        "FW-B -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        f"FW-B -s {CLIENT}/32 -j MARK --set-xmark 0x10000/0x10000",
        "FW-B -m mark --mark 0x10000/0x10000 -j RETURN",
        f"FW-C -d {TWO}/32 -j DROP",
        "FW-C -j MARK --set-xmark 0x10000/0x10000",
    ),
    _rules(  # a flannel node
        "nat",
        False,
        "POSTROUTING -j FLANNEL-POSTRTG",
        "FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN",
        "FLANNEL-POSTRTG -s 10.244.1.0/24 -d 10.244.0.0/16 -j RETURN",
        "FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE --random-fully",
        "FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.1.0/24 -j RETURN",
    ),
)


def text(tables: dict[str, dict[str, list[str]]], firewall: Firewall) -> str:
    """What iptables-restore takes: the Services' rules with the firewall's around them. All four tables."""
    lines: list[str] = []
    for table, builtin in HOOKS.items():
        chains: dict[str, list[str]] = {name: [] for name in (*builtin, *OWN)}
        chains |= {name: list(found) for name, found in tables.get(table, {}).items()}
        here = [rule for rule in firewall.rules if rule.table == table]
        for rule in here:
            before = [r.text for r in here if r.first and r.chain == rule.chain]
            after = [r.text for r in here if not r.first and r.chain == rule.chain]
            chains[rule.chain] = [*before, *tables.get(table, {}).get(rule.chain, ()), *after]
        policies = dict(firewall.policies) if table == "filter" else {}
        lines.append(f"*{table}")
        lines += [f":{name} {policies.get(name, 'ACCEPT') if name in builtin else '-'} [0:0]" for name in chains]
        lines += [f"-A {name} {rule}".rstrip() for name, found in chains.items() for rule in found]
        lines.append("COMMIT")
    return "\n".join(lines) + "\n"


# --- nftables --------------------------------------------------------------------------------------------------------

_NFT_MATCHES = (
    *(f"ip {side} {op}{network}" for side in ("saddr", "daddr") for op in ("", "!= ") for network in NETWORKS),
    *(f"ct state {op}{states}" for op in ("", "!= ") for states in ("new", "established,related", "invalid")),
    "ct state untracked",
    *("ct status dnat", "fib daddr type local", "meta mark & 0x4000 == 0x4000", "meta mark 0", "meta l4proto tcp"),
    *("tcp dport { 80, 8080 }", "udp dport 53", "th dport 30080", "tcp dport 1-1023"),
    "tcp flags & (fin|syn|rst|ack) == syn",
    *("ip saddr @some", "ip daddr . tcp dport @sockets", "ct mark 0x10000", "ct direction original"),
    *("limit rate 5/minute", "limit rate over 5/minute", 'oifname "eth0"', "ip ttl 64", "th dport != 80"),
    *("ip protocol { tcp, udp }", "meta mark and 0x10000 != 0", "ct original ip daddr 10.96.0.0/16"),
    *("fib saddr type local", "ip length 60", "meta nfproto ipv4"),
    *("numgen random mod 2 == 0", 'iifname "cip0"', 'iifname != "eth0"', 'iifname { "lo", "cip*" }'),
)  # fmt: skip
_NFT_REJECTS = ("reject", "reject with icmpx admin-prohibited")  # of no use where packets leave
_NFT_VERDICTS = ("accept", "drop", "return", "counter",
                 "meta mark set meta mark | 0x10000", "ct mark set meta mark", 'log prefix "x"',
                 "meta mark set ct mark", "ip protocol vmap { tcp : accept, udp : drop }", "notrack",
                 "numgen random mod 4 vmap { 0 : drop, 1 : accept }",
                 "ct state vmap { established : accept, new : continue }")  # fmt: skip
_NFT_SETS = f"""set some {{ type ipv4_addr; flags interval; elements = {{ {CLIENT}, 203.0.113.0/24 }}; }}
set sockets {{ type ipv4_addr . inet_service; elements = {{ 10.96.0.20 . 80, {TWO} . 8080 }}; }}"""
_NFT_NAT = (
    *(("prerouting", f"meta l4proto tcp dnat ip to {TWO}:9090"), ("output", f"meta l4proto tcp dnat ip to {ONE}:8080")),
    *(("postrouting", "masquerade"), ("postrouting", f"snat ip to {NODE_IP}"), ("prerouting", f"dnat ip to {TWO}")),
)
# Where packets leave it is not known whether the kernel still tells by which interface they came.
_NFT_BY_INTERFACE = ('iifname vmap { "cip0" : return, "lo" : accept }',)
_NFT_JUMPS = ("jump own", "goto own")
_REJECTING = ("input", "forward", "output")
_OF_HOOK = {
    hook: (
        *(*_NFT_VERDICTS, *_NFT_JUMPS),
        *(_NFT_REJECTS if hook in _REJECTING else ()),
        *(_NFT_BY_INTERFACE if hook != "postrouting" else ()),
    )
    for hook in ("prerouting", "input", "forward", "output", "postrouting")
}


@st.composite
def nft_tables(draw: st.DrawFn) -> str:
    """`inet firewall`: filter chains beside, before and after the Services'; "" now and then."""
    if draw(st.sampled_from((False, False, True))):
        return ""
    where = st.sampled_from(("prerouting", "input", "forward", "output", "postrouting"))
    chains = []
    for number, hook in enumerate(draw(st.lists(where, min_size=1, max_size=3))):
        priority = draw(st.sampled_from((-310, -150, -5, 10, 50, 150))) + number
        policy = draw(st.sampled_from(("accept", "accept", "accept", "drop")))
        found = "; ".join(draw(st.lists(_nft_rule(_OF_HOOK[hook]), max_size=4)))
        chains.append(
            f"chain base{number} {{ type filter hook {hook} priority {priority}; policy {policy}; {found}; }}"
        )
    for number, (hook, verdict) in enumerate(draw(st.lists(st.sampled_from(_NFT_NAT), max_size=2, unique=True))):
        found = draw(_nft_rule((verdict,)))
        priority = (100 if "routing" in hook and hook[:2] == "po" else -100) + draw(st.sampled_from((-20, -5, 5, 20)))
        chains.append(f"chain nat{number} {{ type nat hook {hook} priority {priority + number}; {found}; }}")
    own = "; ".join(draw(st.lists(_nft_rule(_NFT_VERDICTS), max_size=3)))
    return "table inet firewall {\n" + "\n".join([_NFT_SETS, f"chain own {{ {own}; }}", *chains]) + "\n}\n"


@st.composite
def _nft_rule(draw: st.DrawFn, verdicts: tuple[str, ...]) -> str:
    verdict = draw(st.sampled_from(verdicts))
    matches = draw(st.lists(st.sampled_from(_NFT_MATCHES), max_size=2, unique=True))
    fitting: list[str] = []
    for match in matches:  # nft refuses a rule that is of two protocols
        if len(set(_PROTOCOL.findall(" ".join((*fitting, match, verdict))))) < 2:
            fitting.append(match)
    return " ".join((*fitting, verdict))


# That a rule is of, not one in a set; before a match of ports nft takes a set of them for the last one in it.
_PROTOCOL = re.compile(r"\b(?:tcp|udp)\b(?!,| [:}])|ip protocol {")
