import errno
import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from clusterip.errors import BadInput
from clusterip.kernel import links, netns
from clusterip.kernel.run import ProgramFailed, run

pytestmark = pytest.mark.kernel


@pytest.fixture
def spaces() -> Iterator[tuple[str, str, str]]:
    """A node and two pods."""
    tag = uuid.uuid4().hex[:8]
    names = (f"t{tag}n", f"t{tag}a", f"t{tag}b")
    for name in names:
        netns.create(name)
    yield names
    for name in names:
        netns.delete(name)


async def shown(space: str, *words: str) -> list[dict[str, Any]]:
    done = await run(("ip", "-n", space, "-json", "-details", *words))
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def answers(space: str, address: str) -> bool:
    """Whether somebody there refuses a connection to a port nobody listens on."""
    with netns.inside(space):
        client = socket.socket()
    with client:
        client.settimeout(5)
        return client.connect_ex((address, 9)) == errno.ECONNREFUSED


async def build(node: str, pods: tuple[str, ...]) -> None:
    await links.configure(
        node, links.bridge("cip0", "10.244.1.1"), links.address("cip0", "10.244.1.1/24"), links.up("cip0")
    )
    for number, pod in enumerate(pods, start=7):
        port = f"veth{number}"
        await links.configure(
            node, links.veth(port, "eth0", pod), links.attach(port, "cip0"), links.hairpin(port), links.up(port)
        )
        await links.configure(
            pod,
            links.up("lo"),
            links.up("eth0"),
            links.address("eth0", f"10.244.1.{number}/32"),
            links.route("default", "eth0", "10.244.1.1"),
        )


async def test_two_pods_on_a_bridge_reach_each_other_and_their_node(spaces: tuple[str, str, str]) -> None:
    node, *pods = spaces
    await build(node, tuple(pods))
    await run(("sysctl", "-qw", "net.ipv4.ip_forward=1"), netns=node)
    assert answers(pods[0], "10.244.1.1")
    assert answers(pods[0], "10.244.1.8")
    assert answers(node, "10.244.1.7")
    assert answers(pods[0], "10.244.1.7"), "itself"
    assert not answers(pods[0], "203.0.113.9"), "the node has no route to it"


async def test_a_port_is_attached_and_has_hairpin_on(spaces: tuple[str, str, str]) -> None:
    node, pod, _ = spaces
    await build(node, (pod,))
    (port,) = await shown(node, "link", "show", "veth7")
    assert port["master"] == "cip0"
    assert port["linkinfo"]["info_slave_data"]["hairpin"] is True


async def test_a_bridge_keeps_its_link_layer_address_as_ports_come(spaces: tuple[str, str, str]) -> None:
    node, pod, other = spaces
    await build(node, (pod, other))
    (bridge,) = await shown(node, "link", "show", "cip0")
    assert bridge["address"] == links.mac("10.244.1.1") == "0a:58:0a:f4:01:01"


async def test_a_link_is_identified_by_its_address(spaces: tuple[str, str, str]) -> None:
    node, pod, _ = spaces
    await build(node, (pod,))
    await links.configure(pod, links.identify("eth0", "10.244.1.7"))
    (link,) = await shown(pod, "link", "show", "eth0")
    assert link["address"] == "0a:58:0a:f4:01:07"


async def test_a_failing_line_is_quoted(spaces: tuple[str, str, str]) -> None:
    with pytest.raises(ProgramFailed, match=r"link set nosuch up.*Cannot find device") as caught:
        await links.configure(spaces[0], links.up("lo"), links.up("nosuch"))
    assert "Command failed" not in caught.value.message


async def test_a_route_replaces_the_one_before(spaces: tuple[str, str, str]) -> None:
    node, pod, _ = spaces
    await build(node, (pod,))
    await links.configure(pod, links.route("default", "eth0", "10.244.1.2"))
    (default,) = await shown(pod, "route", "show", "default")
    assert (default["gateway"], default["flags"]) == ("10.244.1.2", ["onlink"])


@pytest.mark.parametrize("bad", ["", "a" * 16, "a b", "a/b", "a\nlink delete b"])
def test_what_cannot_name_a_link_is_refused(bad: str) -> None:
    with pytest.raises(BadInput, match="1 to 15 characters"):
        links.bridge(bad, "10.244.1.1")
