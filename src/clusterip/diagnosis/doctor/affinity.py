"""What ClientIP affinity does and does not promise. None of it is a fault. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.doctor.programmed import Programmed, service_name, share_list
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.nft import values as nft

DEFAULT_SECONDS = 10800


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    seconds = dict(_seconds(known))
    lists = _lists(known)
    for key in {**seconds, **{Key(*name.partition(":")[0].split("/")): 0 for name in lists}}:
        ports = _ports(known, key, programs)
        lasts = seconds.get(key) or next((s for n, (s, _) in lists.items() if n.partition(":")[0] == str(key)), 0)
        evidence = _evidence(known, key, lists)
        if len(ports) > 1:
            yield _per_port(key, ports, lasts, evidence, programs)
        yield _refresh(key, lasts or DEFAULT_SECONDS, evidence)


def _seconds(known: Known) -> Iterator[tuple[Key, int]]:
    for key, service in known.services.items():
        if service.spec.session_affinity == "ClientIP":
            config = service.spec.session_affinity_config
            yield key, config.client_ip.timeout_seconds if config and config.client_ip else DEFAULT_SECONDS


def _lists(known: Known) -> dict[str, tuple[int, list[Evidence]]]:
    """Service port -> how long its rules remember a client, and which rules do."""
    found: defaultdict[str, tuple[int, list[Evidence]]] = defaultdict(lambda: (0, []))
    for source in known.iptables:
        nat = source.values.ruleset.tables.get("nat")
        for name, chain in nat.chains.items() if nat else ():
            for number, rule in enumerate(chain.rules):
                name_ = service_name(rule.comment)
                recent = next((m for m in rule.matches if isinstance(m, ipt.Recent) and m.action == "rcheck"), None)
                if recent and name_ and rule.target is not None:
                    place = source.rule("nat", name, number, line_text(name, rule))
                    found[name_] = (recent.seconds, [*found[name_][1], place])
    for rules in known.nft:
        for table in rules.values:
            for held in table.sets.values():
                if held.name.startswith("affinity-") and (port := _port_of_set(held)):
                    place = Evidence(
                        f"table {table.family} {table.name}, set {held.name}: timeout {held.timeout}", rules.file
                    )
                    found[port] = (_duration(held.timeout), [*found[port][1], place])
    return dict(found)


def _port_of_set(held: nft.Set) -> str:
    """ "affinity-HASH-default/web/tcp/http__10.244.0.3/80" -> "default/web:http"."""
    parts = held.name.partition("-")[2].partition("-")[2].partition("__")[0].split("/")
    if len(parts) != 4:
        return ""
    return f"{parts[0]}/{parts[1]}" + (f":{parts[3]}" if parts[3] else "")


def _duration(text: str) -> int:
    """ "3h", "1m30s"; 0: it is none."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    total, number = 0, ""
    for letter in text:
        if letter.isdecimal():
            number += letter
        elif number and letter in units:
            total += int(number) * units[letter]
            number = ""
    return total


def _ports(known: Known, key: Key, programs: Sequence[Programmed]) -> list[str]:
    service = known.services.get(key)
    if service:
        return [f"{p.name or 'port'} {p.port}" for p in service.spec.ports or ()]
    return sorted(
        {f"{p.port_name or 'port'} {p.frontend.port}" for p in programs if p.key == key and p.frontend.address}
    )


def _evidence(known: Known, key: Key, lists: dict[str, tuple[int, list[Evidence]]]) -> tuple[Evidence, ...]:
    rules = [e for name, (_, places) in lists.items() if name.partition(":")[0] == str(key) for e in places[:1]]
    if key in known.services:
        rules.insert(0, known.evidence("Service", key, "sessionAffinity: ClientIP"))
    return tuple(rules)


def _per_port(
    key: Key, ports: Sequence[str], seconds: int, evidence: tuple[Evidence, ...], programs: Sequence[Programmed]
) -> Finding:
    message = f"ClientIP affinity is kept for each Service port by itself ({', '.join(ports)}): a client that uses "
    message += "two of them may be at two backends."
    of_it = {p.chain or str(p.frontend): p for p in programs if p.key == key and any(p.shares.values())}
    if len(of_it) > 1:
        shares = [sorted(p.shares.values()) for p in of_it.values()]
        if all(s == shares[0] for s in shares):
            same = sum((s * s for s in shares[0]), Fraction(0))
            message += " The first connections of a new client to two ports meet the same one with probability "
            message += f"{same.numerator}/{same.denominator}."
        message += f" {'; '.join(f'{p.frontend} -> {share_list(p.shares)}' for p in of_it.values())}."
    message += f" Each remembers for {seconds or DEFAULT_SECONDS} s from the client's last connection. This is not a "
    message += "fault."
    return Finding("affinity-per-port", "I", f"service {key}", message, evidence)


def _refresh(key: Key, seconds: int, evidence: tuple[Evidence, ...]) -> Finding:
    message = f"A client keeps its backend until {seconds} s after its last new connection, not after its first: one "
    message += "that connects often enough is never moved. This is not a fault."
    return Finding("affinity-refresh", "I", f"service {key}", message, evidence[:1])
