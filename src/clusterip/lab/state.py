"""Where a cluster keeps what it is: one directory, private to root, gone with the cluster."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from clusterip.errors import BadInput, Unavailable
from clusterip.lab.plan import DEFAULT_NAME, Plan, check_name

DEFAULT_ROOT = "/run/clusterip"

T = TypeVar("T")


class Identity(msgspec.Struct, frozen=True):
    """A process for sure: the kernel uses pids again, but not with the same start time."""

    pid: int
    started: int  # clock ticks after boot


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # "apiserver", "controllers", "agent of node-1", "proxy of node-1"
    process: Identity | None = None  # None: it is dead, and waits to be started again
    since: float = 0.0  # Unix time of the last start
    restarts: int = 0
    last_end: str = ""  # how it ended last: "exit status 1", "signal 9"


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor last wrote."""

    supervisor: Identity
    components: tuple[ComponentStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The files of one cluster, there or not."""

    name: str
    directory: Path

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def logs(self) -> Path:
        return self.directory / "log"

    def proxy_configuration_of(self, node: str) -> Path:
        return self.directory / f"{node}.proxy.yaml"

    def log_of(self, component: str) -> Path:
        return self.logs / f"{component.replace(' of ', '-')}.log"

    def plan(self) -> Plan | None:
        """None: there is no cluster, or what there is of it cannot be read."""
        return _read(self.directory / "cluster.json", Plan)

    def supervision(self) -> Supervision | None:
        return _read(self.directory / "supervision.json", Supervision)

    def component(self, name: str) -> ComponentStatus | None:
        """As the supervisor last wrote of it; None: it has not."""
        supervision = self.supervision()
        return next((c for c in supervision.components if c.name == name), None) if supervision else None

    def write_plan(self, plan: Plan) -> None:
        write(self.directory / "cluster.json", msgspec.json.format(msgspec.json.encode(plan)))

    def write_supervision(self, supervision: Supervision) -> None:
        write(self.directory / "supervision.json", msgspec.json.encode(supervision))


def root() -> Path:
    return Path(os.environ.get("CLUSTERIP_STATE") or DEFAULT_ROOT).absolute()


def state_of(name: str) -> State:
    check_name(name)
    return State(name, root() / name)


def clusters() -> tuple[str, ...]:
    """Names of all clusters that have left something in the state directory, up or not."""
    with suppress(OSError):
        return tuple(sorted(p.name for p in root().iterdir() if p.is_dir()))
    return ()


def existing(name: str = DEFAULT_NAME) -> tuple[State, Plan]:
    """A cluster that has been brought up. Raises Unavailable with how to get one."""
    state = state_of(name)
    try:
        plan = state.plan()
    except PermissionError as error:
        raise Unavailable(f"cluster {name}: {state.directory} cannot be read", hint="run it as root") from error
    if plan is not None and state.kubeconfig.exists():
        return state, plan
    others = [other for other in clusters() if other != name]
    hint = "clusterip up" + (f" --name {name}" if name != DEFAULT_NAME else "")
    if others:
        hint += f", or name another: --name {others[0]}"
    raise Unavailable(f"cluster {name}: there is none", hint)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One `up` or `down` of a name at a time. Raises BadInput if another is at it."""
    check_name(name)
    root().mkdir(mode=0o711, parents=True, exist_ok=True)
    path = root() / f".{name}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            busy = f"cluster {name}: another clusterip up or down is at work on it"
            raise BadInput(busy, hint="wait for it to end") from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(fd)
        with suppress(OSError):  # another cluster lives there
            root().rmdir()


def write(path: Path, content: bytes | str, mode: int = 0o600) -> None:
    """All of it or nothing: a reader never sees half a file."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    draft.replace(path)


def _read(path: Path, as_type: type[T]) -> T | None:
    """None if it is not there or was not written by this version of us."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=as_type)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
