"""`clusterip apiserver`: what its options mean, checked before anything is started."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from clusterip.errors import BadInput, in_words

if TYPE_CHECKING:
    from clusterip.allocation.bands import Network

FILE = click.Path(path_type=Path)


class Options(TypedDict):
    data_dir: Path | None
    listen: tuple[str, ...]
    listen_fd: tuple[int, ...]
    service_cluster_ip_range: str
    service_node_port_range: str
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    token_auth_file: Path | None
    kubelet_ca_file: Path | None
    kubelet_token_file: Path | None
    advertise_address: str
    advertise_port: int
    store: str
    enable_admission_plugins: str


@click.command("apiserver", help="Run the API server: the Kubernetes API of the kinds a ClusterIP needs.")
@click.option("--data-dir", type=FILE, help="Directory of the store; needed by --store sqlite.")
@click.option("--listen", multiple=True, metavar="ADDR:PORT", help="Address to listen on; may be given several times.")
@click.option("--listen-fd", multiple=True, type=int, metavar="FD", help="Listening socket that we inherit.")
@click.option("--service-cluster-ip-range", default="10.96.0.0/16", show_default=True, metavar="CIDR[,CIDR]")
@click.option("--service-node-port-range", default="30000-32767", show_default=True, metavar="FIRST-LAST")
@click.option("--tls-cert-file", type=FILE, help="Our certificate, with its chain.")
@click.option("--tls-private-key-file", type=FILE, help="The key of --tls-cert-file.")
@click.option("--token-auth-file", type=FILE, help="Lines of token,user,groups: who may do anything.")
@click.option("--kubelet-ca-file", type=FILE, help="Who signs the certificates of node agents.")
@click.option("--kubelet-token-file", type=FILE, help="The token we show to node agents.")
@click.option("--advertise-address", default="", help="Where pods reach us. [default: the first of --listen]")
@click.option(
    "--advertise-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="And on which port. [default: the first of --listen]",
)
@click.option("--store", type=click.Choice(("sqlite", "memory")), default="sqlite", show_default=True)
@click.option("--enable-admission-plugins", default="", metavar="NAMES", help="Known: DenyServiceExternalIPs.")
def command(**options: Unpack[Options]) -> None:
    from clusterip.apiserver.bootstrap import Advertised
    from clusterip.apiserver.nodes import Access
    from clusterip.apiserver.serve import Settings, bound, serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if options["store"] == "sqlite" and options["data_dir"] is None:
        raise BadInput("--data-dir: --store sqlite needs a directory", "give --data-dir DIR, or --store memory")
    if (options["tls_cert_file"] is None) != (options["tls_private_key_file"] is None):
        raise BadInput("--tls-cert-file and --tls-private-key-file: one without the other")
    plugins = [name for name in options["enable_admission_plugins"].split(",") if name]
    if unknown := set(plugins) - {"DenyServiceExternalIPs"}:
        raise BadInput(
            f"--enable-admission-plugins: {', '.join(sorted(unknown))} is not known", "DenyServiceExternalIPs is"
        )
    addresses = [address_and_port(text) for text in options["listen"]]
    sockets = [inherited(fd) for fd in options["listen_fd"]] + [bound(*address) for address in addresses]
    here, port = addresses[0] if addresses else ("127.0.0.1", 6443)
    if sockets and not port:
        port = sockets[0].getsockname()[1]
    token = options["kubelet_token_file"]
    settings = Settings(
        cidrs=service_cidrs(options["service_cluster_ip_range"]),
        data_dir=options["data_dir"] if options["store"] == "sqlite" else None,
        advertised=Advertised(options["advertise_address"] or here, options["advertise_port"] or port),
        node_ports=port_range(options["service_node_port_range"]),
        tls_cert=options["tls_cert_file"],
        tls_key=options["tls_private_key_file"],
        tokens=options["token_auth_file"],
        nodes=Access(options["kubelet_ca_file"], first_line(token) if token else ""),
        deny_external_ips="DenyServiceExternalIPs" in plugins,
    )
    run(serve(settings, sockets))


def run(main: Coroutine[None, None, None]) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def address_and_port(text: str) -> tuple[str, int]:
    """ "127.0.0.1:6443", "[::1]:6443"; port 0: any that is free."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = ""
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"--listen {text}: not ADDRESS:PORT", "write --listen 127.0.0.1:6443 or --listen [::1]:6443")
    return host, int(port)


def inherited(fd: int) -> socket.socket:
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        raise BadInput(f"--listen-fd {fd}: not a socket of ours, {error.strerror}") from error


def service_cidrs(text: str) -> "tuple[Network, ...]":
    """One range, or two of different families; each of at least 8 addresses."""
    try:
        found = [ipaddress.ip_network(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise BadInput(f"--service-cluster-ip-range {text}: {error}") from error
    if len(found) > 2 or len({cidr.version for cidr in found}) != len(found):
        raise BadInput(f"--service-cluster-ip-range {text}: one range, or two of different families")
    for cidr in found:
        if cidr.num_addresses < 8:
            raise BadInput(f"--service-cluster-ip-range {cidr}: too small, it needs at least 8 addresses")
        if cidr.version == 6 and cidr.prefixlen < 64:
            raise BadInput(f"--service-cluster-ip-range {cidr}: too large, an IPv6 range is /64 or smaller")
    return tuple(found)


def port_range(text: str) -> tuple[int, int]:
    """ "30000-32767", both included; also "30000+100", the number and how many more."""
    first, sign, last = text.partition("-") if "-" in text else text.partition("+")
    if not (sign and first.isdigit() and last.isdigit()):
        raise BadInput(f"--service-node-port-range {text}: not FIRST-LAST", "write 30000-32767")
    low, high = int(first), int(last) + (int(first) if sign == "+" else 0)
    if not 0 < low <= high <= 65535:
        raise BadInput(f"--service-node-port-range {text}: ports are 1 to 65535, the first not behind the last")
    return low, high


def first_line(path: Path) -> str:
    try:
        lines: Sequence[str] = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"token file {path}: cannot be read, {in_words(error)}") from error
    # The file may be a token alone, or the first line of a token,user,groups file.
    token = lines[0].partition(",")[0].strip() if lines else ""
    if not token:
        raise BadInput(f"token file {path}: is empty")
    return token
