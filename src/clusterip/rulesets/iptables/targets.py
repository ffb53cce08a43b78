"""The options of each target -> values."""

from collections.abc import Callable, Sequence

from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.iptables.options import ALL_BITS, Option, by_name, masked, value

# Targets that are no chains though they may stand without options. Source: iptables-extensions(8), 1.8.9.
EXTENSIONS = frozenset(
    {
        *("ACCEPT", "DROP", "RETURN", "QUEUE", "AUDIT", "CHECKSUM", "CLASSIFY", "CLUSTERIP", "CONNMARK", "CONNSECMARK"),
        *(
            "CT",
            "DNAT",
            "DNPT",
            "DSCP",
            "ECN",
            "HL",
            "HMARK",
            "IDLETIMER",
            "LED",
            "LOG",
            "MARK",
            "MASQUERADE",
            "MIRROR",
        ),
        *("NETMAP", "NFLOG", "NFQUEUE", "NOTRACK", "RATEEST", "REDIRECT", "REJECT", "SAME", "SECMARK", "SET", "SNAT"),
        *("SNPT", "SYNPROXY", "TCPMSS", "TCPOPTSTRIP", "TEE", "TOS", "TPROXY", "TRACE", "TTL", "ULOG"),
    }
)


def read_target(name: str, options: Sequence[Option]) -> v.Target:
    """None: it is not modelled, or not with these options."""
    read = _TARGETS.get(name)
    return read(options) if read else None


def _plain(target: v.Target) -> Callable[[Sequence[Option]], v.Target]:
    return lambda options: None if options else target


def _reject(options: Sequence[Option]) -> v.Target:
    match options:
        case []:
            return v.Reject()
        case [Option(False, "--reject-with", [how])]:
            return v.Reject(how)
    return None


def _set_mark(options: Sequence[Option]) -> v.Target:
    """All ways of writing it are one: clear the bits of a mask, then xor. Source: iptables-extensions(8), MARK."""
    match options:
        case [Option(False, name, [text])] if (found := masked(text)) is not None:
            value, mask = found
            match name:
                case "--set-xmark":
                    return v.SetMark(value, mask)
                case "--set-mark":
                    return v.SetMark(value, value | mask)
                case "--or-mark":
                    return v.SetMark(value, value)
                case "--and-mark":
                    return v.SetMark(0, ~value & ALL_BITS)
                case "--xor-mark":
                    return v.SetMark(value, 0)
    return None


def _masquerade(options: Sequence[Option]) -> v.Target:
    named = by_name(options)
    if named.keys() - {"--to-ports", "--random", "--random-fully"}:
        return None
    return v.Masquerade(value(named, "--to-ports", ""), "--random" in named, "--random-fully" in named)


def _dnat(options: Sequence[Option]) -> v.Target:
    named = by_name(options)
    if "--to-destination" not in named or named.keys() - {"--to-destination", "--random", "--persistent"}:
        return None
    return v.DNAT(value(named, "--to-destination", ""), "--random" in named, "--persistent" in named)


def _snat(options: Sequence[Option]) -> v.Target:
    named = by_name(options)
    known = {"--to-source", "--random", "--random-fully", "--persistent"}
    if "--to-source" not in named or named.keys() - known:
        return None
    flags = (name in named for name in ("--random", "--random-fully", "--persistent"))
    return v.SNAT(value(named, "--to-source", ""), *flags)


_TARGETS: dict[str, Callable[[Sequence[Option]], v.Target]] = {
    "ACCEPT": _plain(v.Accept()),
    "DROP": _plain(v.Drop()),
    "RETURN": _plain(v.Return()),
    "REJECT": _reject,
    "MARK": _set_mark,
    "MASQUERADE": _masquerade,
    "DNAT": _dnat,
    "SNAT": _snat,
}
