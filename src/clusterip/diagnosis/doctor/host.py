"""Settings of the host that break Service traffic, each with its value and the value it needs. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clusterip.diagnosis.doctor.hostfacts import node_addresses, setting
from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.doctor.programmed import Programmed, share_list, share_text
from clusterip.diagnosis.findings import Evidence, Finding, shortened
from clusterip.rulesets.host import hairpin_modes

BRIDGE_CALLS = ("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables")
STRICT = 1


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    yield from _bridge(known)
    yield from _reverse_path(known)
    yield from _recycle(known)
    yield from _hairpin(known, programs)


def _bridge(known: Known) -> Iterator[Finding]:
    for name in BRIDGE_CALLS:
        value, said = setting(known, name)
        if value != 0:
            continue
        program = "ip6tables" if name.endswith("ip6tables") else "iptables"
        message = f"{name} is 0 and must be 1: packets between pods of one bridge pass {program} by, so a ClusterIP "
        message += "whose backend is on the client's own node does not answer: the answer goes straight over the "
        message += "bridge and is not translated back."
        remedy = f"modprobe br_netfilter && sysctl -w {name}=1   # and in /etc/modules-load.d, /etc/sysctl.d"
        yield Finding("br-netfilter", "E", f"setting {name}", message, said, None, remedy)
    whole = [s for s in known.settings if sum(key.startswith("net.") for key in s.values.values) > 200]
    bridges = [
        i
        for s in known.interfaces
        for i in s.values.interfaces
        if i.kind == "bridge" or i.name in ("cni0", "cbr0", "cip0")
    ]
    for source in whole:
        if bridges and not any(key.startswith("net.bridge.") for key in source.values.values):
            message = "The module br_netfilter is not loaded (no setting below net.bridge), and pods are on bridge "
            message += f"{bridges[0].name}: what passes the bridge alone is translated by nothing."
            remedy = f"modprobe br_netfilter && sysctl -w {BRIDGE_CALLS[0]}=1"
            evidence = (Evidence("no net.bridge.* among its settings", source.file),)
            yield Finding("br-netfilter", "E", f"setting {BRIDGE_CALLS[0]}", message, evidence, None, remedy)


def _reverse_path(known: Known) -> Iterator[Finding]:
    for source in known.settings:
        prefix, suffix = "net.ipv4.conf.", ".rp_filter"
        values = {
            name.removeprefix(prefix).removesuffix(suffix): source.values.number(name)
            for name in source.values.values
            if name.startswith(prefix) and name.endswith(suffix)
        }
        # The kernel takes the larger of "all" and the interface's own.
        every = values.get("all") or 0
        strict = sorted(
            i for i, v in values.items() if i not in ("all", "default", "lo") and max(v or 0, every) == STRICT
        ) or (["all"] if every == STRICT else [])
        if not strict:
            continue
        name = f"{prefix}{strict[0] if (values.get(strict[0]) or 0) == STRICT else 'all'}{suffix}"
        ways = {address: owner for address, owner in node_addresses(known).items() if owner[0] == "this node"}
        sure = len({evidence.text.split(" ")[0] for _, evidence in ways.values()}) > 1
        message = f"rp_filter is strict (1) on {', '.join(strict[:5])}: a packet is dropped when the way back to its "
        message += "source would leave by another interface. Answers of Services that come by a tunnel or a second "
        message += "interface are lost without a trace. It needs 0 or 2 (loose)."
        message += "" if sure else " With a single way in and out it harms nothing."
        remedy = f"sysctl -w {name}=2"
        evidence = (source.at(source.values.lines.get(name, 0), f"{name} = 1"),)
        yield Finding("rp-filter", "E" if sure else "W", f"setting {name}", message, evidence, None, remedy)


def _recycle(known: Known) -> Iterator[Finding]:
    name = "net.ipv4.tcp_tw_recycle"
    value, said = setting(known, name)
    if value != 1:
        return
    message = f"{name} is 1 and must be 0: of clients behind one address (masqueraded by a node) connections are "
    message += "dropped at random, because their time stamps do not grow together."
    yield Finding("tcp-tw-recycle", "E", f"setting {name}", message, said, None, f"sysctl -w {name}=0")


# --- hairpin ----------------------------------------------------------------------------------------------------------


class _Port(NamedTuple):
    """A port of a bridge that sends nothing back where it came from."""

    bridge: str  # "": not named
    name: str
    place: Evidence


def _hairpin(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    off = list(_off(known))
    if not off:
        return
    bridge = off[0].bridge
    ports = shortened([port.name for port in off], 5)
    message = f"Bridge {bridge or '(not named)'} does not send a frame back out of the port that it came in by "
    message += f"(hairpin_mode 0 on {ports}): a pod that is given itself by its own Service waits until it gives up."
    served = [p for p in programs if p.shares and p.frontend.address]
    for p in sorted(served, key=lambda p: len(p.shares))[:1]:
        message += f" Of {p.object.removeprefix('service ')} ({share_list(p.shares)}) that is "
        message += f"{share_text(max(p.shares.values()))} of a backend's own calls."
    share = max(served[0].shares.values()) if len({p.name for p in served}) == 1 else None
    remedy = (
        '"hairpinMode": true in the bridge plugin\'s configuration (kubelet: --hairpin-mode=hairpin-veth); at once: '
    )
    remedy += f"ip link set {off[0].name} type bridge_slave hairpin on"
    evidence = tuple(port.place for port in off[:5])
    yield Finding("hairpin-off", "E", f"bridge {bridge}".rstrip(), message, evidence, share, remedy)


def _off(known: Known) -> Iterator[_Port]:
    """A bridge that is promiscuous sends back all the same."""
    interfaces = [(given, i) for given in known.interfaces for i in given.values.interfaces]
    promiscuous = {i.name for _, i in interfaces if "PROMISC" in i.flags}
    for source in known.settings:
        for mode in hairpin_modes(source.values):
            if not mode.on and mode.bridge not in promiscuous:
                yield _Port(mode.bridge, mode.port, source.at(mode.line, f"{mode.port} hairpin_mode 0"))
    for given, i in interfaces:
        if i.hairpin is False and i.master and i.master not in promiscuous:
            yield _Port(i.master, i.name, given.at(i.line, f"{i.name} hairpin off"))
