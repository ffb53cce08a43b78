"""One family of errors: on what, what failed, why; a hint apart.

Every error that a person may see is a `ClusterIPError`. `cli.main` prints it as

    error: service default/web: address 10.96.0.10 already belongs to service default/old
    hint: leave spec.clusterIP empty to get a free one, or delete default/old first

and the API server turns its subclass `model.status.ApiError` into a Kubernetes `Status`.
"""

import os


class ClusterIPError(Exception):
    """`message` says on what: what failed, why. `hint`, if any, is something the reader can do or type."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadInput(ClusterIPError):
    """What a person gave us cannot be used: a file, an option, a notation. Exit status 2."""


class Unavailable(ClusterIPError):
    """Something outside is missing: a program, a kernel feature, a server that does not answer. Exit status 1."""


def in_words(error: Exception) -> str:
    """Why something outside refused: an OSError without its number and the path that our own message has already."""
    match error:
        case OSError(errno=int(number)):
            return os.strerror(number)
        case UnicodeDecodeError():
            return "it is not UTF-8 text"
        case _:
            return str(error)
