"""Short commands beside a container: exec probes and life-cycle hooks."""

import asyncio
import os
import signal
from dataclasses import dataclass

from clusterip.errors import ClusterIPError
from clusterip.kernel.processes import Launcher, Process, Program, Stdio, output_pipe

KEPT = 10 * 1024  # bytes of output that are kept


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    output: str  # both streams


async def execute(launcher: Launcher, container: Process, program: Program) -> Result:
    """To its end; who is cancelled while waiting leaves no process. A program that cannot be run has code 127."""
    reader, writing = await output_pipe()
    try:
        process = await launcher.join(program, container, Stdio(out=writing, err=writing))
    except ClusterIPError as error:
        return Result(127, error.message)
    finally:
        os.close(writing)
    try:
        kept = b""
        while data := await reader.read(KEPT):  # what is not kept is read all the same: a full pipe would stop it
            kept = (kept + data)[:KEPT]
        end = await process.ended()
    except asyncio.CancelledError:
        process.signal(signal.SIGKILL)
        raise
    return Result(end.code, (end.error or kept.decode(errors="replace")).strip())
