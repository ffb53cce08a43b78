"""The options of each match module -> values. What is not understood in full is kept as words."""

from collections.abc import Callable, Sequence
from typing import Literal, cast

from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.iptables.options import Option, by_name, masked, port_range, value, words_of

PORT_PROTOCOLS = frozenset({"tcp", "udp", "sctp", "udplite", "dccp"})
PORT_OPTIONS = frozenset({"--dport", "--sport", "--destination-port", "--source-port", "--syn", "--tcp-flags"})


def read_match(module: str, options: Sequence[Option]) -> v.Match:
    read = _MATCHES.get(module)
    found = read(module, options) if read else None
    return found if found is not None else v.OtherMatch(module, words_of(options))


def _comment(module: str, options: Sequence[Option]) -> v.Match | None:
    match options:
        case [Option(False, "--comment", [text])]:
            return v.Comment(text)
    return None


def _conntrack(module: str, options: Sequence[Option]) -> v.Match | None:
    match options:
        case [Option(negated, "--ctstate", [states])] if module == "conntrack":
            return v.ConnState(tuple(states.split(",")), negated)
        case [Option(negated, "--state", [states])] if module == "state":
            return v.ConnState(tuple(states.split(",")), negated, "state")
    return None


def _mark(module: str, options: Sequence[Option]) -> v.Match | None:
    match options:
        case [Option(negated, "--mark", [text])] if (found := masked(text)) is not None:
            return v.Mark(*found, negated)
    return None


def _statistic(module: str, options: Sequence[Option]) -> v.Match | None:
    named = by_name(options)
    match named:
        case {"--mode": Option(False, _, ["random"]), "--probability": Option(negated, _, [text])} if len(named) == 2:
            chance = _chance(text)
            return v.Random(chance, negated) if chance is not None else None
        case {"--mode": Option(False, _, ["nth"]), "--every": Option(negated, _, [every])}:
            packet = named.pop("--packet", Option(False, "", ["0"]))
            if len(named) == 2 and every.isdecimal() and packet.values[0].isdecimal():
                return v.Nth(int(every), int(packet.values[0]), negated)
    return None


def _chance(text: str) -> int | None:
    try:
        chance = float(text)
    except ValueError:
        return None
    return round(chance * 2**31) if 0 <= chance <= 1 else None


def _recent(module: str, options: Sequence[Option]) -> v.Match | None:
    named = by_name(options)
    actions = named.keys() & {"--set", "--rcheck", "--update", "--remove"}
    known = {"--seconds", "--reap", "--hitcount", "--rttl", "--name", "--mask", "--rsource", "--rdest"}
    if len(actions) != 1 or named.keys() - actions - known:
        return None
    [action] = actions
    numbers = {name: value(named, name, "0") for name in ("--seconds", "--hitcount")}
    if not all(text.isdecimal() for text in numbers.values()):
        return None
    side = "rdest" if "--rdest" in named else "rsource" if "--rsource" in named else ""
    return v.Recent(
        cast(Literal["set", "rcheck", "update", "remove"], action[2:]),
        name=value(named, "--name", "DEFAULT"),
        seconds=int(numbers["--seconds"]),
        reap="--reap" in named,
        hitcount=int(numbers["--hitcount"]),
        ttl="--rttl" in named,
        mask=value(named, "--mask", ""),
        side=cast(Literal["rsource", "rdest", ""], side),
        negated=named[action].negated,
    )


def _addrtype(module: str, options: Sequence[Option]) -> v.Match | None:
    named = by_name(options)
    limits = named.keys() & {"--limit-iface-in", "--limit-iface-out"}
    if not named or named.keys() - {"--src-type", "--dst-type"} - limits or len(limits) > 1:
        return None
    source, destination = named.get("--src-type"), named.get("--dst-type")
    return v.AddrType(
        source=source.values[0] if source else "",
        destination=destination.values[0] if destination else "",
        source_negated=source.negated if source else False,
        destination_negated=destination.negated if destination else False,
        limit=cast(Literal["in", "out", ""], next(iter(limits)).rpartition("-")[2] if limits else ""),
    )


def _nfacct(module: str, options: Sequence[Option]) -> v.Match | None:
    match options:
        case [Option(False, "--nfacct-name", [name])]:
            return v.NfAcct(name)
    return None


def _set(module: str, options: Sequence[Option]) -> v.Match | None:
    match options:
        case [Option(negated, "--match-set", [name, directions])]:
            return v.InSet(name, tuple(directions.split(",")), negated)
    return None


def _ports(module: str, options: Sequence[Option]) -> v.Match | None:
    source = destination = None
    negated = {"source": False, "destination": False, "flags": False}
    mask = flags = ""
    for option in options:
        match option:
            case Option(no, "--sport" | "--source-port", [text]) if source is None:
                source, negated["source"] = port_range(text), no
                if source is None:
                    return None
            case Option(no, "--dport" | "--destination-port", [text]) if destination is None:
                destination, negated["destination"] = port_range(text), no
                if destination is None:
                    return None
            case Option(no, "--tcp-flags", [mask_text, flags_text]) if module == "tcp" and not mask:
                mask, flags, negated["flags"] = mask_text, flags_text, no
            case Option(no, "--syn", []) if module == "tcp" and not mask:
                mask, flags, negated["flags"] = "FIN,SYN,RST,ACK", "SYN", no
            case _:
                return None
    return v.Ports(
        cast(Literal["tcp", "udp", "sctp", "udplite", "dccp"], module),
        source,
        destination,
        negated["source"],
        negated["destination"],
        mask,
        flags,
        negated["flags"],
    )


def _multiport(module: str, options: Sequence[Option]) -> v.Match | None:
    match options:
        case [Option(negated, "--sports" | "--dports" | "--ports" as side, [text])]:
            ranges = [port_range(part) for part in text.split(",")]
            if all(r is not None for r in ranges):
                kind = cast(Literal["sports", "dports", "ports"], side[2:])
                return v.MultiPort(kind, tuple(r for r in ranges if r), negated)
    return None


def _physdev(module: str, options: Sequence[Option]) -> v.Match | None:
    names = {"came_in": "", "goes_out": ""}
    negated = {"came_in": False, "goes_out": False}
    asked: dict[str, bool | None] = {"is-in": None, "is-out": None, "is-bridged": None}
    for option in options:
        match option:
            case Option(no, "--physdev-in", [name]):
                names["came_in"], negated["came_in"] = name, no
            case Option(no, "--physdev-out", [name]):
                names["goes_out"], negated["goes_out"] = name, no
            case Option(no, "--physdev-is-in" | "--physdev-is-out" | "--physdev-is-bridged" as text, []):
                asked[text.removeprefix("--physdev-")] = not no
            case _:
                return None
    if len({option.name for option in options}) < len(options):
        return None
    return v.PhysDev(
        names["came_in"],
        names["goes_out"],
        negated["came_in"],
        negated["goes_out"],
        asked["is-in"],
        asked["is-out"],
        asked["is-bridged"],
    )


def _limit(module: str, options: Sequence[Option]) -> v.Match | None:
    match options:
        case [Option(False, "--limit", [rate])]:
            return v.Limit(rate)
        case [Option(False, "--limit", [rate]), Option(False, "--limit-burst", [burst])] if burst.isdecimal():
            return v.Limit(rate, int(burst))
    return None


_MATCHES: dict[str, Callable[[str, Sequence[Option]], v.Match | None]] = {
    "comment": _comment,
    "conntrack": _conntrack,
    "state": _conntrack,
    "mark": _mark,
    "statistic": _statistic,
    "recent": _recent,
    "addrtype": _addrtype,
    "nfacct": _nfacct,
    "set": _set,
    "multiport": _multiport,
    "physdev": _physdev,
    "limit": _limit,
    **dict.fromkeys(PORT_PROTOCOLS, _ports),
}
