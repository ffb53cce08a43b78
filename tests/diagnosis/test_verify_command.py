"""`clusterip verify` as people type it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clusterip.cli.trace import command as trace
from clusterip.cli.verify import command as verify

GOLDEN = Path(__file__).parent.parent / "golden"
WEB = GOLDEN / "02-two-named-ports"


def ran(rules: Path, *more: str) -> Result:
    given = ["--rules", str(rules), "-f", str(WEB / "manifests.yaml"), "-f", str(GOLDEN / "kubernetes.yaml")]
    return CliRunner().invoke(verify, [*given, "--node", "node-a", "--node-ip", "10.200.0.1", *more])


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """With one backend swapped for another address."""
    file = tmp_path / "save.txt"
    file.write_text((WEB / "iptables-save.txt").read_text().replace("10.244.3.9:9100", "10.244.3.8:9100"))
    return file


@pytest.mark.parametrize("rules", ["iptables-save.txt", "nft.txt"])
def test_equal_rules_are_said_to_be_equal_and_what_was_taken_as_given(rules: str) -> None:
    found = ran(WEB / rules)
    assert found.exit_code == 0
    assert found.stdout.startswith("equal  3 Service ports")
    assert "10.244.0.0/16, as the rules have it" in found.stdout


def test_a_difference_has_a_command_that_shows_it(changed: Path) -> None:
    found = ran(changed)
    assert found.exit_code == 1
    command = next(line for line in found.stdout.splitlines() if "clusterip trace " in line)
    arguments = command.partition("clusterip trace ")[2].split()
    shown = CliRunner().invoke(trace, arguments)
    assert "10.244.3.8:9100" in shown.stdout


def test_as_json_it_is_one_document(changed: Path) -> None:
    found = ran(changed, "-o", "json")
    document = json.loads(found.stdout)
    assert (document["apiVersion"], document["kind"], document["verdict"]) == (
        "clusterip/v1",
        "Verification",
        "different",
    )
    [one] = document["differences"]
    assert (one["kind"], one["object"], one["frontend"]) == (
        "stale-backend",
        "service demo/web:metrics",
        "10.96.0.20:9090/tcp",
    )
    assert one["share"].count("/") == 1


def test_without_a_service_there_is_no_answer() -> None:
    found = CliRunner().invoke(verify, ["--rules", str(WEB / "nft.txt")])
    assert found.exit_code == 2
    assert "no Service is known" in found.stderr


def test_an_address_that_is_none_is_refused() -> None:
    found = ran(WEB / "nft.txt", "--cluster-cidr", "10.244/16x")
    assert found.exit_code == 2
    assert "--cluster-cidr" in found.stderr
