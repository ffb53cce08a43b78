"""Mappings whose values are read from their text when they are first asked for: a dump of 430,000 rules answers a
question about twenty of them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Mapping[str, T], Generic[T]):
    """Equal to a dict of the same values. `make` gives the value of one of `names`, and cannot fail."""

    def __init__(self, names: Mapping[str, object], make: Callable[[str], T]) -> None:
        self._names = names
        self._make = make
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        found = self._made.get(name)
        if found is None:
            if name not in self._names:
                raise KeyError(name)
            found = self._made[name] = self._make(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        return f"Lazy({len(self)})"
