"""What of a changed configuration a running proxy takes over."""

from typing import Any

import msgspec
import pytest

from clusterip.proxy.config import EBPF, IPVS, IPTables, NFTables, ProxyConfig
from clusterip.proxy.handover import share_places
from clusterip.proxy.reload import concerns, fixed

BEFORE = ProxyConfig(mode="iptables", cluster_cidr="10.244.0.0/16")


def with_(**changed: Any) -> ProxyConfig:
    return msgspec.structs.replace(BEFORE, **changed)


@pytest.mark.parametrize(
    ("after", "keys"),
    [
        (with_(mode="nftables", nftables=NFTables(masquerade_bit=15), iptables=IPTables(masquerade_all=True)), ()),
        (with_(ipvs=IPVS(scheduler="lc"), ebpf=EBPF(localhost_node_ports=False)), ()),
        (with_(cluster_cidr="10.245.0.0/16", hostname_override="a"), ("hostnameOverride", "clusterCIDR")),
        (with_(ebpf=EBPF(directory="/run/else", cgroup="/x")), ("ebpf.cgroup", "ebpf.directory")),
    ],
)
def test_modes_and_their_sections_are_taken_over_and_other_keys_are_named(
    after: ProxyConfig, keys: tuple[str, ...]
) -> None:
    assert fixed(BEFORE, after) == keys


@pytest.mark.parametrize(
    ("after", "wanted"),
    [
        (BEFORE, False),
        (with_(nftables=NFTables(masquerade_all=True)), False),
        (with_(iptables=IPTables(masquerade_all=True)), True),
        (with_(mode="ebpf"), True),
    ],
)
def test_only_the_sections_that_the_mode_goes_by_change_the_dataplane(after: ProxyConfig, wanted: bool) -> None:
    assert concerns(BEFORE, after) is wanted


def test_ebpf_and_ipvs_mode_go_by_another_modes_section_too() -> None:
    for mode, section in (("ebpf", "nftables"), ("ipvs", "iptables")):
        before = with_(mode=mode)
        value = getattr(before, section)
        after = msgspec.structs.replace(before, **{section: msgspec.structs.replace(value, masquerade_bit=3)})
        assert concerns(before, after)


def test_modes_that_write_in_the_same_places() -> None:
    together = {frozenset((a, b)) for a in MODES for b in MODES if share_places(a, b)}
    assert together == {
        *(frozenset((m,)) for m in MODES),
        frozenset(("iptables", "ipvs")),
        frozenset(("nftables", "ebpf")),
    }


MODES = ("iptables", "nftables", "ipvs", "ebpf")
