"""`clusterip trace` as it is typed: files, standard input, JSON, text, exit status."""

import json
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.diagnosis.asking import ADDRESSES, ROUTES, filtered, nat

from clusterip.cli.trace import command
from clusterip.errors import BadInput, ClusterIPError

RULES = nat(
    "PREROUTING -j KUBE-SERVICES",
    'KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j SVC',
    "SVC -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.244.2.1:8080",
    "SVC -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.244.2.2:8080",
    "SVC -j DNAT --to-destination 10.244.2.3:8080",
    chains="KUBE-SERVICES SVC",
) + filtered("FORWARD -d 192.0.2.1/32 -j DROP")


def run(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(command, list(args), input=stdin, catch_exceptions=False)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    file = tmp_path / "save.txt"
    file.write_text(RULES + ADDRESSES)
    return str(file)


def test_the_last_line_is_the_verdict_in_a_sentence(dump: str) -> None:
    result = run("pod:10.244.1.7", "10.96.0.20:80", "--rules", dump)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "tcp 10.244.1.7 -> 10.96.0.20:80  service default/web:http"
    assert lines[-1] == "delivered  to one of 3 backends, each 1/3"
    assert [line.split()[1] for line in lines if line.startswith(("├", "└"))][:3] == [
        "prerouting",
        "forward",
        "postrouting",
    ]
    assert "\x1b" not in result.stdout


def test_the_rule_that_fired_is_shown_with_its_place(dump: str) -> None:
    assert "SVC (save.txt:10)" in run("pod:10.244.1.7", "10.96.0.20:80", "--rules", dump).stdout


@pytest.mark.parametrize(
    ("to", "status"), [("10.96.0.20:80", 0), ("192.0.2.1:80", 1), ("10.96.0.20:81", 1), ("[fd00:96::20]:80", 2)]
)
def test_the_exit_status_says_whether_it_is_delivered(dump: str, to: str, status: int) -> None:
    source = "pod:fd00:1::7" if to.startswith("[") else "pod:10.244.1.7"
    assert run(source, to, "--rules", dump).exit_code == status


def test_json_is_stable(dump: str) -> None:
    result = run("pod:10.244.1.7", "web.default:http", "--rules", dump, "-o", "json")
    answer = json.loads(result.stdout)
    assert list(answer) == [
        *("apiVersion", "kind", "packet", "verdict", "reason", "source", "steps", "outcomes", "reply", "findings"),
        *("service", "answers"),
    ]
    assert (answer["apiVersion"], answer["kind"], answer["source"]) == ("clusterip/v1", "Trace", "modelled")
    first = answer["outcomes"][0]
    assert list(first)[:5] == ["verdict", "probability", "probabilityDecimal", "backend", "masquerade"]
    assert (first["backend"], first["probability"]) == ("10.244.2.1:8080", "715827883/2147483648")
    assert set(first["steps"][-3]) >= {"hook", "table", "chain", "rule", "packetBefore", "packetAfter", "effect"}
    assert answer["packet"] == {
        "protocol": "tcp",
        "source": "10.244.1.7",
        "destination": "10.96.0.20",
        "destinationPort": 80,
        "outInterface": "",
    }


def test_files_come_in_any_mixture(dump: str, tmp_path: Path) -> None:
    mixed = tmp_path / "rest.txt"
    mixed.write_text(ADDRESSES + ROUTES)
    result = run("pod:10.244.1.7", "10.96.0.20:80", "--rules", dump, "--rules", str(mixed), "--inputs")
    assert result.exit_code == 0
    assert "ip route" in result.stderr
    assert "iptables-save" in result.stderr


def test_standard_input_and_bundles_are_read(dump: str, tmp_path: Path) -> None:
    assert run("pod:10.244.1.7", "10.96.0.20:80", "--rules", "-", stdin=RULES).exit_code == 0
    bundle = tmp_path / "bundle.tar.gz"
    with tarfile.open(bundle, "w:gz") as out:
        entry = tarfile.TarInfo("node-1/iptables-save")
        entry.size = len(RULES)
        out.addfile(entry, BytesIO(RULES.encode()))
    assert run("pod:10.244.1.7", "10.96.0.20:80", "--rules", str(bundle)).exit_code == 0


@pytest.mark.parametrize("content", ["", "hello\nworld\n", "net.ipv4.ip_forward = 1\n"])
def test_a_file_without_rules_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    file = tmp_path / "wrong.txt"
    file.write_text(content)
    with pytest.raises(BadInput, match="no rules in it"):
        run("pod:10.244.1.7", "10.96.0.20:80", "--rules", str(file))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterIPError, match="cannot be read"):
        run("pod:10.244.1.7", "10.96.0.20:80", "--rules", str(tmp_path / "none"))


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cut.txt"
    file.write_text(RULES.removesuffix("COMMIT\n") + "-A INPUT -s\n")
    result = run("pod:10.244.1.7", "10.96.0.20:80", "--rules", str(file))
    assert result.exit_code == 0
    assert "could not be read" in result.stderr
    assert str(file) in result.stderr
