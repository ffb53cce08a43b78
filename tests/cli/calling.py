"""The command line as a shell calls it, in this process: no start of an interpreter for each wrong option."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from clusterip.cli.main import main


@dataclass(frozen=True, slots=True)
class Done:
    status: int
    stdout: str
    stderr: str


def called(*words: str) -> Done:
    """What `clusterip` followed by `words` writes and how it ends."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("NO_COLOR", "1")
        patch.setattr(sys, "argv", ["clusterip", *words])
        with pytest.raises(SystemExit) as end:
            main()
    assert isinstance(end.value.code, int)
    return Done(end.value.code, out.getvalue(), err.getvalue())
