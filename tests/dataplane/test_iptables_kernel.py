"""What is computed is what the kernel holds: loads, deltas, sweeps and clean-up, both variants, both families.

Holds `rulesets.iptables.restore` against real `iptables-restore`, too: the other tests rest on it.
"""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, V6, Pool, configs, tables
from tests.spaces import fresh

from clusterip.dataplane.iptables import Config, FromCIDR, Installed, Variant, compile_entry, complete, delta
from clusterip.kernel import nfacct
from clusterip.rulesets.iptables import Rule, Ruleset, empty, parse, restore
from clusterip.services.table import Backend, Entry, EntryKey, PortName
from clusterip.services.tracker import Change

pytestmark = pytest.mark.kernel


class Kernel:
    """The rules of one namespace, by the programs people use."""

    def __init__(self, netns: str, pool: Pool, variant: Variant) -> None:
        name = "ip6tables" if pool.family == "IPv6" else "iptables"
        self.argv = ("ip", "netns", "exec", netns, f"{name}-{variant.value}")

    def restore(self, text: str) -> None:
        *inside, program = self.argv
        argv = (*inside, f"{program}-restore", "--noflush", "--counters")
        done = subprocess.run(argv, input=text, text=True, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{text}"

    def save(self) -> str:
        *inside, program = self.argv
        argv = (*inside, f"{program}-save")
        return subprocess.run(argv, text=True, capture_output=True, timeout=60, check=True).stdout


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    with fresh("delta") as name:
        yield name


def rules(ruleset: Ruleset) -> dict[tuple[str, str], list[Rule]]:
    """In order; the built-in chains of tables that nobody has touched do not count."""
    found = {(t.name, c.name): [Rule(r.matches, r.target) for r in c.rules] for t in ruleset for c in t.chains.values()}
    return {key: of for key, of in found.items() if of or key[1].startswith("KUBE-")}


@pytest.mark.parametrize("variant", Variant, ids=lambda v: v.value)
@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@settings(max_examples=12)
@given(data=st.data())
def test_the_kernel_holds_what_was_computed(pool: Pool, variant: Variant, data: st.DataObject) -> None:
    history: list[Mapping[EntryKey, Entry]] = data.draw(st.lists(tables(pool), min_size=2, max_size=4))
    config: Config = data.draw(configs(pool))
    with namespace() as netns:
        counters = ("ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts")
        counted = config.nfacct and all(nfacct.ensure(name, netns) for name in counters)
        config = replace(config, nfacct=counted)
        kernel = Kernel(netns, pool, variant)
        have = {key: compile_entry(entry, config) for key, entry in history[0].items()}
        text = delta.load(have.values(), Installed(), config, variant).text
        kernel.restore(text)
        model = restore(empty(), text)
        stale: frozenset[str] = frozenset()
        for table in history[1:]:
            want = {key: compile_entry(entry, config) for key, entry in table.items()}
            part = delta.delta(
                [Change(have.get(k), want.get(k)) for k in sorted(have.keys() | want.keys())], config, stale
            )
            kernel.restore(part.text)
            model, have, stale = restore(model, part.text), want, part.stale
            assert rules(parse(kernel.save())) == rules(model)
        again = delta.load(have.values(), delta.installed(kernel.save(), config), config, variant)
        kernel.restore(again.text)
        assert rules(parse(kernel.save())) == rules(restore(model, again.text))
        kernel.restore(delta.cleanup(delta.installed(kernel.save(), config)).text)
        assert {chain for _, chain in rules(parse(kernel.save()))} <= {"KUBE-FIREWALL", "INPUT", "OUTPUT"}


@pytest.mark.parametrize("variant", Variant, ids=lambda v: v.value)
@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
def test_rules_are_read_back_to_the_letter(pool: Pool, variant: Variant) -> None:
    config = Config(pool.family, pool.node_ip, FromCIDR(pool.pod_range))
    backends = tuple(Backend(pool.pods[0][:-1] + f"{n:x}", 80) for n in range(1, 10))
    entry = Entry(
        PortName("default", "web", "http"),
        pool.family,
        "TCP",
        80,
        pool.cluster_ips[0],
        node_port=30080,
        load_balancer_ips=pool.balancers,
        source_ranges=pool.ranges,
        affinity_seconds=10800,
        cluster=backends,
        has_backends=True,
    )
    with namespace() as netns:
        counters = ("ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts")
        config = replace(config, nfacct=all(nfacct.ensure(name, netns) for name in counters))
        text = complete([compile_entry(entry, config)], config)
        kernel = Kernel(netns, pool, variant)
        kernel.restore(text)
        saved = set(kernel.save().splitlines())
        assert [line for line in text.splitlines() if line.startswith("-A") and line not in saved] == []


@pytest.mark.parametrize("variant", Variant, ids=lambda v: v.value)
def test_a_thousand_chains_that_nobody_uses_go(variant: Variant) -> None:
    chains = [f"KUBE-{kind}-{i:016}" for kind in ("SVC", "SEP") for i in range(600)]
    lines = [f"-A KUBE-SVC-{i:016} -j KUBE-SEP-{i:016}" for i in range(600)]
    with namespace() as netns:
        kernel = Kernel(netns, V4, variant)
        declared = "".join(f":{chain} - [0:0]\n" for chain in chains)
        kernel.restore(f"*nat\n{declared}" + "".join(f"{line}\n" for line in lines) + "COMMIT\n")
        kernel.restore(delta.sweep(chains).text)
        assert ":KUBE-" not in kernel.save()
