"""What a diagnosis reads: files of any kind, a bundle, an API server, a node of a cluster here, this machine."""

import asyncio
import os
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from clusterip.diagnosis.facts import Facts, merge
from clusterip.errors import BadInput, Unavailable
from clusterip.rulesets import recognise
from clusterip.rulesets.recognise import Recognised

LARGEST = 1 << 30  # bytes of a file, or of all that a bundle holds
_GZIP = b"\x1f\x8b"


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
    from clusterip.dataplane.ebpf import attach
    from clusterip.lab import files
    from clusterip.lab.state import existing

    _need_root(f"clusterip trace --node {node}")
    state, plan = existing(cluster)
    if node not in plan.node_names:
        raise BadInput(f"--node {node}: the cluster has {', '.join(plan.node_names)}")
    facts = merge(asyncio.run(_live(plan.netns(node))), node)
    maps = attach.read(files.socket_maps(state, node))
    return with_api(replace(facts, sockets=maps), str(state.kubeconfig))


def machine_facts() -> Facts:
    """Live, of this machine."""
    from clusterip.dataplane.ebpf import attach
    from clusterip.proxy.config import EBPF

    _need_root("clusterip trace")
    return replace(merge(asyncio.run(_live(""))), sockets=attach.read(Path(EBPF().directory)))


def _need_root(command: str) -> None:
    if os.geteuid() != 0:
        hint = f"sudo {command} ..., or give what was saved with --rules FILE"
        raise Unavailable("reading the rules of a live kernel needs root", hint=hint)


async def _live(netns: str) -> list[Recognised]:
    from clusterip.kernel.snapshot import snapshot

    return [recognise.read(said.name, said.output) for said in await snapshot(netns) if said.output.strip()]


def with_api(facts: Facts, kubeconfig: str) -> Facts:
    """With the Services, slices, pods and nodes that the API server holds. Raises BadInput, Unavailable."""
    return asyncio.run(_with_api(facts, kubeconfig))


async def _with_api(facts: Facts, kubeconfig: str) -> Facts:
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
