"""What others may do to maps, programs and pins of a running node: each is seen, and a load heals it."""

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dataplane.ebpf.entries import VIP, entry
from tests.dataplane.ebpf.pods import Node, node

from clusterip.dataplane.ebpf.layer import SocketLayer
from clusterip.dataplane.ebpf.layout import Frontend, frontend_key, place_value
from clusterip.dataplane.ebpf.program import shipped
from clusterip.kernel import bpf

pytestmark = pytest.mark.kernel

WEB = frontend_key(Frontend(VIP, 80, "TCP"))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path) as made:
        yield made


def another_map(lab: Node, name: str) -> bpf.Map:
    """As another process opens it."""
    (folder,) = lab.place.directory.glob("maps-*")
    found = bpf.pinned_map(folder / name, name)
    assert found is not None
    return found


def deleted(lab: Node) -> None:
    with another_map(lab, "services") as held:
        held.delete([WEB])


def changed(lab: Node) -> None:
    with another_map(lab, "slots") as held:
        ((key, _),) = held.items()
        held.put({key: place_value("10.244.1.99", 9)})


def added(lab: Node) -> None:
    with another_map(lab, "services") as held:
        value = held.get(WEB)
        assert value is not None
        held.put({frontend_key(Frontend("10.96.0.99", 80, "TCP")): value})


def detached(lab: Node) -> None:
    (lab.place.directory / "links" / "connect4").unlink()


def detached_but_pinned(lab: Node) -> None:
    lab.detach("connect4")


def replaced(lab: Node) -> None:
    """By a program that leaves all addresses as they are."""
    code = next(c for c in shipped().codes if c.name == "connect4")
    plain = replace(code, instructions=bytes.fromhex("b700000001000000 9500000000000000"), maps=())  # return 1
    link = bpf.pinned(lab.place.directory / "links" / "connect4")
    assert link is not None
    with link, bpf.load(plain, {}) as other:
        bpf.replace(link, other)


def unpinned(lab: Node) -> None:
    (folder,) = lab.place.directory.glob("maps-*")
    (folder / "origins").unlink()


def unmounted(lab: Node) -> None:
    subprocess.run(["umount", str(lab.place.directory)], check=True)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (deleted, "map services: 1 entries"),
        (changed, "map slots: 1 entries"),
        (added, "map services: 1 entries"),
        (detached, "not attached to .*: connect4$"),
        (detached_but_pinned, "not attached to .*: connect4$"),
        (replaced, "not ours at connect4$"),
        (unpinned, "not pinned in .*: origins$"),
        (unmounted, "not attached"),
    ],
)
async def test_damage_is_seen_and_a_load_heals_it(lab: Node, damage: Callable[[Node], None], told: str) -> None:
    layer = SocketLayer(lab.sockets, "IPv4", localhost_node_ports=False)
    web = entry(pods=("b1",))
    await layer.load([web], [])
    assert await layer.check(deep=True) == ()
    damage(lab)
    found = await layer.check(deep=True)
    assert found
    assert re.search(told, found[0])
    await layer.load([web], [])
    assert await layer.check(deep=True) == ()
    assert lab.ask(VIP, 80) == "b1"
    with another_map(lab, "services") as held:
        assert held.get(WEB) is not None
