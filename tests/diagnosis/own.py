"""Our own nftables table as a dump shows it."""

from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.nftables.delta import program
from clusterip.dataplane.nftables.plane import NFTables
from clusterip.dataplane.node import FromCIDR, Host
from clusterip.rulesets.nft.text import table_text
from clusterip.services.table import Backend, Entry, PortName

TWO = (Backend("10.244.1.5", 8080), Backend("10.244.2.6", 8080))
WEB = Entry(PortName("default", "web", ""), "IPv4", "TCP", 80, "10.96.0.20", cluster=TWO, has_backends=True)
USUAL = Config(detector=FromCIDR("10.244.0.0/16"))


def ruleset(*entries: Entry, config: Config = USUAL, host: Host | None = None) -> str:
    plane = NFTables(config, host or Host(frozenset()))
    return table_text(program([plane.compile(entry) for entry in entries], config))
