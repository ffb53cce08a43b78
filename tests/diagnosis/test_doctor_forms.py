"""The same rules told by another command: loaded into a real kernel and listed, they give the same findings."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterip.diagnosis.doctor import Diagnosis, diagnose
from clusterip.kernel import netns
from clusterip.rulesets.recognise import Recognised, read

pytestmark = pytest.mark.kernel

CASES = Path(__file__).parents[1] / "cases"
SAVED = sorted(
    path for path in CASES.glob("*/input.iptables-save") if path.parent.name[:2] != "52"
)  # 52 needs its sets
TABLES = ("nat", "filter")


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"d{uuid.uuid4().hex[:8]}"
    netns.create(name)
    yield name
    netns.delete(name)


def said(namespace: str, *argv: str, stdin: bytes = b"") -> bytes:
    command = ["ip", "netns", "exec", namespace, *argv]
    return subprocess.run(command, input=stdin, capture_output=True, check=True, timeout=60).stdout


def broken(diagnosis: Diagnosis) -> set[tuple[str, str, str]]:
    return {(f.id, str(f.share), f.level) for f in diagnosis.findings if f.level != "I"}


def others(saved: Path) -> list[Recognised]:
    return [read(p.name, p.read_bytes()) for p in sorted(saved.parent.glob("input.*")) if p != saved]


@pytest.mark.parametrize("saved", SAVED, ids=lambda path: path.parent.name)
def test_each_listing_of_the_same_rules_gives_the_same_findings(saved: Path, namespace: str) -> None:
    text = saved.read_bytes()
    said(namespace, "iptables-nft-restore", stdin=text)
    here = [table for table in TABLES if f"*{table}".encode() in text]
    forms = {
        "rules": [["iptables-nft", "-t", table, "-S"] for table in here],
        "listing": [["iptables-nft", "-t", table, "-L", "-n", "-v"] for table in here],
        "nft": [["nft", "list", "ruleset"]],
    }
    wanted = broken(diagnose([read("saved", text), *others(saved)]))
    for form, commands in forms.items():
        told = b"\n".join(said(namespace, *command) for command in commands)
        assert broken(diagnose([read(form, told), *others(saved)])) == wanted, form


def test_of_what_nft_only_names_nothing_is_claimed(namespace: str) -> None:
    saved = next(path for path in SAVED if path.parent.name.startswith("72-"))
    said(namespace, "iptables-nft-restore", stdin=saved.read_bytes())
    told = said(namespace, "nft", "-j", "list", "ruleset")
    assert b'"xt"' in told
    diagnosis = diagnose([read("nft", told), *others(saved)])
    assert not broken(diagnosis)
    assert "iptables-save" in {missing.command for missing in diagnosis.missing}
