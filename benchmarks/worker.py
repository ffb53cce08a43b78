"""A process that is asked questions, one at a time."""

import contextlib
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any


@dataclass(frozen=True, slots=True)
class Worker:
    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, work: Callable[..., None], *place: object) -> "Worker":
        """Forked: a new interpreter takes long in an emulated machine."""
        forking = multiprocessing.get_context("fork")
        ours, theirs = forking.Pipe()
        process = forking.Process(target=work, args=(theirs, *place), daemon=True)
        process.start()
        return cls(process, ours)

    def ask(self, question: object) -> Any:
        self.pipe.send(question)
        return self.hear(60.0)

    def hear(self, most: float) -> Any:
        """Its next answer, within so many seconds."""
        if not self.pipe.poll(most):
            raise SystemExit(f"no answer within {most:g} s")
        try:
            return self.pipe.recv()
        except EOFError:
            raise SystemExit("a process of the benchmark has ended: see above") from None

    def stop(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.pipe.send(None)
        self.process.join(10)
        self.process.kill()
        self.process.join()
