"""What the pages tell people to type works: each page's commands run as one shell session, in order."""

import os
import re
import subprocess
import uuid
from pathlib import Path

import pytest

from .conftest import BIN

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/laboratory.md",
    "docs/dataplanes/iptables.md",
    "docs/dataplanes/ebpf.md",
    "docs/dataplanes/nftables.md",
]


def commands(page: str) -> list[str]:
    """The indented lines of the block that begins a cluster, up to the one that ends it."""
    lines = [line[4:] for line in (ROOT / page).read_text().splitlines() if line.startswith("    ")]
    first = next(i for i, line in enumerate(lines) if line.startswith("clusterip up"))
    last = next(i for i, line in enumerate(lines) if line.startswith("clusterip down"))
    return [line for line in lines[first : last + 1] if re.match(r"[A-Za-z]", line)]


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_commands_work_in_their_order(page: str) -> None:
    name = f"p{uuid.uuid4().hex[:6]}"
    environment = os.environ | {"CLUSTERIP_NAME": name, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"}
    script = "set -euo pipefail\n" + "\n".join(commands(page))
    try:
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    finally:
        subprocess.run(["clusterip", "down"], env=environment, capture_output=True, timeout=60, check=False)
