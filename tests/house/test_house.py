"""Rules of the house that no linter knows."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_dataclass_is_frozen_and_slotted_or_says_why_not() -> None:
    loose = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.lstrip().startswith("@dataclass") and not ("frozen=True" in line and "slots=True" in line)
        if "#" not in line
    ]
    assert not loose


def test_no_file_is_too_long_to_open() -> None:
    long = {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 500}
    assert not long


def test_every_example_in_a_docstring_gives_what_it_says() -> None:
    shown = [path for path in SOURCES if ">>> " in path.read_text()]
    names = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in shown]
    assert not [name for name in names if doctest.testmod(importlib.import_module(name)).failed]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert not [t for t in targets if not (page.parent / t).exists()]


def test_every_file_that_the_words_name_exists() -> None:
    words = (ROOT / "docs" / "words.md").read_text()
    places = re.findall(r"\| `([a-z/_.]+)` \|", words)
    assert places
    assert not [p for p in places if not (ROOT / "src" / "clusterip" / p).exists()]


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text()
    pages = [p.name for p in (ROOT / "docs" / "decisions").glob("0*.md")]
    assert not [name for name in pages if name not in listed]


def test_nothing_names_a_machine() -> None:
    """Paths of one person's machine and hosts of registries do not belong into the project."""
    pattern = re.compile(r"(/[r]oot/|/[h]ome/[a-z]+/|://[^ )]*/(simpl[e]|debia[n]|np[m])[/ ])")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:80]}"
        for folder in ("src", "docs", "scripts", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in {".py", ".md", ".yaml", ".txt", ""} and path != Path(__file__)
        for line in path.read_text(errors="replace").splitlines()
        if pattern.search(line)
    ]
    assert not found
