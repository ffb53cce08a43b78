"""Settings of the host that break Service traffic, each with its value and the value it needs. Pure."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from clusterip.diagnosis.doctor.hostfacts import node_addresses, setting
from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.doctor.programmed import Programmed
from clusterip.diagnosis.findings import Evidence, Finding
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
        message = (
            f"{name} is 0 and must be 1: packets between pods of one bridge pass {program} by, so a ClusterIP whose "
        )
        message += (
            "backend is on the client's own node does not answer: the answer goes straight over the bridge and is not "
        )
        message += "translated back."
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
        message = (
            f"rp_filter is strict (1) on {', '.join(strict[:5])}: a packet is dropped when the way back to its source "
        )
        message += "would leave by another interface. Answers of Services that come by a tunnel or a second interface "
        message += "are lost "
        message += "without a trace. It needs 0 or 2 (loose)."
        message += "" if sure else " With a single way in and out it harms nothing."
        remedy = f"sysctl -w {name}=2"
        evidence = (source.at(source.values.lines.get(name, 0), f"{name} = 1"),)
        yield Finding("rp-filter", "E" if sure else "W", f"setting {name}", message, evidence, None, remedy)


def _recycle(known: Known) -> Iterator[Finding]:
    name = "net.ipv4.tcp_tw_recycle"
    value, said = setting(known, name)
    if value != 1:
        return
    message = (
        f"{name} is 1 and must be 0: of clients behind one address (masqueraded by a node) connections are dropped at "
    )
    message += "random, because their time stamps do not grow together."
    yield Finding("tcp-tw-recycle", "E", f"setting {name}", message, said, None, f"sysctl -w {name}=0")


# --- hairpin ----------------------------------------------------------------------------------------------------------


def _hairpin(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    off: list[tuple[str, str, Evidence]] = []
    for source in known.settings:
        for mode in hairpin_modes(source.values):
            if not mode.on:
                off.append((mode.bridge, mode.port, source.at(mode.line, f"{mode.port} hairpin_mode 0")))
    promiscuous = set()
    for given in known.interfaces:
        for interface in given.values.interfaces:
            if "PROMISC" in interface.flags:
                promiscuous.add(interface.name)
            if interface.hairpin is False and interface.master:
                off.append(
                    (interface.master, interface.name, given.at(interface.line, f"{interface.name} hairpin off"))
                )
    off = [o for o in off if o[0] not in promiscuous]
    if not off:
        return
    bridge = off[0][0]
    ports = ", ".join(port for _, port, _ in off[:5]) + (f" and {len(off) - 5} more" if len(off) > 5 else "")
    message = f"Bridge {bridge or '(not named)'} does not send a frame back out of the port that it came in by "
    message += "(hairpin_mode 0 on "
    message += f"{ports}): a pod that is given itself by its own Service waits until it gives up."
    single = [p for p in programs if len(p.shares) == 1 and p.frontend.address]
    several = [p for p in programs if len(p.shares) > 1 and p.frontend.address]
    share: Fraction | None = None
    if len({p.name for p in programs if p.shares}) == 1:
        share = max(programs[0].shares.values(), default=None)
    if single:
        message += f" Of {single[0].object.removeprefix('service ')} ({next(iter(single[0].shares))}) that is every "
        message += "one of its "
        message += "own calls."
    if several:
        count = len(several[0].shares)
        message += f" Of {several[0].object.removeprefix('service ')} it is 1/{count} of a backend's own calls."
    remedy = (
        '"hairpinMode": true in the bridge plugin\'s configuration (kubelet: --hairpin-mode=hairpin-veth); at once: '
    )
    remedy += f"ip link set {off[0][1]} type bridge_slave hairpin on"
    evidence = tuple(e for _, _, e in off[:5])
    yield Finding("hairpin-off", "E", f"bridge {bridge}".rstrip(), message, evidence, share, remedy)
