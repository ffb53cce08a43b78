"""Values that are made when they are asked for."""

import pytest

from clusterip.rulesets.lazy import Lazy


def test_only_what_is_asked_for_is_made_and_only_once() -> None:
    made: list[str] = []

    def make(name: str) -> int:
        made.append(name)
        return len(name)

    lazy = Lazy({"a": None, "bb": None, "ccc": None}, make)
    assert len(lazy) == 3
    assert list(lazy) == ["a", "bb", "ccc"]
    assert "bb" in lazy
    assert "dddd" not in lazy
    assert made == []
    assert (lazy["bb"], lazy["bb"], lazy.get("dddd")) == (2, 2, None)
    assert made == ["bb"]
    with pytest.raises(KeyError):
        lazy["dddd"]


def test_it_equals_a_dict_of_the_same_values() -> None:
    lazy = Lazy({"a": None, "bb": None}, len)
    assert lazy == {"a": 1, "bb": 2}
    assert lazy == {"bb": 2, "a": 1}
    assert lazy != {"a": 1}
    assert lazy == Lazy({"a": 0, "bb": 0}, len)
