"""`clusterip rules`: what the proxy would write for manifests."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from clusterip.cli import options

if TYPE_CHECKING:
    from clusterip.services.table import Family

HELP = """Print what the proxy of one node would write for the Services and EndpointSlices in FILE: one complete input
for iptables-restore (ip6tables-restore with --family IPv6), which gives from empty tables what kube-proxy gives; with
--proxy-mode nftables one table for `nft -f`; with --proxy-mode ebpf what the maps of its programs would hold, as JSON;
with --proxy-mode ipvs the inputs of ipset, iptables-restore, ipvsadm and ip, each under a line that names the program.
Needs no kernel and no root.

FILE may hold several documents, YAML or JSON, and lists as kubectl prints them; "-" is stdin. Objects of other kinds
are passed over, which is said on stderr.

\b
  clusterip rules -f app.yaml --node-name node-1 --node-ip 192.168.50.11 --cluster-cidr 10.244.0.0/16
  kubectl get services,endpointslices -A -o yaml | clusterip rules -f - --node-name node-1
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What is on the command line, as it was typed; lists are separated by commas."""

    files: tuple[str, ...]
    proxy_mode: str = "iptables"
    family: "Family | None" = None
    node_name: str = ""
    node_labels: str = ""
    node_ip: str = ""
    cluster_cidr: str = ""
    service_cidr: str = ""
    nodeport_addresses: str | None = None
    masquerade_bit: int = 14
    masquerade_all: bool = False
    localhost_nodeports: bool = True
    nfacct: bool = False
    tcp_be_liberal: bool = False
    ipvs_scheduler: str = "rr"


@click.command(help=HELP)
@click.option("-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help="manifests; - is stdin")
@click.option(
    "--proxy-mode", type=click.Choice(["iptables", "ipvs", "nftables", "ebpf"]), default="iptables", show_default=True
)
@click.option("--family", type=options.family, help="default: the one that the manifests have")
@click.option("--node-name", default="", help="the node whose rules these are; decides what is local")
@click.option("--node-ip", default="", metavar="IP[,IP]", help="its addresses, one a family")
@click.option(
    "--node-labels", default="", metavar="K=V,...", help="its labels; topology.kubernetes.io/zone decides on hints"
)
@click.option("--cluster-cidr", default="", metavar="CIDR[,CIDR]", help="where pods are; without it none is recognised")
@click.option(
    "--service-cidr",
    default="",
    metavar="CIDR[,CIDR]",
    help="where Services are; one outside is named, and nftables mode drops what is for nobody there",
)
@click.option(
    "--nodeport-addresses",
    metavar="CIDR,...",
    help="addresses that serve node ports; default: all local, in nftables and ebpf mode --node-ip",
)
@click.option("--masquerade-bit", "masquerade_bit", type=click.IntRange(0, 31), default=14, show_default=True)
@click.option("--masquerade-all", is_flag=True, help="hide the source of everything sent to a ClusterIP")
@click.option("--localhost-nodeports/--no-localhost-nodeports", default=True, help="node ports on 127.0.0.1 (IPv4)")
@click.option("--nfacct", is_flag=True, help="count with nfacct, as on kernels that have it")
@click.option("--tcp-be-liberal", is_flag=True, help="as with net.netfilter.nf_conntrack_tcp_be_liberal=1")
@click.option("--ipvs-scheduler", default="rr", show_default=True, help="how IPVS shares connections out")
def command(**given: object) -> None:
    from clusterip.cli.rules_text import written

    # click has made each of its type
    text, doubts = written(Options(**given))  # type: ignore[arg-type]
    for sentence in doubts:
        click.echo(sentence, err=True)
    click.echo(text, nl=False)
