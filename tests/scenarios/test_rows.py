"""Every row of the behaviours has a page that shows it, or a test elsewhere that holds it."""

import ast
from pathlib import Path

import pytest
from tests.scenarios.page import load, paths

ROOT = Path(__file__).parents[2]
ELSEWHERE = Path(__file__).parent / "rows_elsewhere.txt"
ROWS = {"1.5", *(f"B{number}" for number in range(1, 101))}  # sections 1.2 to 1.10 of the behaviours; 1.5 is a table


def elsewhere() -> list[tuple[str, str]]:
    """Row, and `path::test`, or "-" and a reason."""
    lines = (line.split(maxsplit=1) for line in ELSEWHERE.read_text().splitlines() if line and line[0] != "#")
    return [(row, rest.strip()) for row, rest in lines]


def test_every_row_has_a_page_or_a_test_elsewhere() -> None:
    shown = {row for path in paths() for row in load(path.stem).rows}
    held = {row for row, _ in elsewhere()}
    assert sorted(ROWS - shown - held) == []
    assert sorted(shown - ROWS) == [], "rows that there are not"
    assert sorted(held - ROWS) == []
    assert sorted(shown & held) == [], "a row with a page needs no other test here"


@pytest.mark.parametrize("where", sorted({rest for _, rest in elsewhere() if not rest.startswith("-")}))
def test_what_is_named_elsewhere_exists(where: str) -> None:
    path, _, name = where.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in tests
