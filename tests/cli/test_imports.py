"""A command brings along what it needs, and no more: what `--help` and a question to a file wait for."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.diagnosis.dumps import nat, service_rules

from clusterip.cli.main import COMMANDS

HEAVY = frozenset({"aiohttp", "asyncio", "cryptography", "dns", "msgspec", "pyroute2", "rich", "starlette", "yaml"})
# These run for as long as the machine does.
PROCESSES = frozenset({"apiserver", "controllers", "node", "proxy", "dns", "echo"})
LIST = "; import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
RULES = nat(service_rules("default/web", "10.96.0.20", 80, ("10.244.1.5:80",)))


def brought(code: str) -> frozenset[str]:
    done = subprocess.run([sys.executable, "-c", code + LIST], capture_output=True, text=True, timeout=60, check=True)
    return frozenset(done.stdout.splitlines()[-1].split()) & HEAVY


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - PROCESSES - {"demo"}))
def test_what_a_command_needs_is_imported_when_it_runs(command: str) -> None:
    assert brought(f"import clusterip.cli.{COMMANDS[command][0]}") == frozenset()


@pytest.mark.parametrize(
    "words", ["trace pod:10.244.1.7 10.96.0.20:80 --rules {}", "doctor {}", "trace pod:10.244.1.7 web:80 --rules {}"]
)
def test_a_dump_is_answered_without_what_only_servers_and_manifests_need(words: str, tmp_path: Path) -> None:
    dump = tmp_path / "save.txt"
    dump.write_text(RULES)
    run = "import sys; from clusterip.cli.main import cli; cli({!r}, standalone_mode=False)"
    caught = f"try: {run.format(words.format(dump).split())}\nexcept SystemExit: pass\nexec({LIST[2:]!r})"
    done = subprocess.run([sys.executable, "-c", caught], capture_output=True, text=True, timeout=60, check=True)
    assert frozenset(done.stdout.splitlines()[-1].split()) & HEAVY == {"msgspec"}
