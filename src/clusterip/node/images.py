"""Which program an image name stands for: there are no images here, pods run programs of the host's file system.

The table is YAML: a pattern, and what to run. The user's own entries come first, then what is built in.

    nginx: [nginx, -g, daemon off;]
    "registry.example/team/*":
      argv: [python3, -m, http.server]    # as an image's ENTRYPOINT: a container's `command` takes its place
      args: ["8080"]                      # as an image's CMD: a container's `args` take its place
      env: {MODE: demo}
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from clusterip.errors import BadInput
from clusterip.model.objects import Container

ECHO = Path(__file__).with_name("echo.py")


@dataclass(frozen=True, slots=True)
class Entry:
    pattern: str
    argv: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Runnable:
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NotMapped:
    """No entry fits, or nothing is left to run. `message` is for the pod's status."""

    message: str


def built_in(kubeconfig: str, cluster_domain: str) -> tuple[Entry, ...]:
    """`kubeconfig`: what the name server uses to reach the API server."""
    program = (sys.executable, "-m", "clusterip")
    dns = ("dns", "--kubeconfig", kubeconfig, "--cluster-domain", cluster_domain, "--http", ":9153")
    return (
        # By its path and without site-packages: it needs neither, and starts in a third of the time.
        Entry("clusterip/echo", argv=(sys.executable, "-I", "-S", str(ECHO))),
        Entry("clusterip/client", args=("sleep", "infinity")),
        Entry("clusterip/dns", argv=(*program, *dns)),
    )


def parse(text: str, where: str) -> tuple[Entry, ...]:
    """The entries of a YAML table, in its order. Raises BadInput, which names `where` and the pattern."""
    import yaml

    try:
        table = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"{where}: is not YAML, {' '.join(str(error).split())}") from None
    if table is None:
        return ()
    if not isinstance(table, dict):
        raise BadInput(f"{where}: must map image patterns to programs", hint="nginx: [nginx, -g, daemon off;]")
    return tuple(_entry(str(pattern), given, where) for pattern, given in table.items())


def _entry(pattern: str, given: object, where: str) -> Entry:
    if isinstance(given, list):
        given = {"argv": given}
    if not isinstance(given, dict) or not given.keys() <= {"argv", "args", "env"}:
        raise BadInput(f"{where}: {pattern}: must be a list of words, or a mapping with argv, args, env")
    words = {}
    for name in ("argv", "args"):
        value = given.get(name) or []
        if not isinstance(value, list) or not all(isinstance(word, str | int | float) for word in value):
            raise BadInput(f"{where}: {pattern}: {name} must be a list of words")
        words[name] = tuple(str(word) for word in value)
    env = given.get("env") or {}
    if not isinstance(env, dict):
        raise BadInput(f"{where}: {pattern}: env must be a mapping")
    if not words["argv"] and not words["args"]:
        raise BadInput(f"{where}: {pattern}: names no program", hint=f"{pattern}: [program, argument]")
    return Entry(pattern, words["argv"], words["args"], MappingProxyType({str(k): str(v) for k, v in env.items()}))


def resolve(table: tuple[Entry, ...], container: Container) -> Runnable | NotMapped:
    """What the container runs, by the rules of ENTRYPOINT and CMD. An image that nobody maps is fine where the
    container says itself what to run."""
    entry = next((e for e in table if any(fnmatchcase(name, e.pattern) for name in _names(container.image))), None)
    if entry is None and not container.command:
        return NotMapped(
            f'no program is mapped to the image "{container.image}": write `{_bare(container.image)}: [PROGRAM, '
            "ARGUMENT]` into a file and start the cluster with `clusterip up --images FILE`, or give the container "
            "a `command`"
        )
    entry = entry or Entry(container.image)
    argv = container.command + container.args if container.command else entry.argv + (container.args or entry.args)
    if not argv:
        return NotMapped(f'image "{container.image}" has no program of its own: give the container `args`')
    return Runnable(argv, entry.env)


def _names(image: str) -> Iterator[str]:
    """What a pattern may match: the whole name, the name without tag, and both without Docker's registry."""
    for name in (image, _bare(image)):
        yield name
        yield name.removeprefix("docker.io/").removeprefix("library/")


def _bare(image: str) -> str:
    """Without digest and tag; a colon before the last slash is a registry's port."""
    name = image.partition("@")[0]
    path, slash, last = name.rpartition("/")
    return path + slash + last.partition(":")[0]
