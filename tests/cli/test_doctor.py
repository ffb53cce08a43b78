"""`clusterip doctor` as it is typed: files, standard input, JSON, text, exit status."""

import json
import os
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.diagnosis.dumps import nat, ready, service, service_rules, slice_of

from clusterip.cli.doctor import command
from clusterip.cli.node_proxy import living, proxy_of_node
from clusterip.diagnosis.doctor import diagnose
from clusterip.errors import BadInput
from clusterip.lab.plan import Plan, checked
from clusterip.lab.processes import identity
from clusterip.lab.state import ComponentStatus, Identity, Supervision, state_of, write
from clusterip.rulesets.recognise import read

TWO = ("10.244.1.5:80", "10.244.2.6:80")
RULES = nat(service_rules("default/web", "10.96.0.20", 80, TWO))
OBJECTS = service("web", "10.96.0.20") + slice_of("web", f"{ready('10.244.1.5')}, {ready('10.244.2.6')}")
STALE = service("web", "10.96.0.20") + slice_of("web", ready("10.244.1.5"))
LOG = "I1130 12:00:00.000001       1 proxier.go:1] syncProxyRules took 1m2.5s\n"


def run(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(command, list(args), input=stdin, catch_exceptions=False)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    for name, text in {"rules": RULES, "objects": OBJECTS, "stale": STALE, "log": LOG, "empty": ""}.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in ("rules", "objects", "stale", "log", "empty")}


def test_the_exit_status_says_whether_something_is_broken(files: dict[str, str]) -> None:
    assert run(files["rules"], files["objects"]).exit_code == 0
    assert run(files["rules"], files["stale"]).exit_code == 1


def test_a_warning_alone_is_no_failure(files: dict[str, str]) -> None:
    result = run(files["log"])
    assert result.exit_code == 0
    assert "WARN  slow-sync" in result.stdout


def test_what_cannot_be_read_at_all_is_bad_input(files: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="nothing in it that can be read"):
        run(files["empty"])
    with pytest.raises(BadInput, match="cannot be read"):
        run(files["empty"] + "-missing")


def test_the_worst_comes_first_with_its_share_its_evidence_and_a_remedy(files: dict[str, str]) -> None:
    text = run(files["log"], files["stale"], files["rules"]).stdout
    lines = text.splitlines()
    assert lines[0] == "ERROR stale-endpoint  service default/web  50 % of new connections"
    assert f"| {files['rules']}:" in text
    assert "do: kubectl rollout restart" in text
    assert text.index("stale-endpoint") < text.index("slow-sync")
    assert "1 error, 1 warning" in text


def test_nothing_broken_is_said_and_what_else_would_help(files: dict[str, str]) -> None:
    text = run(files["objects"]).stdout
    assert "nothing is broken in what was given" in text
    assert "To say more, give also:" in text
    assert "iptables-save" in text


def test_files_are_summed_up_on_request(files: dict[str, str]) -> None:
    lines = run("-v", files["rules"], files["log"]).stdout.splitlines()
    assert lines[0].startswith(f"{files['rules']}: iptables-save, ")
    assert lines[1] == f"{files['log']}: log, 1 fact"
    assert "facts" not in run(files["rules"], files["log"]).stdout


def test_standard_input_is_a_file_like_others(files: dict[str, str]) -> None:
    result = run("-", files["stale"], stdin=RULES)
    assert result.exit_code == 1
    assert "| stdin:" in result.stdout


def test_json_has_exact_shares_and_what_is_missing(files: dict[str, str]) -> None:
    result = run("-o", "json", files["rules"], files["stale"])
    document = json.loads(result.stdout)
    assert list(document) == ["apiVersion", "kind", "inputs", "findings", "missing"]
    assert (document["apiVersion"], document["kind"]) == ("clusterip/v1", "Diagnosis")
    first = document["findings"][0]
    assert list(first) == ["id", "level", "object", "message", "evidence", "share", "remedy"]
    assert (first["id"], first["level"], first["share"]) == ("stale-endpoint", "E", "1/2")
    assert first["evidence"][0]["line"] > 0
    assert {"what", "command", "why"} <= set(document["missing"][0])
    assert document["inputs"][0]["kind"] == "iptables-save"


def test_lines_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "conntrack"
    broken.write_text(
        "tcp      6 86390 ESTABLISHED src=10.244.3.3 dst=10.96.0.20 sport=4000 dport=80 src=10.244.1.5 dst=10.244.3.3 "
        "sport=80 dport=4000 [ASSURED] mark=0 use=1\ntcp      6 86390 ESTABLISHED src=10.244.3.3 ds\n"
    )
    text = run(str(broken)).stdout
    assert f"{broken}:2: " in text


def test_no_colours_go_into_a_file(files: dict[str, str]) -> None:
    assert "\x1b" not in run(files["rules"], files["stale"]).stdout


def test_of_many_findings_of_an_id_the_first_are_told_and_the_rest_is_counted(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text(
        "".join(service(f"s{n}", f"10.96.0.{n}") + slice_of(f"s{n}", "") for n in range(20, 32))
    )
    text = run(str(tmp_path / "objects")).stdout
    assert text.count("ERROR no-endpoints") == 5
    assert "and 7 more of no-endpoints" in text
    assert "12 errors" in text


def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervisor: Identity) -> None:
    """A cluster "lab" as its directory tells it: the proxy of node-1 is this process, that of node-2 is dead."""
    monkeypatch.setenv("CLUSTERIP_STATE", str(tmp_path))
    state = state_of("lab")
    state.write_plan(checked(Plan(name="lab")))
    write(state.kubeconfig, "")
    proxies = (
        ComponentStatus(name="proxy of node-1", process=identity(os.getpid())),
        ComponentStatus(name="proxy of node-2", restarts=3, last_end="signal 9"),
    )
    state.write_supervision(Supervision(supervisor=supervisor, components=proxies))


def test_a_dead_proxy_of_the_laboratory_is_said_to_be_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = identity(os.getpid())
    assert me is not None
    kept(tmp_path, monkeypatch, me)
    proxy = proxy_of_node("lab", "node-2")
    assert proxy.restart() == f"tail -n 50 {tmp_path}/lab/log/proxy-node-2.log"
    assert proxy.trouble is not None
    assert proxy.trouble.message.startswith("The proxy of node-2 is dead (signal 9): the rules are as its last sync")


def test_nothing_is_started_again_where_the_supervisor_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path, monkeypatch, Identity(1 << 23, 0))
    alive, dead = proxy_of_node("lab", "node-1"), proxy_of_node("lab", "node-2")
    assert dead.restart().startswith("clusterip up --name lab   # ")
    assert alive.command.endswith(f" {os.getpid()}")
    for proxy in (alive, dead):
        assert proxy.trouble is not None
        assert "the supervisor of the cluster is dead" in proxy.restart() + proxy.trouble.message
    assert dead.trouble is not None
    assert alive.trouble is not None
    assert ("is dead (signal 9)" in dead.trouble.message, "is dead" in alive.trouble.message) == (True, False)


@pytest.mark.parametrize(
    ("status", "silent", "command", "trouble"),
    [
        ({"mode": "nftables", "lastError": ""}, "", "kill 7", None),
        ({}, "it does not answer", "kill -9 7", "proxy-not-running"),
        ({"mode": "nftables", "lastError": "nftables: no buffer space"}, "", "kill 7", "sync-failing"),
    ],
)
def test_a_process_of_the_laboratory_is_named_by_its_pid_and_asked_how_it_fares(
    status: dict[str, str], silent: str, command: str, trouble: str | None
) -> None:
    proxy = living(("proxy of node-1", 7), "tail log", (status, silent))
    assert proxy.restart() == f"{command}   # the proxy of node-1; it is started again at once"
    assert (proxy.trouble.id if proxy.trouble else None) == trouble
    inputs = [read("rules", RULES.encode()), read("objects", STALE.encode())]
    first, *_ = diagnose(inputs, "node-1", proxy=proxy).findings  # what explains the rest comes before what it costs
    assert (first.id, first.share) == ((trouble, None) if trouble else ("stale-endpoint", Fraction(1, 2)))
