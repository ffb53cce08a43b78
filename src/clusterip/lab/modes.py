"""Which mode a node's proxy is in, and another one while it runs."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from clusterip.errors import BadInput, ClusterIPError, Unavailable
from clusterip.lab.plan import PROXY_MODES, Plan
from clusterip.lab.processes import alive
from clusterip.lab.proxies import proxy_status
from clusterip.lab.state import Identity, State, write
from clusterip.model.status import Object

PATIENCE = 120.0  # seconds that a change may take
_POLL = 0.1


class NotChanged(ClusterIPError):
    """The proxy stays in the mode it was in."""


@dataclass(frozen=True, slots=True)
class Changed:
    before: str
    now: str
    seconds: float  # in all
    phases: tuple[tuple[str, float], ...] = ()  # what took how long, seconds
    left: tuple[str, ...] = ()  # of the mode before, in words
    follows: str = ""  # the mode that was asked for, if it cannot be before something else has ended
    waits: str = ""  # for what, in words


def check(plan: Plan, node: str, mode: str) -> None:
    """Raises BadInput. `node` "": all."""
    if node and node not in plan.node_names:
        names = "node-1" if plan.nodes == 1 else f"node-1 to node-{plan.nodes}"
        raise BadInput(f"{node}: no such node; the cluster has {names}", hint="clusterip mode lists them")
    if mode not in PROXY_MODES:
        raise BadInput(f"{mode}: unknown mode", hint=f"one of: {', '.join(PROXY_MODES)}")


def begins_in(state: State, node: str) -> str:
    """The mode that the node's proxy takes whenever it is started. Raises Unavailable."""
    return str(yaml.safe_load(_read(state.proxy_configuration_of(node)))["mode"])


async def change(plan: Plan, state: State, node: str, mode: str) -> Changed:
    """Tell the node's proxy, and wait until the other mode serves, or one on the way to it. What its file says is what
    it starts with, whenever it is started again. Raises NotChanged or Unavailable, and then the file says what it said
    before."""
    process = _proxy(state, node)
    began = time.monotonic()
    before = await _status(plan, node)
    was = str(before.get("mode", ""))
    reads, number = _reads(before), _number(before)
    path = state.proxy_configuration_of(node)
    text = _read(path)
    if was == mode == begins_in(state, node):
        return Changed(was, mode, 0.0)

    def say(words: str) -> None:
        write(path, words)
        os.kill(process.pid, signal.SIGHUP)

    said: Object = {}
    try:
        said = await _after(plan, state, node, reads, lambda: say(_with_mode(text, mode)))
    finally:
        if mode not in (said.get("mode"), _follows(said)):
            say(text)
    change = said.get("change") or {}
    if mode not in (said["mode"], _follows(said)):
        refused = str(said["configuration"]["refused"]) or f"it went on in mode {said['mode']}"
        raise NotChanged(f"{node}: stays in mode {said['mode']}: {refused}", hint=_hint(node, mode, said))
    phases = change["seconds"] if change.get("number", 0) > number else {}
    left = tuple(str(line) for line in said.get("left", ()))
    waits = str(said["configuration"].get("waits", ""))
    return Changed(was, said["mode"], time.monotonic() - began, tuple(phases.items()), left, _follows(said), waits)


async def _after(plan: Plan, state: State, node: str, reads: int, begin: Callable[[], None]) -> Object:
    """The status when the proxy has read its file anew, and acted on it."""
    begin()
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                await asyncio.sleep(_POLL)
                found, _ = await proxy_status(plan, node)
                if found and _reads(found) > reads:
                    return found
                _proxy(state, node)
    except TimeoutError as error:
        log = state.log_of(f"proxy of {node}")
        raise Unavailable(f"{node}: its proxy says nothing of a change within {PATIENCE:g} s", f"tail {log}") from error


def _proxy(state: State, node: str) -> Identity:
    """Raises Unavailable if it is dead."""
    component = state.component(f"proxy of {node}")
    if component is not None and component.process is not None and alive(component.process):
        return component.process
    raise Unavailable(f"{node}: its proxy is dead", hint=f"tail {state.log_of(f'proxy of {node}')}")


async def _status(plan: Plan, node: str) -> Object:
    found, why = await proxy_status(plan, node)
    if not found.get("mode"):
        raise Unavailable(f"{node}: its proxy cannot be asked: {why or 'it has just begun'}", hint="clusterip status")
    return found


def _reads(status: Object) -> int:
    return int((status.get("configuration") or {}).get("reads", 0))


def _follows(status: Object) -> str:
    return str((status.get("configuration") or {}).get("follows", ""))


def _number(status: Object) -> int:
    return int((status.get("change") or {}).get("number", 0))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"{path}: cannot be read: {error.strerror}") from error


def _with_mode(text: str, mode: str) -> str:
    return yaml.safe_dump({**yaml.safe_load(text), "mode": mode}, sort_keys=False)


def _hint(node: str, mode: str, said: Object) -> str:
    if mode not in ("ipvs", "ebpf"):
        return str(said["configuration"].get("hint", ""))
    if said["mode"] == "nftables":
        return "nftables does the same, and needs no more than it has"
    return f"clusterip mode {node} nftables does the same, and works here"
