"""Who asks: bearer tokens from a file of `token,user,groups` lines, as the real server's --token-auth-file."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterip.apiserver.refusals import unauthorized
from clusterip.errors import BadInput

OPEN = frozenset(("/healthz", "/livez", "/readyz", "/version"))  # for everybody


@dataclass(frozen=True, slots=True)
class Identity:
    user: str
    groups: tuple[str, ...] = ()


ANONYMOUS = Identity("system:anonymous", ("system:unauthenticated",))


class Tokens:
    """Kept by their digest, so that finding one takes no longer for a good guess than for a bad one."""

    def __init__(self, known: Mapping[str, Identity]) -> None:
        self._known = {_digest(token): identity for token, identity in known.items()}

    def identify(self, authorization: str) -> Identity:
        """By the Authorization header. Without any known token everybody is let in: that server only listens on
        loopback. Raises ApiError 401."""
        if not self._known:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        identity = self._known.get(_digest(token.strip())) if scheme.lower() == "bearer" else None
        if identity is None:
            raise unauthorized()
        return identity


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def load_tokens(path: Path) -> Tokens:
    """Lines of `token,user,groups`, several groups in quotes or after further commas. Raises BadInput."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"token file {path}: cannot be read, {error}") from error
    known: dict[str, Identity] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        token, *who = (part.strip().strip('"') for part in line.split(","))
        if not token or not who or not who[0]:
            raise BadInput(f"token file {path}: line {number} is not token,user,groups")
        known[token] = Identity(who[0], tuple(filter(None, who[1:])))
    if not known:
        raise BadInput(f"token file {path}: holds no token", "write a line: token,user,group")
    return Tokens(known)
