"""`iptables -L`, with or without -n, -v and --line-numbers: columns, then what each extension prints of itself.

A listing says less than `iptables-save`. Without -v it leaves out interfaces, without -n it gives names instead of
numbers; what is left out that way is a problem, and a match that nobody can answer.
"""

import re
from collections.abc import Callable, Iterator
from ipaddress import ip_network

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading, numbered
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.iptables.saved import Saved, tolerant_rule
from clusterip.rulesets.iptables.targets import EXTENSIONS
from clusterip.rulesets.iptables.text import quoted
from clusterip.rulesets.iptables.untold import Group, assembled

_CHAIN = re.compile(r"Chain (\S+) \((?:policy (\S+?)(?: (\S+) packets, (\S+) bytes)?|.*)\)")
_LONGEST = 8192  # characters; iptables bounds all that it prints of a rule
_HEADINGS = re.compile(r"(num +)?( *pkts +bytes +)?target +prot +opt +(in +out +)?source +destination")
_OPTIONS = frozenset(("--", "-f", "!f"))
_PROTOCOLS = {"1": "icmp", "6": "tcp", "17": "udp", "33": "dccp", "58": "ipv6-icmp", "132": "sctp", "136": "udplite"}
_EVERYWHERE = frozenset(("0.0.0.0/0", "::/0", "anywhere"))
_UNLISTED = v.OtherMatch("", ("interface", "not", "listed"))


def read(text: str, origin: Origin = INPUT) -> Reading[Saved]:
    problems = Problems(origin)
    reader = _Reader(problems, origin.line)
    for number, line in numbered(text.split("\n")):
        reader.take(number, line)
    if reader.without_interfaces:
        problems.add(-1, "listed without -v: it does not show which rules ask for an interface; list with -n -v")
    if reader.names:
        problems.add(-1, f"listed without -n: {', '.join(reader.names[:3])} may be resolved names; list with -n -v")
    return assembled(reader.groups, "listing", origin, problems)


class _Reader:
    def __init__(self, problems: Problems, first: int) -> None:
        self.groups: list[Group] = []
        self.without_interfaces = False
        self.names: list[str] = []
        self._problems = problems
        self._first = first
        self._chain = ""
        self._columns: list[str] = []

    def take(self, number: int, line: str) -> None:
        if found := _CHAIN.fullmatch(line):
            if not self.groups or found[1] in self.groups[-1].heads:  # what another table printed
                self.groups.append(Group())
            self._chain = found[1]
            counters = v.Counters(_count(found[3]), _count(found[4]))
            self.groups[-1].declare(v.Chain(found[1], (), found[2] or "-", counters))
        elif _HEADINGS.fullmatch(line):
            self._columns = line.split()
        elif line[0] == "#":
            return
        elif not self._chain or not self._columns or len(line) > _LONGEST:
            self._problems.unreadable(number, line)
        else:
            self._rule(number, line)

    def _rule(self, number: int, line: str) -> None:
        cells = _cells(line, self._columns)
        if cells is None:
            self._problems.unreadable(number, line)
            return
        sides = [cells[side].removeprefix("!") for side in ("source", "destination")]
        named = [side for side in sides if _is_name(side)]
        if "in" not in self._columns:
            self.without_interfaces = True
        spec, unread = _spec(cells)
        rule = tolerant_rule(f"-A x {spec}")
        unknown = [v.OtherMatch("", (name, "not", "resolved")) for name in named]
        if unread:
            unknown.append(v.OtherMatch("", tuple(unread.split())))
            named += re.findall(r"\b[ds]pts?:!?([a-zA-Z]\S*)", unread)
        bare = all(isinstance(match, v.Comment) for match in rule.matches)
        if bare and "in" not in self._columns and not self._chain.startswith("KUBE-"):
            # It looks as if it took everything; as likely it is for the loopback interface. kube-proxy's are what they
            # look like.
            unknown.append(_UNLISTED)
        self.names += [name for name in named if name not in self.names]
        counters = v.Counters(_count(cells["pkts"]), _count(cells["bytes"])) if "pkts" in cells else None
        found = v.Rule((*rule.matches, *unknown), rule.target, counters)
        self.groups[-1].append(self._chain, found, self._first + number)


def _cells(line: str, columns: list[str]) -> dict[str, str] | None:
    """The columns by their headings, and "" for the rest. The target may be empty, and in IPv6 `opt`."""
    words = line.split(None, len(columns))
    before = columns.index("target")
    if len(words) < len(columns) - 2:
        return None
    at = next((i for i in (before + 1, before + 2) if i < len(words) and words[i] in _OPTIONS), None)
    missing: set[str] = set()
    if at == before + 1:
        missing = {"target"}
    elif at is None:
        missing = {"opt"} if line[:1] != " " or "pkts" in columns else {"opt", "target"}
    present = [column for column in columns if column not in missing]
    words = line.split(None, len(present))
    if len(words) < len(present):
        return None
    cells = dict.fromkeys(missing, "") | dict(zip(present, words, strict=False))
    return {**cells, "": words[len(present)] if len(words) > len(present) else ""}


def _spec(cells: dict[str, str]) -> tuple[str, str]:
    """The rule as `iptables-save` would write it, and what of the listing could not be understood."""
    words: list[str] = []
    for option, column in (("-s", "source"), ("-d", "destination"), ("-i", "in"), ("-o", "out"), ("-p", "prot")):
        words += _column(option, cells.get(column, ""))
    if cells["opt"] in ("-f", "!f"):
        words += ["!", "-f"] if cells["opt"] == "!f" else ["-f"]
    matches, rest = _extensions(cells[""])
    goto = "[goto]" in rest
    target, rest = _target(cells["target"], rest.replace("[goto]", "").strip())
    if target and goto:
        target = f"-g{target[2:]}"
    return " ".join((*words, *matches, target)), rest


def _column(option: str, cell: str) -> list[str]:
    negated, name = (["!"], cell[1:]) if cell[:1] == "!" else ([], cell)
    if (
        name in ("", "*", "any", "all", "0")
        or (name in _EVERYWHERE and not negated)
        or (option in ("-s", "-d") and _is_name(name))
    ):
        return []
    if option == "-p":
        name = _PROTOCOLS.get(name, name)
    elif option in ("-s", "-d"):
        name = str(ip_network(name, strict=False))
    return [*negated, option, quoted(name)]


def _is_name(cell: str) -> bool:
    """Whether it is a host's or a network's name where an address was to be."""
    if cell in _EVERYWHERE:
        return False
    try:
        ip_network(cell, strict=False)
    except ValueError:
        return True
    return False


# --- what extensions print of themselves ----------------------------------------------------------------------------


def _extensions(text: str) -> tuple[list[str], str]:
    """Matches as options, and what is left: what the target says, and what nobody knows."""
    found: list[str] = []
    rest: list[str] = []
    while text := text.lstrip():
        for pattern, written in _MATCHES:
            if (matched := pattern.match(text)) and (options := written(matched)):
                found.append(options)
                text = text[matched.end() :]
                break
        else:
            word, _, text = text.partition(" ")
            rest.append(word)
    return found, " ".join(rest)


def _not(text: str | None) -> str:
    return "! " if text else ""


def _ports(found: re.Match[str]) -> str:
    """ "tcp dpt:80", "udp spts:1:5 dpt:!80", "tcp flags:0x17/0x02"."""
    words = [f"-m {found[1]}"]
    for part in found[2].split():
        name, _, value = part.partition(":")
        negated = value[:1] == "!"
        value = value.removeprefix("!")
        if name in ("dpt", "dpts", "spt", "spts") and re.fullmatch(r"\d+(:\d+)?", value):
            words.append(f"{'! ' if negated else ''}--{name[0]}port {value}")
        elif name == "flags" and (flags := _tcp_flags(value)):
            words.append(f"{'! ' if negated else ''}--tcp-flags {flags}")
        else:
            return ""
    return " ".join(words)


_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG")


def _tcp_flags(text: str) -> str:
    """ "0x17/0x02" -> "FIN,SYN,RST,ACK SYN"; names stay."""
    words: list[str] = []
    for part in text.split("/"):
        if part[:2] == "0x" and re.fullmatch(r"0x[0-9A-Fa-f]{1,2}", part):
            bits = int(part, 16)
            part = ",".join(flag for i, flag in enumerate(_FLAGS) if bits >> i & 1) or "NONE"
        words.append(part)
    return " ".join(words) if len(words) == 2 else ""


def _recent(found: re.Match[str]) -> str:
    action = {"SET": "set", "CHECK": "rcheck", "UPDATE": "update", "REMOVE": "remove"}[found[2]]
    side = {"source": "--rsource", "dest": "--rdest"}.get(found[8] or "", "")
    return " ".join(filter(None, (
        f"-m recent {_not(found[1])}--{action}",
        f"--seconds {found[3]}" if found[3] else "",
        "--reap" if found[4] else "",
        f"--hitcount {found[5]}" if found[5] else "",
        "--rttl" if found[6] else "",
        f"--name {quoted(found[7])}",
        f"--mask {found[9]}" if found[9] else "",
        side,
    )))  # fmt: skip


def _addrtype(found: re.Match[str]) -> str:
    words = ["-m addrtype"]
    for name, negated, kind in re.findall(r"(src|dst)-type (!?) ?(\S+)", found[0]):
        words.append(f"{_not(negated)}--{name}-type {kind}")
    words += [f"--limit-iface-{side}" for side in re.findall(r"limit-(in|out)", found[0])]
    return " ".join(words)


def _marked(module: str) -> Callable[[re.Match[str]], str]:
    return lambda found: f"-m {module} {_not(found[1])}--mark {found[2]}"


_Written = Callable[[re.Match[str]], str]
_MATCHES: tuple[tuple[re.Pattern[str], _Written], ...] = (
    (re.compile(r"/\* (.*?) \*/"), lambda m: f"-m comment --comment {quoted(m[1])}"),
    (re.compile(r"(tcp|udp|sctp|udplite|dccp)((?: (?:[sd]pts?|flags|option|types|UNKNOWN):\S+)*)(?=\s|$)"), _ports),
    (re.compile(r"mark match\s+(! ?)?(0x\S+)"), _marked("mark")),
    (re.compile(r"connmark match\s+(! ?)?(0x\S+)"), _marked("connmark")),
    (re.compile(r"statistic mode random( !)? probability (! ?)?([\d.]+)"),
     lambda m: f"-m statistic --mode random {_not(m[1] or m[2])}--probability {m[3]}"),
    (re.compile(r"statistic mode nth (! ?)?every (\d+)(?: packet (\d+))?"),
     lambda m: f"-m statistic --mode nth {_not(m[1])}--every {m[2]} --packet {m[3] or 0}"),
    (re.compile(r"(! )?recent: (SET|CHECK|UPDATE|REMOVE)(?: seconds: (\d+))?( reap)?(?: hit_count: (\d+))?( TTL-Match)?"
                r" name: (\S+)(?: side: (source|dest))?(?: mask: (\S+))?"), _recent),
    (re.compile(r"ADDRTYPE match(?: (?:src|dst)-type !? ?\S+)*(?: limit-(?:in|out))*"), _addrtype),
    (re.compile(r"(! )?ctstate (\S+)"), lambda m: f"-m conntrack {_not(m[1])}--ctstate {m[2]}"),
    (re.compile(r"(! )?state (\S+)"), lambda m: f"-m state {_not(m[1])}--state {m[2]}"),
    (re.compile(r"multiport (sports|dports|ports)\s+(! ?)?([\d,:]+)(?=\s|$)"),
     lambda m: f"-m multiport {_not(m[2])}--{m[1]} {m[3]}"),
    (re.compile(r"(! )?match-set (\S+) (\S+)"), lambda m: f"-m set {_not(m[1])}--match-set {quoted(m[2])} {m[3]}"),
    (re.compile(r"limit: (?:avg|up to) (\d+/\w+)(?: burst (\d+))?"),
     lambda m: f"-m limit --limit {m[1]}" + (f" --limit-burst {m[2]}" if m[2] and m[2] != "5" else "")),
    (re.compile(r"PHYSDEV match((?: (?:! )?--physdev-(?:in|out) \S+| (?:! )?--physdev-is-\w+)+)"),
     lambda m: f"-m physdev{m[1]}"),
    (re.compile(r"icmptype (\d+)(?: code (\d+))?"),
     lambda m: f"-m icmp --icmp-type {m[1]}{'/' + m[2] if m[2] else ''}"),
    (re.compile(r"nfacct-name\s+(\S+)"), lambda m: f"-m nfacct --nfacct-name {quoted(m[1])}"),
)  # fmt: skip

_MARK = re.compile(r"MARK (set|or|xor|and|xset) (0x[0-9a-fA-F]{1,8})(?:/(0x[0-9a-fA-F]{1,8}))?")
_TO = re.compile(r"to:(\S+)((?: (?:random-fully|random|persistent))*)")
_MASQUERADED = re.compile(r"(?:masq ports: (\S+))?((?: ?(?:random-fully|random))*)")
_REDIRECTED = re.compile(r"redir ports (\S+)((?: random)?)")
_REJECTED = re.compile(r"reject-with (\S+)")


def _target(name: str, rest: str) -> tuple[str, str]:
    """The target as an option, and what is not understood of the rest."""
    if not name:
        return "", rest
    for pattern, names, written in _TARGETS:
        if name in names and (found := pattern.search(rest)):
            return written(found, name), f"{rest[: found.start()]} {rest[found.end() :]}".strip()
    if name in EXTENSIONS and name not in ("ACCEPT", "DROP", "RETURN"):
        return f"-j {quoted(name)} {' '.join(map(quoted, rest.split()))}", ""  # what it says of itself
    return f"-j {quoted(name)}", rest


def _mark_target(found: re.Match[str], _: str) -> str:
    value, mask = int(found[2], 16), int(found[3], 16) if found[3] else 0xFFFFFFFF
    match found[1]:
        case "or":
            value, mask = value, value
        case "xor":
            mask = 0
        case "and":
            value, mask = 0, ~value & 0xFFFFFFFF
    return f"-j MARK --set-xmark {value:#x}/{mask:#x}"


def _flags(text: str) -> Iterator[str]:
    return (f" --{word}" for word in text.split())


_TARGETS: tuple[tuple[re.Pattern[str], tuple[str, ...], Callable[[re.Match[str], str], str]], ...] = (
    (_MARK, ("MARK",), _mark_target),
    (_TO, ("DNAT",), lambda m, _: f"-j DNAT --to-destination {m[1]}{''.join(_flags(m[2]))}"),
    (_TO, ("SNAT",), lambda m, _: f"-j SNAT --to-source {m[1]}{''.join(_flags(m[2]))}"),
    (_MASQUERADED, ("MASQUERADE",),
     lambda m, _: f"-j MASQUERADE{f' --to-ports {m[1]}' if m[1] else ''}{''.join(_flags(m[2]))}"),
    (_REDIRECTED, ("REDIRECT",), lambda m, _: f"-j REDIRECT --to-ports {m[1]}{''.join(_flags(m[2]))}"),
    (_REJECTED, ("REJECT",), lambda m, _: f"-j REJECT --reject-with {m[1]}"),
)  # fmt: skip


def _count(text: str | None) -> int:
    """ "12K" -> 12000: a listing without -x rounds."""
    found = re.fullmatch(r"(\d{1,20})([KMGT]?)", text or "0")
    return int(found[1]) * _THOUSANDS[found[2]] if found else 0


_THOUSANDS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
