"""`iptables -S`: the rules of one table as commands."""

import re

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading, numbered
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.iptables.saved import Saved, tolerant_rule
from clusterip.rulesets.iptables.untold import Group, assembled

_COUNTERS = re.compile(r" -c (\d{1,20}) (\d{1,20})\b")


def read(text: str, origin: Origin = INPUT) -> Reading[Saved]:
    problems = Problems(origin)
    groups = [Group()]
    for number, line in numbered(text.split("\n")):
        command, _, rest = line.partition(" ")
        name, _, more = rest.partition(" ")
        if command in ("-P", "-N") and name:
            if name in groups[-1].heads:  # what another table printed
                groups.append(Group())
            policy, counters = _policy(more)
            groups[-1].declare(v.Chain(name, (), policy if command == "-P" else "-", counters))
        elif command == "-A" and name:
            groups[-1].append(name, _rule(line), origin.line + number)
        elif line[0] != "#":
            problems.unreadable(number, line)
    groups = [group for group in groups if group.heads]
    return assembled(groups, "rules", origin, problems)


def _policy(text: str) -> tuple[str, v.Counters]:
    """ "ACCEPT -c 12 720"."""
    found = _COUNTERS.search(" " + text)
    return text.split(" ", 1)[0], v.Counters(int(found[1]), int(found[2])) if found else v.Counters(0, 0)


def _rule(line: str) -> v.Rule:
    found = _COUNTERS.search(line)
    if found is None:
        return tolerant_rule(line)
    return tolerant_rule(f"[{found[1]}:{found[2]}] {line[: found.start()]}{line[found.end() :]}")
