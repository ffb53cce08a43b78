"""A command line that cannot be used is answered as every other bad input: on what, what failed; a hint; status 2."""

import pytest
from tests.cli.calling import called

WORDS = {
    "doctor --move foo": ("--move: 'foo' is unknown", "one of: nftables"),
    "trace client web:80 -o yaml": ("--output: 'yaml' is unknown", "one of: text, json"),
    "check --timeout soon": ("--timeout: 'soon' is no number above 0", "clusterip check --help"),
    "check --timeout 0": ("--timeout: 0.0 is no number above 0", "clusterip check --help"),
    "rules -f - --masquerade-bit 77": (
        "--masquerade-bit: 77 is no whole number from 0 to 31",
        "clusterip rules --help",
    ),
    "up --nodes many": ("--nodes: 'many' is no whole number", "clusterip up --help"),
    "proxy --masquerade-all=perhaps": (
        "--masquerade-all: 'perhaps' is neither true nor false",
        "--masquerade-all=true",
    ),
    "proxy --iptables-sync-period 3x": (
        "--iptables-sync-period: '3x' is not a duration: write a number and a unit, such as 30s, 1m30s or 250ms",
        "clusterip proxy --help",
    ),
    "trace client": (
        "clusterip trace: an argument is missing: DESTINATION",
        "clusterip trace [OPTIONS] SOURCE DESTINATION",
    ),
    "rules": ("clusterip rules: an option is missing: --filename", "--filename FILE (manifests; - is stdin)"),
    "rules -f": ("clusterip rules: option '-f' requires an argument", "clusterip rules --help"),
    "doctor --mov nftables": ("clusterip doctor: no such option: --mov", "did you mean --move?"),
    "--mov": ("clusterip: no such option: --mov", "clusterip --help lists them"),
    "down it": ("clusterip down: got unexpected extra argument (it)", "clusterip down [OPTIONS]"),
    "trce": ("clusterip trce: no such command", "did you mean trace?"),
}


@pytest.mark.parametrize("words", WORDS)
def test_what_cannot_be_used_is_named_with_a_hint(words: str) -> None:
    message, hint = WORDS[words]
    done = called(*words.split())
    assert (done.stderr, done.stdout) == (f"error: {message}\nhint: {hint}\n", "")
    assert done.status == 2


def test_no_word_at_all_shows_the_help() -> None:
    done = called()
    assert "Commands:" in done.stderr
    assert "error:" not in done.stderr
