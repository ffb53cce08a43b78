"""What `clusterip exec` says before anything is run."""

import pytest
from click.testing import CliRunner

from clusterip.cli.exec import command
from clusterip.errors import BadInput


@pytest.mark.parametrize("words", [["client"], ["client", "--"]])
def test_a_target_without_a_command_is_refused_with_an_example(words: list[str]) -> None:
    error = CliRunner().invoke(command, words).exception
    assert isinstance(error, BadInput)
    assert error.hint == "clusterip exec client -- hostname"
