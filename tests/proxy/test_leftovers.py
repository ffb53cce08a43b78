"""What another mode has left, kube-proxy's own included, goes at a start; what is others' stays to the letter."""

import subprocess
from pathlib import Path

import pytest
from tests.golden.compare import NFACCT

from clusterip.proxy.leftovers import Leftovers

pytestmark = pytest.mark.kernel
GOLDEN = sorted(path for path in (Path(__file__).parents[1] / "golden").iterdir() if (path / "nft.txt").exists())
FOREIGN = """*mangle
:KUBEVIRT-MARK - [0:0]
-A KUBEVIRT-MARK -j MARK --set-xmark 0x20/0x20
COMMIT
*nat
:CNI-HOSTPORT - [0:0]
-A PREROUTING -d 203.0.113.7/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.9.9:80
-A POSTROUTING -s 10.244.9.0/24 -j CNI-HOSTPORT
-A CNI-HOSTPORT -j MASQUERADE
COMMIT
*filter
:KUBE-MINE - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -m set --match-set MINE src -j KUBE-MINE
-A KUBE-MINE -m comment --comment "kubernetes service portals" -j RETURN
COMMIT
"""
TABLES = """
table ip clusterip-mine { chain c { type filter hook input priority 5; ip daddr 10.96.0.10 accept; }; }
table inet kube-proxy { set s { type ipv4_addr; elements = { 10.96.0.1 }; }; }
table ip6 other { chain c { type nat hook prerouting priority -100; }; }
"""


def run(netns: str, *argv: str, stdin: str = "") -> str:
    whole = ("nsenter", f"--net=/run/netns/{netns}", "--", *argv)
    return subprocess.run(whole, input=stdin, check=True, capture_output=True, text=True).stdout


def kube_proxys(folder: Path) -> str:
    """Without the packet counters, which not every kernel has."""
    lines = (folder / "iptables-save.txt").read_text().splitlines()
    return "".join(NFACCT.sub("", " ".join(line.split())) + "\n" for line in lines if "localhost_nps" not in line)


def everything(netns: str) -> list[str]:
    """All rules, tables and sets, without counters and empty chains of iptables' own; not what kubelet has too."""
    said = [run(netns, f"iptables-{variant}-save") for variant in ("nft", "legacy")]
    for table in ("ip clusterip-mine", "inet kube-proxy", "ip6 other"):
        said.append(run(netns, "nft", "--stateless", "list", "table", *table.split()))
    said.append(run(netns, "nft", "list", "tables"))
    said.append(run(netns, "ipset", "save"))
    lines = [line.partition(" [")[0].strip() for text in said for line in text.splitlines()]
    builtin = (":PREROUTING", ":INPUT", ":FORWARD", ":OUTPUT", ":POSTROUTING", "#", "*", "COMMIT")
    tables = ("table ip mangle", "table ip nat", "table ip filter")  # iptables-nft makes them when it is first asked
    return sorted(
        line for line in lines if not line.startswith(builtin) and "KUBE-FIREWALL" not in line and line not in tables
    )


DUMPS = [(folder, ("nft", "legacy")[number % 2]) for number, folder in enumerate(GOLDEN)]


@pytest.mark.parametrize(("folder", "variant"), DUMPS, ids=lambda x: getattr(x, "name", x))
async def test_what_kube_proxy_left_goes_and_nothing_else(
    netns: str, folder: Path, variant: str, tmp_path: Path
) -> None:
    run(netns, "ipset", "create", "MINE", "hash:ip")
    run(netns, "ipset", "create", "KUBE-MINE", "hash:ip")
    run(netns, f"iptables-{variant}-restore", "--noflush", stdin=FOREIGN)
    run(netns, "nft", "-f", "-", stdin=TABLES)
    before = everything(netns)
    run(netns, f"iptables-{variant}-restore", "--noflush", stdin=kube_proxys(folder))
    run(netns, "nft", "-f", "-", stdin=(folder / "nft.txt").read_text())
    assert everything(netns) != before
    leftovers = Leftovers(str(tmp_path / "bpf"), netns=netns)
    assert leftovers.due(0.0)
    await leftovers.remove("nftables", ())
    assert leftovers.left == ()
    assert not leftovers.due(1e12)
    assert everything(netns) == before


async def test_in_iptables_mode_its_chains_stay_and_kube_proxys_table_goes(netns: str, tmp_path: Path) -> None:
    folder = GOLDEN[0]
    run(netns, "iptables-nft-restore", "--noflush", stdin=kube_proxys(folder))
    before = run(netns, "iptables-nft-save").count("KUBE-SVC-")
    run(netns, "nft", "-f", "-", stdin=(folder / "nft.txt").read_text())
    await Leftovers(str(tmp_path / "bpf"), netns=netns).remove("iptables", ())
    assert run(netns, "iptables-nft-save").count("KUBE-SVC-") == before
    assert "kube-proxy" not in run(netns, "nft", "list", "tables")


async def test_what_is_refused_is_named_and_tried_again(netns: str, tmp_path: Path) -> None:
    folder = GOLDEN[0]
    run(netns, "iptables-nft-restore", "--noflush", stdin=kube_proxys(folder))
    # Somebody's rule leads to a chain of kube-proxy's, so the kernel does not let it go.
    run(netns, "iptables-nft", "-t", "nat", "-A", "OUTPUT", "-m", "mark", "--mark", "7", "-j", "KUBE-MARK-MASQ")
    leftovers = Leftovers(str(tmp_path / "bpf"), netns=netns)
    await leftovers.remove("nftables", ())
    (said,) = leftovers.left
    assert "KUBE-MARK-MASQ" in said
    assert leftovers.due(1e12)
    run(netns, "iptables-nft", "-t", "nat", "-F", "OUTPUT")
    await leftovers.remove("nftables", ())
    assert not leftovers.due(1e12)
    assert "KUBE-MARK-MASQ" not in run(netns, "iptables-nft-save")
