"""What the listings of iptables, ip and conntrack say, and what chance says. Pure."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

KERNEL_UNIT = 2**31  # xt_statistic keeps a probability as a multiple of 1 / 2^31


@dataclass(frozen=True, slots=True)
class Jump:
    """A rule of `iptables -S CHAIN -v` that jumps to another chain."""

    text: str  # without its counter
    to: str
    chance: Fraction  # that the rule matches when it is asked, as the kernel keeps it; 1 without a condition
    packets: int = 0


def jumps(listing: str) -> tuple[Jump, ...]:
    """In their order. Rules that end elsewhere (DNAT, MARK) are passed over."""
    found: list[Jump] = []
    for line in listing.splitlines():
        target = re.search(r" -[jg] (KUBE-S\S+)", line)
        if not line.startswith("-A ") or not target:
            continue
        counted = re.search(r" -c (\d+) \d+", line)
        odds = re.search(r" --probability (\S+)", line)
        chance = Fraction(round(float(odds[1]) * KERNEL_UNIT), KERNEL_UNIT) if odds else Fraction(1)
        text = re.sub(r" -c \d+ \d+", "", line)
        found.append(Jump(text, target[1], chance, int(counted[1]) if counted else 0))
    return tuple(found)


def in_chain(listing: str, chain: str) -> str:
    """The rules of one chain, out of the listing of a whole table."""
    return "\n".join(line for line in listing.splitlines() if line.startswith(f"-A {chain} "))


def backends(listing: str, chain: str) -> tuple[str, ...]:
    """The addresses and ports that a KUBE-SVC chain sends to, in the order of its rules, out of `iptables -S`."""
    return tuple(dnat(in_chain(listing, jump.to)) for jump in jumps(in_chain(listing, chain)) if "KUBE-SEP" in jump.to)


def odds(listing: str) -> tuple[str, ...]:
    """The words of `iptables -L` that say how likely a rule is."""
    return tuple(re.findall(r"probability [\d.]+", listing))


def shares(chances: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """How much of the whole each rule gets, when each is asked only if those before it did not match."""
    left, found = Fraction(1), []
    for chance in chances:
        found.append(left * chance)
        left *= 1 - chance
    return tuple(found)


def dnat(listing: str) -> str:
    """The address and port to which `iptables -S CHAIN` sends; "" if to none."""
    found = re.search(r" -j DNAT .*--to-destination (\S+)", listing)
    return found[1] if found else ""


def chain_of(listing: str, address: str, port: int) -> str:
    """The chain that `iptables -S KUBE-SERVICES` jumps to for this address and TCP port; "" if none."""
    for line in listing.splitlines():
        if f"-d {address}/32 " in line and "-p tcp" in line and f"--dport {port} " in line:
            found = re.search(r" -[jg] (KUBE-SV[CL]-\S+)", line)
            if found:
                return found[1]
    return ""


@dataclass(frozen=True, slots=True)
class Tuple:
    """One direction of a connection."""

    source: str
    destination: str
    source_port: int
    destination_port: int

    def __str__(self) -> str:
        return f"{self.source}:{self.source_port} > {self.destination}:{self.destination_port}"


_TUPLE = re.compile(r"src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)")


def tracked(listing: str) -> tuple[tuple[Tuple, Tuple], ...]:
    """Of each entry of `conntrack -L`: the way there, and the way back that is expected."""
    found: list[tuple[Tuple, Tuple]] = []
    for line in listing.splitlines():
        sides = [Tuple(a, b, int(c), int(d)) for a, b, c, d in _TUPLE.findall(line)]
        if len(sides) == 2:
            found.append((sides[0], sides[1]))
    return tuple(found)


def addresses(listing: str) -> tuple[str, ...]:
    """Every address that `ip -brief address` shows, without its prefix length."""
    return tuple(
        word.split("/")[0]
        for line in listing.splitlines()
        for word in line.split()[2:]
        if re.match(r"[0-9a-f.:]+/", word)
    )


@dataclass(frozen=True, slots=True)
class Evenness:
    chi_square: float
    p: float  # how often an even spread looks at least this uneven


def evenness(counts: Sequence[int]) -> Evenness:
    """Pearson's test of equal shares. At least two counts, their sum positive."""
    mean = sum(counts) / len(counts)
    chi_square = sum((count - mean) ** 2 / mean for count in counts)
    return Evenness(chi_square, chi_square_tail(chi_square, len(counts) - 1))


def chi_square_tail(value: float, degrees: int) -> float:
    """P(X >= value) for X of the chi-square distribution.

    By the recurrence of the incomplete gamma function, upwards from 1/2 (odd degrees) or 1 (even ones).
    Source: Abramowitz and Stegun, 26.4.4 and 26.4.5.
    """
    half = value / 2
    if half == 0:
        return 1.0
    a = 0.5 if degrees % 2 else 1.0
    tail = math.erfc(math.sqrt(half)) if degrees % 2 else math.exp(-half)
    while a < degrees / 2:
        tail += math.exp(a * math.log(half) - half - math.lgamma(a + 1))
        a += 1
    return min(tail, 1.0)
