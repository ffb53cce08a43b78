"""Runs a program to its end and brings back what it said."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from clusterip.errors import ClusterIPError, Unavailable


@dataclass(frozen=True, slots=True)
class Completed:
    returncode: int
    stdout: bytes
    stderr: bytes


class ProgramFailed(ClusterIPError):
    """The program ended with another status than 0, or did not end in time (`returncode` is then -9)."""

    def __init__(self, argv: Sequence[str], returncode: int, stderr: str) -> None:
        said = stderr.strip() or "it said nothing"
        super().__init__(f"{' '.join(argv[:6])}: exit status {returncode}: {said}")
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stderr = stderr


async def run(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    timeout: float = 60.0,  # noqa: ASYNC109  the limit belongs to the program, which must be killed and reaped
    check: bool = True,
    netns: str = "",
) -> Completed:
    """Run `argv` in the named network namespace ("": our own), feeding it `stdin`; `timeout` in seconds.

    Raises ProgramFailed unless `check` is off, Unavailable if there is no such program.
    """
    full = ("nsenter", f"--net=/run/netns/{netns}", "--", *argv) if netns else tuple(argv)
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*full, stdin=pipe, stdout=pipe, stderr=pipe)
    except FileNotFoundError as error:
        raise Unavailable(f"{full[0]}: no such program", hint=f"install it (apt-get install {full[0]})") from error
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(stdin)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            raise ProgramFailed(full, -9, f"did not end within {timeout:g} s") from error
        raise
    done = Completed(process.returncode or 0, out, err)
    if check and done.returncode:
        raise ProgramFailed(full, done.returncode, err.decode(errors="replace"))
    return done
