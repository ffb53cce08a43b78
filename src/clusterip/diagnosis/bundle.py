"""What a bundle for a bug report holds, and what it leaves out. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from clusterip.model.objects import Value
from clusterip.model.resources import Resource
from clusterip.model.status import Object

LEFT_OUT = "(left out)"

# Settings of the kernel that decide where packets of Services go, or when connections end.
_SETTINGS = re.compile(
    r"net\.(?:ipv4\.(?:ip_forward|ip_local_port_range|ip_local_reserved_ports|ip_nonlocal_bind|vs\.|tcp_|"
    r"conf\.[^ ]+\.(?:forwarding|rp_filter|route_localnet|arp_ignore|arp_announce|src_valid_mark|accept_local))|"
    r"ipv6\.conf\.[^ ]+\.(?:forwarding|disable_ipv6|accept_ra)|netfilter\.|bridge\.|nf_conntrack_max|"
    r"core\.(?:somaxconn|bpf_|netdev_max_backlog))"
)
_WORD = r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential)[\w.-]*"
_SECRETS = (
    re.compile(r"-----BEGIN [^-]*-----.*?-----END [^-]*-----", re.DOTALL),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"),  # a JSON web token
    re.compile(rf"(?i)(?P<kept>[\"']?{_WORD}[\"']?\s*[:=]\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&\"'}}]+)"),
)
_SECRET_WORD = re.compile(rf"(?i)-*{_WORD}")
# Of an annotation these begin the keys of those that say something of Services; any other may hold anything.
_ANNOTATIONS = ("service.kubernetes.io/", "endpoints.kubernetes.io/", "service.alpha.kubernetes.io/")


class File(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One file of the bundle, or why there is none."""

    name: str
    source: str  # the command that said it, or the path it was read from
    missing: str = ""  # why it could not be had


class Bundle(Struct, frozen=True, rename="camel"):
    """The first file of a bundle: `bundle.json`."""

    api_version: str = "clusterip/v1"
    kind: Literal["Bundle"] = "Bundle"
    version: str = ""  # of clusterip
    node: str = ""
    kernel: str = ""  # its release
    collected_at: str = ""  # RFC 3339, UTC
    files: tuple[File, ...] = ()


def settings(text: str) -> str:
    """Of `sysctl -a` the lines that matter."""
    return "".join(line for line in text.splitlines(keepends=True) if _SETTINGS.match(line))


def scrubbed(text: str) -> str:
    """Without what looks like a password, a token or a key."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda m: m.groupdict().get("kept", "") + LEFT_OUT, text)
    return text


def documents(resource: Resource, values: Iterator[Value] | tuple[Value, ...]) -> Object:
    """A list of a kind, without secrets."""
    items = []
    for value in values:
        document = {"apiVersion": resource.api_version, "kind": resource.kind, **msgspec.to_builtins(value)}
        items.append(_of_object(document))
    return {"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "items": items}


def _of_object(document: Mapping[str, Any]) -> Object:
    meta = dict(document.get("metadata") or {})
    if annotations := meta.pop("annotations", None):
        kept = {key: scrubbed(text) for key, text in annotations.items() if key.startswith(_ANNOTATIONS)}
        meta |= {"annotations": kept} if kept else {}
    return {**_without_secrets(document), "metadata": meta}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _field(key, inner) for key, inner in value.items()}
    if isinstance(value, str):
        return scrubbed(value)
    return [_without_secrets(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _field(key: str, value: Any) -> Any:
    match key:
        case "env":  # of a container: the names tell which Services it was told of
            return [{"name": variable["name"], "value": LEFT_OUT} for variable in value]
        case "args" | "command":
            return _arguments(value)
        case "httpHeaders":
            return [{**header, "value": LEFT_OUT} for header in value]
        case _:
            return _without_secrets(value)


def _arguments(words: Any) -> Any:
    """The word after "--password" goes, too."""
    kept: list[str] = []
    for word in words:
        follows = bool(kept) and kept[-1].startswith("-") and _SECRET_WORD.fullmatch(kept[-1]) is not None
        kept.append(LEFT_OUT if follows else scrubbed(word))
    return kept
