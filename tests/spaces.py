"""Network namespaces that a test makes and removes."""

import contextlib
import uuid
from collections.abc import Iterator

from clusterip.kernel import netns


@contextlib.contextmanager
def fresh(prefix: str) -> Iterator[str]:
    """An empty one, by a name that begins so."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    netns.create(name)
    try:
        yield name
    finally:
        netns.delete(name)
