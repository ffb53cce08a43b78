"""What is shipped is what the source says."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterip.dataplane.ebpf.attach import HOOKS
from clusterip.dataplane.ebpf.layout import (
    MAPS,
    Frontend,
    Service,
    frontend_key,
    member_key,
    place_value,
    service_value,
    slot_key,
)
from clusterip.dataplane.ebpf.program import Damaged, parse, shipped

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "src/clusterip/dataplane/ebpf/socket.json"


def test_the_shipped_program_was_built_from_this_source() -> None:
    """Without clang it cannot be rebuilt here, but it can be seen that nobody forgot to."""
    assert shipped().source == hashlib.sha256((ROOT / "bpf/socket.bpf.c").read_bytes()).hexdigest()


def test_a_rebuild_gives_the_same_bytes() -> None:
    compilers = [c for c in ("clang", "clang-16") if shutil.which(c)]
    if not compilers:
        pytest.skip("no clang: what is shipped is compared with its source by hash alone")
    argv = [sys.executable, str(ROOT / "scripts/build-bpf"), "--print"]
    built = parse(subprocess.run(argv, check=True, capture_output=True).stdout)
    if built.compiler != shipped().compiler:
        pytest.skip(f"built by {shipped().compiler}, here is {built.compiler}: other instructions are no mistake")
    assert built == shipped()


def test_a_damaged_program_is_refused() -> None:
    document = json.loads(SHIPPED.read_bytes())
    document["programs"]["connect4"]["maps"][0][0] += 1
    with pytest.raises(Damaged, match="hash"):
        parse(json.dumps(document).encode())


@pytest.mark.parametrize("left", [0, 1, 100, -1])
def test_a_program_that_was_cut_short_is_refused(left: int) -> None:
    with pytest.raises(Damaged, match="cannot be read"):
        parse(SHIPPED.read_bytes().rstrip()[:left])


@pytest.mark.parametrize("text", [b"[]", b"{}", b"null", b"\xff"])
def test_what_is_no_program_is_refused(text: bytes) -> None:
    with pytest.raises(Damaged, match="cannot be read"):
        parse(text)


def test_every_program_has_its_hook_and_nothing_needs_the_gpl() -> None:
    assert {code.name for code in shipped().codes} == set(HOOKS)
    assert all(code.hook == f"cgroup/{code.name}" and code.license == "Apache-2.0" for code in shipped().codes)


def test_our_bytes_are_as_long_as_the_programs() -> None:
    shapes = shipped().maps
    packed = {
        "services": (
            frontend_key(Frontend("10.96.0.1", 80, "TCP")),
            service_value(Service(bytes(8), bytes(8), 1, 0, 0)),
        ),
        "slots": (slot_key(bytes(8), 0), place_value("10.244.0.1", 80)),
        "members": (member_key(bytes(8), "10.244.0.1", 80), bytes(4)),
    }
    assert packed.keys() == set(MAPS)
    for name, (key, value) in packed.items():
        assert (len(key), len(value)) == (shapes[name].key_size, shapes[name].value_size)
