"""What failed outside, in words that need no repair in a message."""

import errno
import os

import pytest

from clusterip.errors import in_words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/etc/none"), os.strerror(errno.ENOENT)),
        (
            OSError(errno.EADDRINUSE, "error while attempting to bind on address ('127.0.0.1', 1)"),
            os.strerror(errno.EADDRINUSE),
        ),
        (OSError("without a number"), "without a number"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "it is not UTF-8 text"),
        (ValueError("file is not a database"), "file is not a database"),
    ],
)
def test_an_error_of_the_system_is_told_without_number_and_path(error: Exception, words: str) -> None:
    assert in_words(error) == words
