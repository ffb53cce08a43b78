"""What the mode puts into the kernel, as inputs for the programs that people know. Pure."""

from collections.abc import Iterable

from clusterip.dataplane.ipvs import sets
from clusterip.dataplane.ipvs.book import Book
from clusterip.dataplane.ipvs.chains import complete as chains
from clusterip.dataplane.ipvs.compile import Piece, VirtualServer
from clusterip.dataplane.ipvs.config import DEVICE, Config
from clusterip.rulesets import ipvs


def complete(pieces: Iterable[Piece], config: Config) -> str:
    """Four parts, each under a line that names the program it is for; sets come before the rules that ask them."""
    book = Book.of(pieces)
    program = "ip6tables-restore" if config.ipv6 else "iptables-restore"
    link = f"link add {DEVICE} type dummy\n"
    parts = (
        ("ipset restore", _sets(book, config)),
        (program, chains(book.shape, config)),
        ("ipvsadm -R", servers(book)),
        (
            "ip -batch -",
            link + "".join(f"addr add {a}/{config.host_bits} dev {DEVICE}\n" for a in sorted(book.addresses)),
        ),
    )
    return "\n".join(f"# --- {program} ---\n{text}" for program, text in parts)


def servers(book: Book) -> str:
    """As `ipvsadm -Sn` prints it."""
    ordered = sorted(book.servers, key=lambda server: server.at)
    return ipvs.text(ipvs.Services(tuple(map(_service, ordered))))


def _service(server: VirtualServer) -> ipvs.VirtualService:
    reals = tuple(ipvs.RealServer(real.address, real.port, weight=1) for real in server.reals)
    flags = ("mh-port",) if server.scheduler == "mh" else ()
    frontend = ipvs.Frontend(*server.at)
    return ipvs.VirtualService(frontend, server.scheduler, server.persistent, flags=flags, servers=reals)


def _sets(book: Book, config: Config) -> str:
    created = "".join(f"{sets.create(kind, config)}\n" for kind in sets.SETS)
    ordered = sorted(book.members, key=lambda m: (sets.RANK[m.kind], m.text))
    return created + "".join(f"add {sets.name(m.kind, config)} {m.text}\n" for m in ordered)
