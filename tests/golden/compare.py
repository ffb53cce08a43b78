"""When two iptables-save texts are the same set of rules.

Counters, notes and the order of chains do not count. The order of rules in a chain does, but in the chains that all
Services share, where only a last catch-all rule must stay last. Of others' chains only the jumps into ours count.
"""

import re

ANY_ORDER = frozenset({"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL"})
NFACCT = re.compile(r" -m nfacct --nfacct-name \S+")


def differences(want: str, got: str, *, nfacct: bool = True) -> list[str]:
    """A line for each rule and chain that one has and the other has not; [] if they are the same.

    `nfacct` off: `got` comes from a kernel without these counters.
    """
    wanted, found = _rules(want, nfacct), _rules(got, nfacct)
    said = []
    for key in sorted(wanted.keys() | found.keys()):
        left, right = wanted.get(key), found.get(key)
        if left == right:
            continue
        place = "/".join(key)
        if left is None or right is None:
            said.append(f"{place}: the chain is {'extra' if left is None else 'missing'}")
            continue
        said += [f"{place}: missing: {rule}" for rule in left if rule not in right]
        said += [f"{place}: extra: {rule}" for rule in right if rule not in left]
        if sorted(left) == sorted(right):
            said.append(f"{place}: the same rules in another order")
    return said


def _rules(text: str, nfacct: bool) -> dict[tuple[str, str], list[str]]:
    table = ""
    chains: dict[tuple[str, str], list[str]] = {}
    for raw in text.splitlines():
        line = re.sub(r"\s+", " ", raw.strip())
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":KUBE-"):
            chains.setdefault((table, line[1:].split()[0]), [])
        elif line.startswith("-A "):
            if not nfacct and "localhost_nps_accepted_pkts" in line:
                continue  # the rule is there for its counter only
            line = line if nfacct else NFACCT.sub("", line)
            chain = line.split()[1]
            if chain.startswith("KUBE-") or "-j KUBE-" in line:
                chains.setdefault((table, chain), []).append(line)
    for (_, chain), rules in chains.items():
        if chain in ANY_ORDER:
            last = rules[-1:] if rules and "must be the last rule" in rules[-1] else []
            rules[:] = sorted(rules[: len(rules) - len(last)]) + last
    return {key: rules for key, rules in chains.items() if "CANARY" not in key[1]}
