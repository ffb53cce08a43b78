"""The place a pod lives in: its network namespace, its addresses, and its own files below /etc.

It is made before the first container starts, outlives their restarts, and is written down before it is made, so that an
agent that starts after a crash can take away what is left.
"""

import logging
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import msgspec

from clusterip.kernel import links, netns, sysctl
from clusterip.kernel.run import run
from clusterip.model.objects import Pod
from clusterip.node import addresses, etc
from clusterip.node.settings import Settings

log = logging.getLogger(__name__)

ETC = Path("/etc")
UID_SHOWN = 8  # characters of a pod's uid in names
# Of a pod that has an IPv6 address, before it has links.
IPV6_SETTINGS = {
    # Some machines have it off, and hand that on.
    "net.ipv6.conf.all.disable_ipv6": "0",
    "net.ipv6.conf.default.disable_ipv6": "0",
    # We say what its addresses and its router are; nobody else is asked, and nobody else is listened to.
    "net.ipv6.conf.default.accept_dad": "0",
    "net.ipv6.conf.default.accept_ra": "0",
    "net.ipv6.conf.default.accept_redirects": "0",
}


class Record(msgspec.Struct, frozen=True):
    """What a sandbox is made of, as it is written down."""

    netns: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sandbox:
    addresses: tuple[str, ...]  # the pod's, the primary one first; the node's, of a host-network pod
    netns: str  # "" of a host-network pod
    hostname: str
    binds: tuple[tuple[str, str], ...]


class Sandboxes:
    """All of a node. Its methods do not interleave: what they change they change before they first wait."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pods = settings.state_dir / "pods"
        self._pods.mkdir(parents=True, exist_ok=True)
        self._pools = tuple(addresses.load(self._file(network), network) for network in settings.pod_cidrs)

    async def prepare(self) -> None:
        """The bridge, as it must be; and nothing left of pods of an agent before us."""
        self.clear()
        bridge = self._settings.bridge
        if (await run(("ip", "link", "show", bridge), check=False)).returncode != 0:
            await links.configure("", links.bridge(bridge, self._pools[0].gateway))
        own = [f"{pool.gateway}/{pool.network.prefixlen}" for pool in self._pools]
        await links.configure("", *(links.address(bridge, cidr, replace=True) for cidr in own), links.up(bridge))
        if any(pool.network.version == 6 for pool in self._pools):
            sysctl.ensure("net.ipv6.conf.all.forwarding", "1")
        if all(pool.network.version == 6 for pool in self._pools):
            return
        # A pod's packet to its neighbour goes out by the link it came in by. That is how it is meant to be: no word of
        # it to the pod. The kernel takes the greater of the two.
        for name in ("all", bridge):
            sysctl.ensure(f"net.ipv4.conf.{name}.send_redirects", "0")
        sysctl.ensure("net.ipv4.ip_forward", "1")

    def clear(self) -> None:
        """Take all networks away; the logs stay."""
        for directory in self._pods.iterdir():
            self._clear(directory)

    def directory(self, pod: Pod) -> Path:
        return self._pods / pod.metadata.uid

    async def make(self, pod: Pod) -> Sandbox:
        """Raises NoAddress, ProgramFailed, NamespaceFailed; what had been made until then is taken away again."""
        directory = self.directory(pod)
        directory.mkdir(parents=True, exist_ok=True)
        if pod.spec.host_network:
            return self._with_files(pod, self._settings.node_ips, "")
        name = namespace_name(self._settings.netns_prefix, pod)
        taken = [addresses.take(pool, time.time()) for pool in self._pools]
        self._keep(tuple(pool for pool, _ in taken))
        given = tuple(address for _, address in taken)
        (directory / "sandbox.json").write_bytes(msgspec.json.encode(Record(name, given)))
        try:
            netns.delete(name)  # of an agent whose notes are lost
            netns.create(name)
            await self._wire(name, given)
            return self._with_files(pod, given, name)
        except BaseException:
            self.remove(pod)
            raise

    def _file(self, network: addresses.Network) -> Path:
        return self._settings.state_dir / f"addresses-ipv{network.version}.json"

    def _keep(self, pools: tuple[addresses.Addresses, ...]) -> None:
        for pool, before in zip(pools, self._pools, strict=True):
            if pool != before:
                addresses.save(self._file(pool.network), pool)
        self._pools = pools

    async def _wire(self, name: str, given: tuple[str, ...]) -> None:
        if any(":" in address for address in given):
            for setting, value in IPV6_SETTINGS.items():
                sysctl.ensure(setting, value, name)
        port = port_name(given[0])
        await links.configure(
            "",
            links.veth(port, "eth0", name),
            links.attach(port, self._settings.bridge),
            links.hairpin(port),
            links.up(port),
        )
        await links.configure(
            name,
            links.up("lo"),
            links.identify("eth0", given[0]),
            links.up("eth0"),
            *(links.address("eth0", f"{address}/{ip_address(address).max_prefixlen}") for address in given),
            *(links.route("default", "eth0", pool.gateway) for pool in self._pools),
        )

    def _with_files(self, pod: Pod, given: tuple[str, ...], name: str) -> Sandbox:
        own = self.directory(pod) / "etc"
        own.mkdir(exist_ok=True)
        settings = self._settings
        of_host = etc.parse(_text(ETC / "resolv.conf"))
        resolver = etc.resolver(pod, settings.cluster_dns, settings.cluster_domain, of_host)
        hostname = etc.hostname(pod, settings.node_name)
        (own / "hosts").write_text(etc.hosts(pod, given, settings.cluster_domain, _text(ETC / "hosts")))
        (own / "resolv.conf").write_text(etc.text(resolver))
        (own / "hostname").write_text(f"{hostname}\n")
        # A file that the host lacks cannot be laid over, and what reads it does not expect one.
        files = [(own / file, ETC / file) for file in ("hosts", "resolv.conf", "hostname") if (ETC / file).exists()]
        return Sandbox(given, name, hostname, tuple((str(source), str(target)) for source, target in files))

    def remove(self, pod: Pod) -> None:
        """The network and the files, not the logs. No error if there is nothing."""
        self._clear(self.directory(pod))

    def forget(self, pod: Pod) -> None:
        """The logs too."""
        self.remove(pod)
        shutil.rmtree(self.directory(pod), ignore_errors=True)

    def forget_all_but(self, uids: frozenset[str]) -> None:
        """Of pods that are no more."""
        for directory in self._pods.iterdir():
            if directory.name not in uids:
                shutil.rmtree(directory, ignore_errors=True)

    def _clear(self, directory: Path) -> None:
        file = directory / "sandbox.json"
        with suppress(FileNotFoundError, msgspec.MsgspecError):
            record = msgspec.json.decode(file.read_bytes(), type=Record)
            netns.delete(record.netns)
            pools = self._pools
            for address in record.addresses:
                pools = tuple(addresses.give_back(pool, address, time.time()) for pool in pools)
            self._keep(pools)
        file.unlink(missing_ok=True)
        shutil.rmtree(directory / "etc", ignore_errors=True)


def namespace_name(prefix: str, pod: Pod) -> str:
    """One that says whose it is in `ip netns`: "lab.pod-default-web-0-1b9d6bcd"."""
    meta = pod.metadata
    return f"{prefix}pod-{meta.namespace}-{meta.name[:100]}-{meta.uid[:UID_SHOWN]}"


def port_name(address: str) -> str:
    """The node's end of a pod's link: "vethaf40107" for 10.244.1.7, "veth7" for fd00:1:1::7."""
    return f"veth{int.from_bytes(ip_address(address).packed[-4:]):x}"


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
