"""What a node agent is told when it is started."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from types import MappingProxyType

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
    node_name: str
    node_ip: str
    pod_cidr: IPv4Network
    state_dir: Path
    images: tuple[Entry, ...]
    cluster_dns: str = "10.96.0.10"
    cluster_domain: str = "cluster.local"
    serving: Serving | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    netns_prefix: str = ""
    back_off_first: float = 10.0  # seconds before the second restart of a container that keeps failing
    back_off_most: float = 300.0
    bridge: str = "cip0"
