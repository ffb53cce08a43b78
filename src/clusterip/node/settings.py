"""What a node agent is told when it is started."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from clusterip.node.addresses import Network
from clusterip.node.images import Entry


@dataclass(frozen=True, slots=True)
class Serving:
    """How logs and exec are served."""

    tls_cert_file: Path
    tls_private_key_file: Path
    token: str
    port: int = 10250


@dataclass(frozen=True, slots=True)
class Settings:
    """Of addresses there is one, or one a family, the primary one first."""

    node_name: str
    node_ips: tuple[str, ...]
    pod_cidrs: tuple[Network, ...]
    state_dir: Path
    images: tuple[Entry, ...]
    cluster_dns: tuple[str, ...] = ("10.96.0.10",)
    cluster_domain: str = "cluster.local"
    serving: Serving | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    netns_prefix: str = ""
    back_off_first: float = 10.0  # seconds before the second restart of a container that keeps failing
    back_off_most: float = 300.0
    bridge: str = "cip0"
