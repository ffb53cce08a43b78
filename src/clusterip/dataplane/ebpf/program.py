"""The compiled program as the package ships it: instructions, maps, and a hash that says it is whole."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

from clusterip.errors import ClusterIPError
from clusterip.kernel.bpf import Code, MapShape


class Damaged(ClusterIPError):
    """The shipped program is not what was built."""


@dataclass(frozen=True, slots=True)
class Program:
    hash: str
    source: str  # SHA-256 of bpf/socket.bpf.c
    compiler: str
    maps: Mapping[str, MapShape]
    codes: tuple[Code, ...]

    @property
    def layout(self) -> str:
        """The same for programs that can share maps."""
        return hashlib.sha256(repr(sorted(self.maps.items())).encode()).hexdigest()[:12]

    def smaller(self, entries: int) -> "Program":
        """The same with maps of at most `entries` entries, for a look at whether the kernel takes it."""
        return replace(self, maps={n: replace(m, entries=min(m.entries, entries)) for n, m in self.maps.items()})


def shipped() -> Program:
    """Raises Damaged."""
    return parse((files("clusterip.dataplane.ebpf") / "socket.json").read_bytes())


def parse(text: bytes) -> Program:
    """What scripts/build-bpf wrote. Raises Damaged."""
    try:
        document = json.loads(text)
        claimed = document.pop("hash")
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # cut short, or something else altogether
        raise Damaged("eBPF program: the file cannot be read", hint="install the package again") from error
    if hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest() != claimed:
        raise Damaged("eBPF program: its hash is not the one it was built with", hint="install the package again")
    shape = ("type", "key_size", "value_size", "entries", "flags")
    return Program(
        hash=claimed,
        source=document["source"],
        compiler=document["compiler"],
        maps={name: MapShape(*(m[field] for field in shape)) for name, m in document["maps"].items()},
        codes=tuple(
            Code(
                name=name,
                hook=code["hook"],
                instructions=base64.b64decode(code["instructions"]),
                maps=tuple((index, used) for index, used in code["maps"]),
                license=document["license"],
            )
            for name, code in document["programs"].items()
        ),
    )
