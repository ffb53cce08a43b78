from pathlib import Path

import pytest
from click.testing import CliRunner

from clusterip.cli.node import command
from clusterip.errors import BadInput

KUBECONFIG = """\
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
"""


def refused(tmp_path: Path, *options: str) -> BadInput:
    """What is wrong with the options; nothing is started."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "table").write_text("nginx: nginx\n")
    given = {
        "--kubeconfig": str(tmp_path / "kubeconfig"),
        "--node-name": "node-1",
        "--node-ip": "192.168.50.11",
        "--pod-cidr": "10.244.1.0/24",
        "--state-dir": str(tmp_path / "state"),
    } | dict(zip(options[::2], (word.replace("DIR", str(tmp_path)) for word in options[1::2]), strict=True))
    result = CliRunner().invoke(command, [word for pair in given.items() for word in pair])
    assert isinstance(result.exception, BadInput), result.output
    assert not (tmp_path / "state").exists()
    return result.exception


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kubeconfig", "DIR/none"), "cannot be read"),
        (("--node-ip", "node-1"), "--node-ip node-1: 'node-1' does not appear to be an IPv4 or IPv6 address"),
        (("--node-ip", "192.168.50.11,192.168.50.12"), "at most one of each family"),
        (("--pod-cidr", "10.244.1.1/24"), "--pod-cidr 10.244.1.1/24: "),
        (("--pod-cidr", "10.244.1.0/31"), "10.244.1.0/31: has no room for a gateway and a pod"),
        (("--pod-cidr", "10.244.1.0/24,fd00:1:1::/127"), "fd00:1:1::/127: has no room for a gateway and a pod"),
        (("--pod-cidr", "fd00:1:1::/64,fd00:1:2::/64"), "at most one of each family"),
        (("--cluster-dns", "dns"), "--cluster-dns dns: "),
        (("--images", "DIR/none"), "--images .*none: cannot be read"),
        (("--images", "DIR/table"), "table: nginx: must be a list of words"),
        (("--node-labels", "zone"), "--node-labels: 'zone' is not KEY=VALUE"),
        (("--tls-cert-file", "DIR/crt"), "needs --tls-private-key-file and --token-file"),
        (
            ("--tls-cert-file", "DIR/crt", "--tls-private-key-file", "DIR/key", "--token-file", "DIR/empty"),
            "--token-file .*empty: is empty",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        raise refused(tmp_path, *options)
