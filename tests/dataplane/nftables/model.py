"""A table that obeys the steps of a delta as the kernel does, refusals included; held against it by kernel tests."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from clusterip.dataplane.nftables import delta as d
from clusterip.dataplane.nftables.book import stays
from clusterip.dataplane.nftables.compile import Element, Key
from clusterip.rulesets.nft import values as v


class Refused(Exception):
    pass


def demand(so: bool, why: str) -> None:
    if not so:
        raise Refused(why)


@dataclass
class Model:
    there: bool = False
    chains: dict[str, v.Chain] = field(default_factory=dict)  # with the rules they have
    sets: dict[str, v.Set] = field(default_factory=dict)  # without elements
    elements: dict[str, dict[Key, Element]] = field(default_factory=dict)

    def copy(self) -> "Model":
        held = {name: dict(found) for name, found in self.elements.items()}
        return replace(self, chains=dict(self.chains), sets=dict(self.sets), elements=held)

    def commit(self, transaction: d.Transaction) -> "Model":
        after = self.copy()
        for step in transaction:
            after._obey(step)
        for chain in after.chains.values():
            demand(set(after._leads_to(chain)) <= after.chains.keys(), f"{chain.name} leads nowhere")
        return after

    def installed(self) -> d.Installed:
        return d.Installed(self.there, frozenset(self.chains), {n: s.size for n, s in self.sets.items()})

    def _obey(self, step: d.Step) -> None:
        match step:
            case d.AddTable():
                self.there = True
            case d.DeleteTable():
                demand(self.there, "no table")
                self.there, self.chains, self.sets, self.elements = False, {}, {}, {}
            case d.AddSet(found):
                known = self.sets.setdefault(found.name, replace_size(found))
                demand(replace_size(known) == replace_size(found), f"{found.name} is another set")
                self.sets[found.name] = found
                self.elements.setdefault(found.name, {})
            case d.DeleteSet(name):
                demand(name in self.sets, f"no set {name}")
                demand(name not in set(self._reads()), f"{name} is read")
                del self.sets[name], self.elements[name]
            case d.FlushSet(name):
                self.elements[name].clear()
            case d.AddChain(chain):
                known_chain = self.chains.setdefault(chain.name, v.Chain(chain.name, (), chain.hook))
                demand(known_chain.hook == chain.hook, f"{chain.name} hooks in elsewhere")
            case d.FlushChain(name):
                self.chains[name] = v.Chain(name, (), self.chains[name].hook)
            case d.AddRules(chain):
                known_chain = self.chains[chain.name]
                self.chains[chain.name] = v.Chain(chain.name, (*known_chain.rules, *chain.rules), chain.hook)
            case d.DeleteChain(name):
                demand(name in self.chains and not self.chains[name].rules, f"{name} has rules, or is not there")
                demand(name not in set(self._leads()), f"{name} is led to")
                del self.chains[name]
            case d.AddElements(name, elements):
                for element in elements:
                    held = self.elements[name].setdefault(element.key, element)
                    demand(held.value == element.value, f"{name} holds {held}")
                demand(len(self.elements[name]) <= (self.sets[name].size or 1 << 30), f"{name} is full")
            case d.DeleteElements(name, keys):
                for key in keys:
                    demand(key in self.elements[name], f"{name} has no {key}")
                    del self.elements[name][key]

    def _leads(self) -> Iterator[str]:
        for chain in self.chains.values():
            yield from self._leads_to(chain)
        for held in self.elements.values():
            yield from (e.value.chain for e in held.values() if isinstance(e.value, v.Goto))

    @staticmethod
    def _leads_to(chain: v.Chain) -> Iterator[str]:
        statements = (s for rule in chain.rules for s in rule.statements)
        yield from (s.chain for s in statements if isinstance(s, v.Goto | v.Jump))

    def _reads(self) -> Iterator[str]:
        for chain in self.chains.values():
            for statement in (s for rule in chain.rules for s in rule.statements):
                match statement:
                    case v.Match(_, _, v.SetName(name)) | v.VerdictMap(_, v.SetName(name)) | v.Update(_, name):
                        yield name
                    case v.Nat(_, v.Lookup(_, v.SetName(name))):
                        yield name
                    case _:
                        pass

    def table(self) -> v.Table:
        held = {
            name: v.Set(
                name, s.types, s.values, s.typeof, s.flags, s.timeout, s.size,
                tuple(d.element_value(e) for e in self.elements[name].values()),
            )
            for name, s in self.sets.items()
        }  # fmt: skip
        return v.Table("ip", "clusterip", self.chains, held)


def replace_size(found: v.Set) -> v.Set:
    return v.Set(found.name, found.types, found.values, found.typeof, found.flags, found.timeout)


def meaning(table: v.Table) -> object:
    """What it holds, in no order, whatever the sizes, and without spare chains."""
    sets = {n: (replace_size(s), {(e.key, e.value, e.comment) for e in s.elements}) for n, s in table.sets.items()}
    led_to = {s.chain for c in table.chains.values() for r in c.rules for s in r.statements if isinstance(s, LEADS)}
    led_to |= {e.value.chain for s in table.sets.values() for e in s.elements if isinstance(e.value, LEADS)}
    chains = {n: c for n, c in table.chains.items() if c.hook or n in led_to or not stays(n)}
    gone = set(table.chains) - set(chains)
    if gone:  # they led to others that may be spare now
        return meaning(v.Table(table.family, table.name, chains, table.sets))
    return chains, sets


LEADS = v.Goto | v.Jump
