"""What `iptables-restore --noflush` makes of a ruleset. Pure: the kernel's half of a test, without a kernel.

One block (*table ... COMMIT) is one transaction. Where one is refused, those before it stand.
"""

from collections.abc import Iterator

from clusterip.errors import ClusterIPError
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.iptables.parse import BadRuleset, parse_rule, read_chain, read_counters

BUILT_IN: dict[str, tuple[str, ...]] = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}


class RestoreRefused(ClusterIPError):
    """A line cannot be carried out. `ruleset` is what stands: all that blocks before did, nothing of this one."""

    def __init__(self, line: int, why: str, ruleset: v.Ruleset) -> None:
        super().__init__(f"iptables-restore: line {line} failed: {why}")
        self.line = line
        self.why = why
        self.ruleset = ruleset


class _Refused(Exception):
    pass


def empty(*tables: str) -> v.Ruleset:
    """The built-in chains of `tables` (none given: nat, filter and mangle) without a rule."""
    wanted = tables or ("mangle", "nat", "filter")
    return v.Ruleset({t: v.Table(t, {c: v.Chain(c, (), "ACCEPT") for c in BUILT_IN[t]}) for t in wanted})


def restore(ruleset: v.Ruleset, text: str) -> v.Ruleset:
    """`ruleset` after `text`. Raises RestoreRefused."""
    tables = dict(ruleset.tables)
    block: _Block | None = None
    number = 0
    try:
        for at, line in _lines(text):
            number = at
            if line.startswith("*"):
                name = line[1:]
                if name not in tables:
                    raise _Refused(f"no table {name!r}")
                block = _Block(tables[name])
            elif block is None:
                raise _Refused(f"{line!r} stands in no table")
            elif line == "COMMIT":
                tables[block.name] = block.close()
                block = None
            else:
                block.take(line)
        if block is not None:
            raise _Refused("COMMIT expected")
    except (_Refused, BadRuleset) as error:
        why = error.message if isinstance(error, BadRuleset) else str(error)
        raise RestoreRefused(number, why, v.Ruleset(tables)) from error
    return v.Ruleset(tables)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if (stripped := line.strip()) and not stripped.startswith("#"):
            yield number, stripped


class _Block:
    """One table on its way through one transaction."""

    def __init__(self, table: v.Table) -> None:
        self.name = table.name
        self.chains = dict(table.chains)
        self.rules = {name: list(c.rules) for name, c in table.chains.items()}

    def close(self) -> v.Table:
        for name, rules in self.rules.items():
            for rule in rules:
                match rule.target:
                    case v.Jump(chain) | v.Goto(chain) if chain not in self.chains:
                        raise _Refused(f"a rule of {name} leads to {chain}, which is not there")
                    case _:
                        pass
        chains = {
            n: v.Chain(n, tuple(self.rules[n]), self.chains[n].policy, self.chains[n].counters) for n in self.chains
        }
        return v.Table(self.name, chains)

    def take(self, line: str) -> None:
        if line[0] == ":":
            return self._declare(line)
        counters, line = read_counters(line)
        command, _, rest = line.partition(" ")
        chain, _, spec = rest.strip().partition(" ")
        match command:
            case "-N":
                if chain in self.chains:
                    raise _Refused(f"chain {chain} is there already")
                self._declare(f":{chain} - [0:0]")
            case "-A":
                self._of(chain).append(_counted(spec, counters))
            case "-I":
                position, spec = _position(spec)
                self._of(chain).insert(position - 1, _counted(spec, counters))
            case "-D":
                self._delete(chain, spec)
            case "-F":
                self._of(chain).clear()
            case "-X":
                self._remove(chain)
            case _:
                raise _Refused(f"{command} is not known here")
        return None

    def _of(self, chain: str) -> list[v.Rule]:
        rules = self.rules.get(chain)
        if rules is None:
            raise _Refused(f"no chain {chain!r}")
        return rules

    def _declare(self, line: str) -> None:
        declared = read_chain(line)
        if declared is None:
            raise _Refused(f"{line!r} declares no chain")
        name = declared.name
        if name in BUILT_IN.get(self.name, ()):
            policy = self.chains[name].policy if declared.policy == "-" else declared.policy
            self.chains[name] = v.Chain(name, (), policy, declared.counters)
        else:
            self.chains[name] = v.Chain(name)
            self.rules[name] = []

    def _delete(self, chain: str, spec: str) -> None:
        rules = self._of(chain)
        wanted = parse_rule(spec)
        for index, rule in enumerate(rules):
            if (rule.matches, rule.target) == (wanted.matches, wanted.target):
                del rules[index]
                return
        raise _Refused(f"chain {chain} has no such rule: {spec}")

    def _remove(self, chain: str) -> None:
        if self._of(chain):
            raise _Refused(f"chain {chain} is not empty")
        if any(rule.target in (v.Jump(chain), v.Goto(chain)) for rules in self.rules.values() for rule in rules):
            raise _Refused(f"chain {chain} is in use")
        del self.chains[chain], self.rules[chain]


def _counted(spec: str, counters: v.Counters | None) -> v.Rule:
    rule = parse_rule(spec)
    return v.Rule(rule.matches, rule.target, counters)


def _position(spec: str) -> tuple[int, str]:
    """-I takes a position before the rule; without one it is 1."""
    first, _, rest = spec.partition(" ")
    return (int(first), rest) if first.isdecimal() else (1, spec)
