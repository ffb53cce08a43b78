"""What a diagnosis reads: files of any kind, a bundle, an API server, a node of a cluster here, this machine."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import click

from clusterip.diagnosis.facts import Facts, merge
from clusterip.errors import BadInput, Unavailable
from clusterip.rulesets import recognise
from clusterip.rulesets.recognise import Recognised
from clusterip.rulesets.sections import Kind

LARGEST = 1 << 30  # bytes of a file, or of all that a bundle holds
SOCKET_MAPS = "ebpf-maps"  # how the maps of eBPF mode are called in an answer and a bundle
_GZIP = b"\x1f\x8b"
_RULES = frozenset(
    {Kind.IPTABLES_SAVE, Kind.IPTABLES_RULES, Kind.IPTABLES_LIST, Kind.NFT, Kind.NFT_JSON, Kind.IPVS, Kind.SOCKET_MAPS}
)


def read(files: Sequence[str]) -> list[Recognised]:
    """ "-" is stdin; of a directory or a bundle every file counts. Raises BadInput."""
    return [recognise.read(name, data) for file in files for name, data in _contents(file)]


def _contents(file: str) -> Iterator[tuple[str, bytes]]:
    if file == "-":
        yield from _unpacked("stdin", sys.stdin.buffer.read(LARGEST))
        return
    path = Path(file)
    try:
        if path.is_dir():
            for inner in sorted(p for p in path.rglob("*") if p.is_file()):
                yield from _unpacked(str(inner), inner.read_bytes())
        else:
            yield from _unpacked(file, path.read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}") from error


def _unpacked(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    if not data.startswith(_GZIP):
        yield name, data
        return
    import tarfile

    try:
        with tarfile.open(fileobj=BytesIO(data), mode="r:gz") as bundle:
            left = LARGEST
            for member in bundle:
                inside = bundle.extractfile(member) if member.isfile() else None
                left -= member.size
                if left < 0:
                    raise BadInput(f"{name}: holds more than {LARGEST} bytes")
                if inside:
                    yield member.name, inside.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BadInput(
            f"{name}: cannot be unpacked: {error}", hint="a bundle is what clusterip collect writes"
        ) from error


def node_facts(cluster: str, node: str) -> Facts:
    """Live, of a node of a cluster on this machine, with what its API server holds. Raises BadInput, Unavailable."""
    from clusterip.lab.state import existing

    facts = merge(of_node(cluster, node), node)
    return with_api(facts, str(existing(cluster)[0].kubeconfig))


def of_node(cluster: str, node: str) -> list[Recognised]:
    """What a node of a cluster on this machine holds now. Raises BadInput, Unavailable."""
    from clusterip.lab import files
    from clusterip.lab.state import existing

    _need_root()
    state, plan = existing(cluster)
    if node not in plan.node_names:
        raise BadInput(f"--node {node}: the cluster has {', '.join(plan.node_names)}")
    configurations = _configurations([state.proxy_configuration_of(node)])
    place = socket_place(configurations, files.socket_maps(state, node))
    return [*_live(plan.netns(node), place), *configurations]


def of_machine() -> list[Recognised]:
    """What this machine holds now. Raises Unavailable; BadInput if it has no rule: nothing to ask."""
    from clusterip.kernel.collect import CONFIGURATIONS, matching

    _need_root()
    configurations = _configurations(matching(CONFIGURATIONS))
    found = [*_live("", socket_place(configurations)), *configurations]
    if not any(part.facts for one in found for part in one.parts if part.kind in _RULES):
        raise BadInput("nothing was given to look at, and this machine's own kernel holds no rules", hint=_to_give())
    return found


def _to_give() -> str:
    """What a person can name instead: a node of a cluster here, if there is one; else what was saved elsewhere."""
    from clusterip.lab.plan import DEFAULT_NAME
    from clusterip.lab.state import clusters

    command = click.get_current_context().info_name or "trace"
    saved = "FILE..." if command == "doctor" else "--rules FILE"
    of_cluster = ["" if name == DEFAULT_NAME else f" --name {name}" for name in clusters()]
    live = f"--node node-1{of_cluster[0]} for a node of the cluster here; " if of_cluster else ""
    kept = "what iptables-save, nft list ruleset or clusterip collect printed on a node"
    up = "" if of_cluster else "; or clusterip up, and then --node node-1"
    return f"{live}{saved} for {kept}{up}"


class SocketPlace(NamedTuple):
    """Of eBPF mode on a node."""

    directory: Path  # of its maps
    cgroup: Path | None = None  # whose sockets it serves; None: nothing says so


def socket_place(configurations: Iterable[Recognised], directory: Path | None = None) -> SocketPlace:
    """As the proxy's configuration says, or as it is by default: `directory`, if it is given."""
    from clusterip.kernel.cgroup import machine_root
    from clusterip.proxy.config import EBPF
    from clusterip.rulesets.manifests import Manifests

    place = SocketPlace(directory or Path(EBPF().directory))
    for given in configurations:
        for part in given.parts:
            for manifest in part.values.manifests if isinstance(part.values, Manifests) else ():
                if manifest.kind != "KubeProxyConfiguration":
                    continue
                section = manifest.document.get("ebpf")
                said = section if isinstance(section, dict) else {}
                if said.get("cgroup"):
                    place = place._replace(cgroup=Path(str(said["cgroup"])))
                else:
                    with contextlib.suppress(Unavailable):
                        place = place._replace(cgroup=machine_root())
                if said.get("directory"):
                    place = place._replace(directory=Path(str(said["directory"])))
    return place


def socket_maps(place: SocketPlace) -> bytes:
    """The maps of eBPF mode, and its programs, as a document; b"": it is not there. Raises ClusterIPError."""
    from clusterip.dataplane.ebpf.observe import read
    from clusterip.rulesets.socketmaps import text

    seen = read(place.directory, place.cgroup)
    return text(seen.described()).encode() if seen else b""


def _need_root() -> None:
    if os.geteuid() != 0:
        command = f"sudo clusterip {click.get_current_context().info_name or 'trace'} ..."
        raise Unavailable("reading the rules of a live kernel needs root", hint=f"{command}, or give files")


def _live(netns: str, maps: SocketPlace) -> list[Recognised]:
    import asyncio

    from clusterip.kernel.snapshot import snapshot

    said = [(one.name, one.output) for one in asyncio.run(snapshot(netns))]
    return [recognise.read(name, data) for name, data in (*said, (SOCKET_MAPS, socket_maps(maps))) if data.strip()]


def _configurations(paths: Iterable[Path]) -> list[Recognised]:
    """The proxy's own, where it can be read."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            found.append(recognise.read(str(path), path.read_bytes()))
    return found


def with_api(facts: Facts, kubeconfig: str) -> Facts:
    """With the Services, slices, pods and nodes that the API server holds. Raises BadInput, Unavailable."""
    import asyncio

    return asyncio.run(_with_api(facts, kubeconfig))


async def _with_api(facts: Facts, kubeconfig: str) -> Facts:
    import asyncio

    from clusterip.client.api import Api
    from clusterip.client.kubeconfig import load
    from clusterip.model.objects import EndpointSlice, Node, Pod, Service
    from clusterip.model.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES

    async with Api(load(kubeconfig)) as api:
        services, slices, pods, nodes = await asyncio.gather(
            api.list(SERVICES, Service),
            api.list(ENDPOINT_SLICES, EndpointSlice),
            api.list(PODS, Pod),
            api.list(NODES, Node),
        )
    return replace(
        facts,
        services=tuple(services.items),
        slices=tuple(slices.items),
        pods=tuple(pods.items),
        nodes=tuple(nodes.items),
    )
