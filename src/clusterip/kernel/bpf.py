"""bpf(2) without a library: maps, programs, links on cgroups, pins. Blocking; 1000 entries take a millisecond.

Source: kernel include/uapi/linux/bpf.h. Everything here needs root, and nothing needs BTF.
"""

import ctypes
import errno
import hashlib
import os
import platform
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from clusterip.errors import ClusterIPError, Unavailable

_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_MAP_CREATE, _LOOKUP, _UPDATE, _DELETE, _PROG_LOAD, _OBJ_PIN, _OBJ_GET = 0, 1, 2, 3, 5, 6, 7
_PROG_GET_FD_BY_ID, _OBJ_GET_INFO, _PROG_QUERY = 13, 15, 16
_LOOKUP_BATCH, _UPDATE_BATCH, _DELETE_BATCH, _LINK_CREATE, _LINK_UPDATE = 24, 26, 27, 28, 29
_QUERY_EFFECTIVE = 1  # those of the cgroups above as well
_MOST_PROGRAMS, _MOST_MAPS = 64, 64  # of one hook, which the kernel bounds so; of one program, more than ours have
_CGROUP_SOCK_ADDR = 18  # enum bpf_prog_type
_PSEUDO_MAP_FD = 1  # in the source register of a 64-bit load: the immediate is a map's descriptor
_BATCH = 4096  # entries in one call
# A map that grows takes its entries from a store of a few, which the kernel fills up from an interrupt. Where that
# comes late, a burst of writes is told that there is no memory, and a moment later there is. Source:
# kernel/bpf/memalloc.c; amazonlinux/amazon-linux-2023#1129.
_PAUSE, _PATIENCE = 0.005, 400  # seconds; pauses in a row without one entry written
_LOG = 1 << 16

ATTACH_TYPES: Mapping[str, int] = {
    "cgroup/connect4": 10,
    "cgroup/connect6": 11,
    "cgroup/sendmsg4": 14,
    "cgroup/sendmsg6": 15,
    "cgroup/recvmsg4": 19,
    "cgroup/recvmsg6": 20,
    "cgroup/getpeername4": 29,
    "cgroup/getpeername6": 30,
}

_libc = ctypes.CDLL(None, use_errno=True)


class BpfRefused(ClusterIPError):
    """The kernel refused; `errno` says why."""

    def __init__(self, what: str, number: int, hint: str = "") -> None:
        super().__init__(f"bpf: {what}: {os.strerror(number)} ({errno.errorcode.get(number, number)})", hint=hint)
        self.errno = number


@dataclass(frozen=True, slots=True)
class MapShape:
    """Sizes are bytes; `kind` and `flags` are the kernel's numbers."""

    kind: int
    key_size: int
    value_size: int
    entries: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """A program before it is loaded: eight bytes an instruction; `maps` says which instructions name which map."""

    name: str
    hook: str  # a key of ATTACH_TYPES
    instructions: bytes
    maps: tuple[tuple[int, str], ...]
    license: str


class Handle:
    """A descriptor of something in the kernel, which lives on if it is pinned or attached. A context manager."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Map(Handle):
    """A hash or array map."""

    def __init__(self, fd: int, name: str, shape: MapShape) -> None:
        super().__init__(fd)
        self.name = name
        self.shape = shape

    def __repr__(self) -> str:
        return f"Map({self.name}, {self.shape})"

    @property
    def number(self) -> int:
        """The kernel's."""
        return int(struct.unpack_from("<I", _info(self.fd, 8), 4)[0])

    def get(self, key: bytes) -> bytes | None:
        value = ctypes.create_string_buffer(self.shape.value_size)
        try:
            _element(_LOOKUP, self.fd, key, ctypes.addressof(value), f"map {self.name}: read")
        except BpfRefused as refused:
            if refused.errno == errno.ENOENT:
                return None
            raise
        return value.raw

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Write all, in their order; each entry changes at once, but not all together. Raises BpfRefused."""
        pairs = list(items.items())
        at, patience = 0, _PATIENCE
        while at < len(pairs):
            chunk = pairs[at : at + _BATCH]
            keys, values = b"".join(k for k, _ in chunk), b"".join(v for _, v in chunk)
            number, done = self._batch(_UPDATE_BATCH, keys, values, len(chunk))
            at += done
            patience = _PATIENCE if done else patience - 1
            if number == errno.ENOMEM and patience:
                time.sleep(_PAUSE)
            elif number:
                hint = f"the map holds at most {self.shape.entries} entries" if number == errno.E2BIG else ""
                raise BpfRefused(f"map {self.name}: write {len(chunk)} entries", number, hint)

    def delete(self, keys: Sequence[bytes]) -> None:
        """One that is not there is no error. Raises BpfRefused."""
        at = 0
        while at < len(keys):
            chunk = keys[at : at + _BATCH]
            number, done = self._batch(_DELETE_BATCH, b"".join(chunk), b"", len(chunk))
            if number not in (0, errno.ENOENT):
                raise BpfRefused(f"map {self.name}: delete {len(chunk)} entries", number)
            at += done + (number == errno.ENOENT)  # a batch ends at the first one that is not there

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries; those that come or go meanwhile may be among them."""
        shape = self.shape
        size = min(max(shape.entries, 1), 1 << 16)
        keys, values = (ctypes.create_string_buffer(n * size) for n in (shape.key_size, shape.value_size))
        token = ctypes.create_string_buffer(max(shape.key_size, 4))
        start, number = 0, 0
        while number != errno.ENOENT:
            attributes = struct.pack("<QQQQIIQQ", start, _at(token), _at(keys), _at(values), size, self.fd, 0, 0)
            _, number, answer = _try(_LOOKUP_BATCH, attributes)
            if number not in (0, errno.ENOENT):
                raise BpfRefused(f"map {self.name}: read", number)
            found = struct.unpack_from("<I", answer, 32)[0]
            yield from zip(
                _cut(keys.raw, shape.key_size, found), _cut(values.raw, shape.value_size, found), strict=True
            )
            start = _at(token)

    def _batch(self, command: int, keys: bytes, values: bytes, count: int) -> tuple[int, int]:
        """The error's number, 0 if there was none, and how many entries were done."""
        keys_at, values_at = ctypes.c_char_p(keys), ctypes.c_char_p(values)
        pointers = (ctypes.cast(p, ctypes.c_void_p).value or 0 for p in (keys_at, values_at))
        _, number, answer = _try(command, struct.pack("<QQQQIIQQ", 0, 0, *pointers, count, self.fd, 0, 0))
        return number, struct.unpack_from("<I", answer, 32)[0]


@dataclass(frozen=True, slots=True)
class Attachment:
    """Where a link is: `cgroup` is the inode of the cgroup's directory, 0 if it is attached no more."""

    cgroup: int
    hook: int
    program: int  # the kernel's number of the program


@dataclass(frozen=True, slots=True)
class Loaded:
    """A program in the kernel, whoever loaded it."""

    number: int
    name: str  # at most 15 characters; "": it has none
    tag: bytes  # eight bytes of a hash of its instructions
    maps: frozenset[int]  # the kernel's numbers of those that it names


def create_map(name: str, shape: MapShape) -> Map:
    attributes = struct.pack(
        "<5I2I16s", shape.kind, shape.key_size, shape.value_size, shape.entries, shape.flags, 0, 0, _name(name)
    )
    return Map(_call(_MAP_CREATE, attributes, f"map {name}: create"), name, shape)


def load(code: Code, maps: Mapping[str, Map]) -> Handle:
    """Raises BpfRefused; its hint ends with what the verifier said last."""
    instructions = _naming(code, {name: held.fd for name, held in maps.items()})
    try:
        return Handle(_load(code, instructions, None))
    except BpfRefused as refused:
        log = ctypes.create_string_buffer(_LOG)
        with suppress(BpfRefused):
            return Handle(_load(code, instructions, log))
        said = log.value.decode(errors="replace").strip().splitlines()[-2:]
        raise BpfRefused(f"program {code.name}: load", refused.errno, "; ".join(said)) from None


def attach(program: Handle, cgroup: Path, hook: str) -> Handle:
    """A link: it holds until it is closed and not pinned. Others' programs on the hook run as well."""
    with Handle(os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
        attributes = struct.pack("<4I", program.fd, directory.fd, ATTACH_TYPES[hook], 0)
        return Handle(_call(_LINK_CREATE, attributes + bytes(16), f"{hook} on {cgroup}: attach"))


def replace(link: Handle, program: Handle) -> None:
    """From one call to the next, `program` runs in the old one's place."""
    _call(_LINK_UPDATE, struct.pack("<4I", link.fd, program.fd, 0, 0), "link: replace the program")


def attachment(link: Handle) -> Attachment:
    info = _info(link.fd, 32)
    cgroup, hook = struct.unpack_from("<QI", info, 16)
    return Attachment(cgroup, hook, struct.unpack_from("<I", info, 8)[0])


def running(cgroup: Path, hook: str) -> tuple[int, ...]:
    """The kernel's numbers of the programs that a socket of this cgroup meets, in their order. Raises BpfRefused; and
    OSError, if there is no such cgroup."""
    numbers = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    with Handle(os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
        asked = (directory.fd, ATTACH_TYPES[hook], _QUERY_EFFECTIVE, 0, ctypes.addressof(numbers), _MOST_PROGRAMS, 0)
        _, number, answer = _try(_PROG_QUERY, struct.pack("<4IQII", *asked))
    if number:
        raise BpfRefused(f"{hook} on {cgroup}: ask for its programs", number)
    return tuple(numbers[: struct.unpack_from("<I", answer, 24)[0]])


def loaded(number: int) -> Loaded | None:
    """None: there is none any more."""
    try:
        handle = Handle(_call(_PROG_GET_FD_BY_ID, struct.pack("<3I", number, 0, 0), f"program {number}: open"))
    except BpfRefused as refused:
        if refused.errno == errno.ENOENT:
            return None
        raise
    maps = (ctypes.c_uint32 * _MOST_MAPS)()
    info = ctypes.create_string_buffer(80)
    with handle:
        struct.pack_into("<IQ", info, 52, _MOST_MAPS, ctypes.addressof(maps))
        _call(_OBJ_GET_INFO, struct.pack("<IIQ", handle.fd, len(info), _at(info)), f"program {number}: describe")
    count = min(struct.unpack_from("<I", info, 52)[0], _MOST_MAPS)
    name = info.raw[64:80].partition(b"\0")[0].decode(errors="replace")
    return Loaded(number, name, info.raw[8:16], frozenset(maps[:count]))


def tags(code: Code) -> frozenset[bytes]:
    """What the kernel may call these instructions: it hashes them without the maps they were loaded with, from 6.18 on
    by SHA-256 and before by SHA-1. Source: kernel/bpf/core.c, bpf_prog_calc_tag."""
    instructions = _naming(code, dict.fromkeys((name for _, name in code.maps), 0))
    return frozenset(h(instructions).digest()[:8] for h in (hashlib.sha1, hashlib.sha256))


def pin(handle: Handle, path: Path) -> None:
    """`path` lies in a bpf file system and does not exist yet."""
    text = ctypes.create_string_buffer(os.fsencode(path))
    _call(_OBJ_PIN, struct.pack("<QII", _at(text), handle.fd, 0), f"{path}: pin")


def pinned(path: Path) -> Handle | None:
    """None: nothing is pinned there."""
    text = ctypes.create_string_buffer(os.fsencode(path))
    try:
        return Handle(_call(_OBJ_GET, struct.pack("<QII", _at(text), 0, 0), f"{path}: open"))
    except BpfRefused as refused:
        if refused.errno == errno.ENOENT:
            return None
        raise


def pinned_map(path: Path, name: str) -> Map | None:
    handle = pinned(path)
    if handle is None:
        return None
    kind, _, key, value, entries, flags = struct.unpack_from("<6I", _info(handle.fd, 40))
    return Map(handle.fd, name, MapShape(kind, key, value, entries, flags))


def _naming(code: Code, descriptors: Mapping[str, int]) -> bytes:
    """Its instructions with the maps' descriptors where they are named."""
    instructions = bytearray(code.instructions)
    for index, name in code.maps:
        instructions[8 * index + 1] = instructions[8 * index + 1] & 0x0F | _PSEUDO_MAP_FD << 4
        struct.pack_into("<i", instructions, 8 * index + 4, descriptors[name])
    return bytes(instructions)


def _load(code: Code, instructions: bytes, log: "ctypes.Array[ctypes.c_char] | None") -> int:
    at, license_at = ctypes.create_string_buffer(instructions), ctypes.create_string_buffer(code.license.encode())
    level, size, log_at = (1, _LOG, _at(log)) if log is not None else (0, 0, 0)
    count = len(instructions) // 8
    attributes = struct.pack("<IIQQIIQ", _CGROUP_SOCK_ADDR, count, _at(at), _at(license_at), level, size, log_at)
    rest = struct.pack("<II16sII", 0, 0, _name(code.name), 0, ATTACH_TYPES[code.hook])
    return _call(_PROG_LOAD, attributes + rest, f"program {code.name}: load")


def _element(command: int, fd: int, key: bytes, value_at: int, what: str) -> None:
    at = ctypes.create_string_buffer(key, len(key))
    _call(command, struct.pack("<I4xQQQ", fd, _at(at), value_at, 0), what)


def _info(fd: int, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    _call(_OBJ_GET_INFO, struct.pack("<IIQ", fd, size, _at(buffer)), "object: read its description")
    return buffer.raw


def _cut(data: bytes, size: int, count: int) -> list[bytes]:
    return [data[i * size : (i + 1) * size] for i in range(count)]


def _name(text: str) -> bytes:
    return text.encode()[:15]


def _at(buffer: "ctypes.Array[ctypes.c_char]") -> int:
    return ctypes.addressof(buffer)


def _call(command: int, attributes: bytes, what: str) -> int:
    result, number, _ = _try(command, attributes)
    if number:
        raise BpfRefused(what, number)
    return result


def _try(command: int, attributes: bytes) -> tuple[int, int, bytes]:
    """The result, the error's number, and the attributes as the kernel left them."""
    call = _CALL.get(platform.machine())
    if call is None:
        raise Unavailable(f"bpf: unknown on {platform.machine()}", hint="choose another proxy mode")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(_libc.syscall(ctypes.c_long(call), ctypes.c_int(command), buffer, ctypes.c_uint(len(attributes))))
    return result, ctypes.get_errno() if result < 0 else 0, buffer.raw
