"""`clusterip node`: the node agent."""

import logging
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from clusterip.cli.running import run_until_told
from clusterip.errors import BadInput, in_words

if TYPE_CHECKING:
    from clusterip.node.addresses import Network

FILE = click.Path(path_type=Path)

HELP = """Run pods on this node: each in a network namespace of its own, on the bridge cip0.

Must be started in the node's network namespace, as root. It makes cip0, and takes away, at its end and at its next
start, what it made for pods.
"""


class Options(TypedDict):
    kubeconfig: str
    node_name: str
    node_ip: str
    pod_cidr: str
    state_dir: Path
    images: Path | None
    cluster_dns: str
    cluster_domain: str
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    token_file: Path | None
    node_labels: str
    netns_prefix: str
    port: int


@click.command(help=HELP)
@click.option("--kubeconfig", required=True, help="Where the API server is, and who we are.")
@click.option("--node-name", required=True)
@click.option("--node-ip", required=True, metavar="IP[,IP]", help="Our InternalIPs: one, or one a family.")
@click.option(
    "--pod-cidr", required=True, metavar="CIDR[,CIDR]", help="Addresses for our pods; the first is the bridge's."
)
@click.option("--state-dir", required=True, type=FILE, help="Logs, addresses in use, and what to clean up.")
@click.option("--images", type=FILE, help="YAML: what program an image name stands for.")
@click.option("--cluster-dns", default="10.96.0.10", show_default=True, metavar="IP[,IP]")
@click.option("--cluster-domain", default="cluster.local", show_default=True)
@click.option("--tls-cert-file", type=FILE, help="Our certificate; none: logs and exec are not served.")
@click.option("--tls-private-key-file", type=FILE, help="The key of --tls-cert-file.")
@click.option("--token-file", type=FILE, help="The token that who asks for logs and exec must show.")
@click.option("--node-labels", default="", metavar="KEY=VALUE,...", help="Labels of the Node besides the usual ones.")
@click.option("--netns-prefix", default="", help="What the names of pods' network namespaces begin with.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=10250, show_default=True, help="Where logs and exec are served."
)
def command(**options: Unpack[Options]) -> None:
    from clusterip.client.kubeconfig import load
    from clusterip.node import images
    from clusterip.node.agent import run
    from clusterip.node.settings import Serving, Settings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(message)s")
    connection = load(options["kubeconfig"])
    table = images.parse(_read(options["images"], "--images"), str(options["images"])) if options["images"] else ()
    serving = None
    if options["tls_cert_file"]:
        if not options["tls_private_key_file"] or not options["token_file"]:
            raise BadInput("--tls-cert-file: needs --tls-private-key-file and --token-file beside it")
        token = _read(options["token_file"], "--token-file").strip()
        if not token:
            raise BadInput(f"--token-file {options['token_file']}: is empty")
        serving = Serving(options["tls_cert_file"], options["tls_private_key_file"], token, options["port"])
    settings = Settings(
        node_name=options["node_name"],
        node_ips=_addresses(options["node_ip"], "--node-ip"),
        pod_cidrs=_networks(options["pod_cidr"]),
        state_dir=options["state_dir"],
        images=(*table, *images.built_in(str(Path(options["kubeconfig"]).resolve()), options["cluster_domain"])),
        cluster_dns=_addresses(options["cluster_dns"], "--cluster-dns"),
        cluster_domain=options["cluster_domain"],
        serving=serving,
        labels=_labels(options["node_labels"]),
        netns_prefix=options["netns_prefix"],
    )
    run_until_told(run(connection, settings))


def _read(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{option} {path}: cannot be read, {in_words(error)}") from None


def _addresses(text: str, option: str) -> tuple[str, ...]:
    try:
        found = [ip_address(word.strip()) for word in text.split(",")]
    except ValueError as error:
        raise BadInput(f"{option} {text}: {error}", hint="write it as 192.168.50.11,fd00:50::11") from None
    _one_a_family([address.version for address in found], f"{option} {text}")
    return tuple(map(str, found))


def _networks(text: str) -> "tuple[Network, ...]":
    try:
        found = [ip_network(word.strip()) for word in text.split(",")]
    except ValueError as error:
        raise BadInput(f"--pod-cidr {text}: {error}", hint="write it as 10.244.1.0/24,fd00:1:1::/64") from None
    _one_a_family([network.version for network in found], f"--pod-cidr {text}")
    for network in found:
        if network.num_addresses < 4:
            raise BadInput(f"--pod-cidr {network}: has no room for a gateway and a pod", hint="/24 and /64 are usual")
    return tuple(found)


def _one_a_family(versions: Sequence[int], said: str) -> None:
    if len(set(versions)) != len(versions):
        raise BadInput(f"{said}: at most one of each family")


def _labels(text: str) -> dict[str, str]:
    pairs = [piece.partition("=") for piece in text.split(",") if piece]
    if bad := [key for key, equals, _ in pairs if not equals or not key]:
        raise BadInput(f"--node-labels: {bad[0]!r} is not KEY=VALUE")
    return {key: value for key, _, value in pairs}
