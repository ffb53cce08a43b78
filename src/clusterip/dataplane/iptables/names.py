"""Names of chains.

A name ends in the first 16 characters of base32(SHA-256(text)), because the kernel keeps 28 characters of a chain's
name. Source: kube-proxy's iptables mode; known vectors are in tests/dataplane/test_iptables_names.py.
"""

import hashlib
from base64 import b32encode

from clusterip.services.table import Backend, PortName, Protocol

SERVICES = "KUBE-SERVICES"
EXTERNAL_SERVICES = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS = "KUBE-NODEPORTS"
POSTROUTING = "KUBE-POSTROUTING"
MARK_MASQ = "KUBE-MARK-MASQ"
FORWARD = "KUBE-FORWARD"
PROXY_FIREWALL = "KUBE-PROXY-FIREWALL"
FIREWALL = "KUBE-FIREWALL"  # shared with kubelet: created, never removed
CANARY = "KUBE-PROXY-CANARY"

# The chains that belong to one Service port, in the order they refer to each other: each only to later ones.
OWN_PREFIXES = ("KUBE-FW-", "KUBE-EXT-", "KUBE-SVL-", "KUBE-SVC-", "KUBE-SEP-")


def digest(text: str) -> str:
    return b32encode(hashlib.sha256(text.encode()).digest()[:10]).decode("ascii")


def service_digest(name: PortName, protocol: Protocol) -> str:
    """What follows KUBE-SVC-, KUBE-SVL-, KUBE-EXT- and KUBE-FW- in the chains of one Service port."""
    return digest(f"{name}{protocol.lower()}")


def endpoint_chain(name: PortName, protocol: Protocol, backend: Backend) -> str:
    return f"KUBE-SEP-{digest(f'{name}{protocol.lower()}{backend}')}"


def is_own_chain(chain: str) -> bool:
    """True if `chain` of the nat table belongs to one Service port."""
    return chain.startswith(OWN_PREFIXES)
