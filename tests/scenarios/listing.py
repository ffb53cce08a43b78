"""The kernel section of a page for one dataplane: what it writes for the first step, and what each other changes in it.

A page's sections are in the folder of its name, and are written with `UPDATE_SCENARIOS=1` alone.
"""

import difflib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.scenarios.meaning import all_families, written
from tests.scenarios.page import PAGES, Page

from clusterip.services.table import Family

UPDATE = "UPDATE_SCENARIOS"  # in the environment: write the sections anew; what changed is reviewed with the rest


def path(page: Page, dataplane: str) -> Path:
    return PAGES / page.name / f"{dataplane}.txt"


def section(page: Page, dataplane: str) -> str:
    return "".join(_parts(page, dataplane))


def first(section: str, family: Family) -> str:
    """What is written for the first step in that family."""
    return section.split(f"=== {family}\n", 1)[1].split("\n===", 1)[0] + "\n"


def _parts(page: Page, dataplane: str) -> Iterator[str]:
    for family in all_families(page.steps):
        texts = [written(dataplane, step, family) for step in page.steps]
        yield f"=== {family}\n{texts[0]}"
        for step, (before, after) in zip(page.steps[1:], pairwise(texts), strict=True):
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
            kept = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
            yield f"=== {family}: {step.title}\n" + "".join(f"{line}\n" for line in kept)
