"""`clusterip collect`: all that the diagnosis reads of a node, in one file for a bug report."""

import io
import os
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from clusterip import __version__
from clusterip.cli import options
from clusterip.errors import BadInput, ClusterIPError, Unavailable

if TYPE_CHECKING:
    from clusterip.cli.inputs import SocketPlace
    from clusterip.diagnosis.bundle import File

HELP = """Write all that clusterip trace, verify and doctor read of a node to standard output, as one bundle for a bug
report: rules of iptables (both variants) and nftables, ipset, ipvsadm, connections, addresses, routes, the settings
that matter, the end of the proxy's log, its configuration, and the API's Services, EndpointSlices, Endpoints, pods,
nodes and namespaces. Nothing is changed.

Secrets are left out: values of environment variables, annotations, tokens, passwords and keys. Addresses and names
stay, as nothing could be told without them. What cannot be had is noted in bundle.json, with the reason.

\b
  clusterip collect --node node-1 > bundle.tar.gz
  sudo clusterip collect --kubeconfig ~/.kube/config --node $(hostname) > bundle.tar.gz
  clusterip doctor bundle.tar.gz
  clusterip verify --rules bundle.tar.gz --node node-1
"""


class Origin(NamedTuple):
    """Whom to ask."""

    node: str  # its name; "": not known
    netns: str  # "": this machine's own
    kubeconfig: str  # "": there is none
    logs: Sequence[Path]
    configurations: Sequence[Path]
    maps: "SocketPlace"  # of eBPF mode, if it is there


class Gathered:
    """What a bundle will hold, and a note of each thing that was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.notes: list[File] = []

    def add(self, name: str, source: str, data: bytes, missing: str = "") -> None:
        from clusterip.diagnosis.bundle import File

        if data.strip():
            self.files[name] = data
        self.notes.append(File(name, source, missing or ("" if data.strip() else "it says nothing")))


@click.command(help=HELP)
@click.option("--node", default="", metavar="NODE", help="a node of a cluster here, or the name of this one")
@options.cluster
@click.option("--kubeconfig", default="", metavar="FILE", help="ask this cluster's API server for its objects")
def command(node: str, name: str, kubeconfig: str) -> None:
    if sys.stdout.isatty():
        raise BadInput("a bundle is no text", hint="clusterip collect > bundle.tar.gz")
    origin = _origin(node, name, kubeconfig)
    if os.geteuid() != 0:
        raise Unavailable(
            "reading the rules of a live kernel needs root", hint="sudo clusterip collect > bundle.tar.gz"
        )
    sys.stdout.buffer.write(bundle(origin))


def _origin(node: str, cluster: str, kubeconfig: str) -> Origin:
    from clusterip.cli.inputs import read, socket_place
    from clusterip.kernel.collect import CONFIGURATIONS, LOGS, matching
    from clusterip.lab import files
    from clusterip.lab.state import existing, state_of

    if kubeconfig or not node or state_of(cluster).plan() is None:
        configurations = matching(CONFIGURATIONS)
        maps = socket_place(read([str(path) for path in configurations]))
        return Origin(node, "", kubeconfig, matching(LOGS), configurations, maps)
    state, plan = existing(cluster)
    if node not in plan.node_names:
        raise BadInput(f"--node {node}: the cluster has {', '.join(plan.node_names)}")
    logs = [state.log_of(f"proxy of {node}")]
    configurations = [state.proxy_configuration_of(node)]
    said = read([str(path) for path in configurations if path.is_file()])
    maps = socket_place(said, files.socket_maps(state, node))
    return Origin(node, plan.netns(node), str(state.kubeconfig), logs, configurations, maps)


def bundle(origin: Origin) -> bytes:
    """A gzipped tar. Its names are the same whenever the same can be had."""
    import asyncio

    from clusterip.diagnosis.answer import to_json
    from clusterip.diagnosis.bundle import Bundle
    from clusterip.kernel.collect import release

    found = asyncio.run(_gathered(origin))
    now = int(time.time())
    head = Bundle(
        version=__version__,
        node=origin.node,
        kernel=release(),
        collected_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        files=tuple(found.notes),
    )
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as tar:
        for name, data in (("bundle.json", to_json(head)), *sorted(found.files.items())):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(data), now, 0o644
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


async def _gathered(origin: Origin) -> Gathered:
    from clusterip.diagnosis.bundle import settings
    from clusterip.kernel.collect import collect

    found = Gathered()
    folder = f"{origin.node or 'node'}/"
    for asked, said in await collect(origin.netns):
        data = settings(said.output.decode(errors="replace")).encode() if said.name == "sysctl" else said.output
        suffix = "json" if data.startswith(b"{") else "txt"
        found.add(f"{folder}{said.name}.{suffix}", " ".join(asked.argv), data, said.why)
    _add_maps(found, folder, origin.maps)
    for name, path in _numbered("proxy", "log", origin.logs):
        _add_file(found, folder + name, path)
    for name, path in _numbered("proxy-config", "yaml", origin.configurations):
        _add_file(found, folder + name, path)
    if not origin.logs:
        found.add(f"{folder}proxy.log", "the proxy's log", b"", "no log was found; add it by hand")
    await _add_objects(found, origin.kubeconfig)
    return found


def _add_maps(found: Gathered, folder: str, place: "SocketPlace") -> None:
    from clusterip.cli.inputs import SOCKET_MAPS, socket_maps

    data, why = b"", ""
    try:
        data = socket_maps(place)
    except ClusterIPError as error:
        why = error.message
    why = why or ("" if data else "eBPF mode is not here")
    found.add(f"{folder}{SOCKET_MAPS}.json", str(place.directory), data, why)


def _numbered(stem: str, suffix: str, paths: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for number, path in enumerate(paths):
        yield f"{stem}{f'-{number}' if number else ''}.{suffix}", path


def _add_file(found: Gathered, name: str, path: Path) -> None:
    from clusterip.diagnosis.bundle import scrubbed
    from clusterip.kernel.collect import tail

    try:
        data = tail(path)
    except OSError as error:
        found.add(name, str(path), b"", error.strerror or str(error))
        return
    found.add(name, str(path), scrubbed(data.decode(errors="replace")).encode())


async def _add_objects(found: Gathered, kubeconfig: str) -> None:
    import msgspec

    from clusterip.client.api import Api
    from clusterip.client.kubeconfig import load
    from clusterip.diagnosis.bundle import documents
    from clusterip.model import objects as o
    from clusterip.model import resources as r

    wanted: tuple[tuple[r.Resource, type[o.Value]], ...] = (
        (r.SERVICES, o.Service),
        (r.ENDPOINT_SLICES, o.EndpointSlice),
        (r.ENDPOINTS, o.Endpoints),
        (r.PODS, o.Pod),
        (r.NODES, o.Node),
        (r.NAMESPACES, o.Namespace),
    )
    if not kubeconfig:
        for resource, _ in wanted:
            found.add(f"objects/{resource.plural}.json", "the API server", b"", "no --kubeconfig was given")
        return
    async with Api(load(kubeconfig)) as api:
        for resource, as_type in wanted:
            name = f"objects/{resource.plural}.json"
            try:
                listed = await api.list(resource, as_type)
            except ClusterIPError as error:
                found.add(name, "the API server", b"", error.message)
                continue
            text = msgspec.json.format(msgspec.json.encode(documents(resource, tuple(listed.items))), indent=1)
            found.add(name, "the API server", text + b"\n")
