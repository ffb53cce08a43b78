"""Links, addresses and routes: commands for `ip`, many of them in one process.

The plain functions give lines; `configure` runs lines in one namespace, in order, up to the first that fails:

    await configure("node-1", bridge("cip0", "10.244.1.1"), address("cip0", "10.244.1.1/24"), up("cip0"))
    await configure("node-1", veth("veth7", "eth0", "pod-a"), attach("veth7", "cip0"), hairpin("veth7"), up("veth7"))
    await configure("pod-a", up("eth0"), address("eth0", "10.244.1.7/32"), route("default", "eth0", "10.244.1.1"))

Why not pyroute2: the last two lines take 4 ms this way and 15 ms that way, because it starts a process for each
namespace it opens; and its import alone takes 0.12 s and 20 MB in every node agent.
"""

import re
from collections.abc import Sequence
from ipaddress import ip_address

from clusterip.errors import BadInput
from clusterip.kernel.run import ProgramFailed, run

MAX_NAME = 15  # characters of a link's name: IFNAMSIZ less the final zero, include/uapi/linux/if.h


async def configure(netns: str, *lines: str) -> None:
    """Run `lines` in the named namespace ("": our own). Raises ProgramFailed, which quotes the line that failed."""
    argv = ("ip", *(("-n", netns) if netns else ()), "-batch", "-")
    try:
        await run(argv, stdin="".join(f"{line}\n" for line in lines).encode())
    except ProgramFailed as error:
        raise _quoting(error, lines) from error


def mac(address: str) -> str:
    """A link-layer address that is as unique on its link as the IP address, whose last four bytes it has."""
    return "0a:58:" + ":".join(f"{byte:02x}" for byte in ip_address(address).packed[-4:])


def bridge(name: str, address: str) -> str:
    """A bridge. Its link-layer address is made from the IP `address`: one that nobody sets changes as ports come
    and go, and the neighbours' caches are wrong then."""
    return f"link add {_checked(name)} address {mac(address)} type bridge forward_delay 0 stp_state 0"


def veth(name: str, peer: str, peer_netns: str) -> str:
    """A pair of links: `name` here, `peer` in the other namespace. Both end when either does."""
    return f"link add {_checked(name)} type veth peer name {_checked(peer)} netns {peer_netns}"


def identify(name: str, address: str) -> str:
    """Make the link-layer address from the IP `address`, so that neighbours who remember who had that address before
    are right."""
    return f"link set {name} address {mac(address)}"


def attach(port: str, bridge: str) -> str:
    return f"link set {port} master {bridge}"


def hairpin(port: str) -> str:
    """Let frames leave by the bridge port they came in by. After `attach`: only a port has this switch."""
    return f"link set {port} type bridge_slave hairpin on"


def up(name: str) -> str:
    return f"link set {name} up"


def address(name: str, cidr: str, *, replace: bool = False) -> str:
    """Give the link an address: "10.244.1.1/24"; `replace`: it may have it already. An IPv6 one is of use at once:
    nobody is asked for a second whether he has it."""
    verb = "replace" if replace else "add"
    return f"address {verb} {cidr} dev {name}" + (" nodad" if ":" in cidr else "")


def route(to: str, dev: str, via: str = "") -> str:
    """A route to "default" or a CIDR, put in place of one that may be there. The gateway need not be in any network
    of ours (`onlink`), as for a pod whose own address is a /32."""
    return f"route replace {to}" + (f" via {via} dev {dev} onlink" if via else f" dev {dev}")


def delete(name: str) -> str:
    return f"link delete {name}"


def _checked(name: str) -> str:
    if not 0 < len(name) <= MAX_NAME or re.search(r"[\s/]", name):
        raise BadInput(f"link {name!r}: a name has 1 to {MAX_NAME} characters, no blank and no slash")
    return name


def _quoting(error: ProgramFailed, lines: Sequence[str]) -> ProgramFailed:
    """The same error with the line instead of its number, which `ip` gives as "Command failed -:2"."""
    numbered = re.search(r"^Command failed -:(\d+)$", error.stderr, re.MULTILINE)
    if not numbered or not 0 < int(numbered[1]) <= len(lines):
        return error
    why = error.stderr.replace(numbered[0], "").strip()
    return ProgramFailed((*error.argv[:-2], lines[int(numbered[1]) - 1]), error.returncode, why)
