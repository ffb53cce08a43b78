"""The chains around IPVS, as text for iptables-restore."""

from clusterip.dataplane.ipvs import At, Config, sets
from clusterip.dataplane.ipvs.chains import SHARED, Jump, Shape, chains, complete, jumps, remove, rewrite


def test_the_node_is_barred_in_the_words_that_iptables_save_uses() -> None:
    shape = Shape(drops=frozenset({At("UDP", "192.0.2.201", 53)}))
    wanted = "-A KUBE-IPVS-OUT-FILTER -s 192.0.2.201/32 -m ipvs --vproto 17 --vaddr 192.0.2.201 --vport 53 -j DROP"
    assert wanted in complete(shape, Config()).splitlines()


def test_a_rule_that_asks_an_empty_set_is_left_out() -> None:
    assert "--match-set" not in complete(Shape(), Config())
    every = complete(Shape(frozenset(sets.SETS)), Config())
    assert all(f"--match-set {kind.name} " in every for kind in sets.SETS)


def test_only_missing_jumps_are_put_in_and_the_first_comes_out_on_top() -> None:
    inserted = [line for line in rewrite(Shape(), Config(), ()).splitlines() if line.startswith("-I INPUT")]
    assert inserted == [f"-I INPUT {j.spec}" for j in reversed(jumps()) if j.chain == "INPUT"]
    assert "\n-I " not in rewrite(Shape(), Config(), jumps())


def test_removal_names_each_chain_in_its_own_table() -> None:
    """KUBE-NODE-PORT is in two."""
    everything = {(c.table, c.name) for c in chains(Shape(), Config())}
    nat, filters = remove(everything, jumps()).split("COMMIT\n")[:2]
    assert [block.count("-X KUBE-NODE-PORT\n") for block in (nat, filters)] == [1, 1]
    assert nat.count("-X ") + filters.count("-X ") == len(everything)


def test_chains_that_iptables_mode_has_too_can_be_emptied_and_left_to_its_own_clean_up() -> None:
    everything = {(c.table, c.name) for c in chains(Shape(), Config())}
    text = remove(everything, jumps(), emptied=SHARED)
    assert all(f":{name} " in text for _, name in everything)
    gone = {line.removeprefix("-X ") for line in text.splitlines() if line.startswith("-X ")}
    assert gone == {name for _, name in everything - SHARED}


def test_a_removal_of_nothing_of_ours_is_nothing() -> None:
    assert remove((), ()) == ""
    assert remove((), [Jump("nat", "OUTPUT", "-j OTHERS")]) == ""
