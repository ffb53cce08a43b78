"""The programs of eBPF mode that do not run, by files: which clients see something else, and which only another way."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from clusterip.cli.verify import command
from clusterip.dataplane.ebpf.attach import HOOKS
from clusterip.dataplane.ebpf.compile import compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import applied, load
from clusterip.dataplane.ebpf.document import describe
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.diagnosis.facts import merge
from clusterip.diagnosis.verify.premises import Premises
from clusterip.diagnosis.verify.report import Difference, Verification
from clusterip.diagnosis.verify.verify import entries, verify
from clusterip.rulesets import recognise
from clusterip.rulesets.socketmaps import SocketMaps, Stray, text

GOLDEN = Path(__file__).parent.parent / "golden"
DNS, NODE_PORT = GOLDEN / "05-dns-tcp-udp", GOLDEN / "06-node-port"
NODE = Premises(node="node-a", addresses=("10.200.0.1",), pod_networks=("10.244.0.0/16",))
CGROUP = "/sys/fs/cgroup/node-a"


def rules_and_objects(folder: Path, **replaced: str) -> list[recognise.Recognised]:
    """What stands beneath, and what should be. `replaced`: the text of a file, by its name without the suffix."""
    files = (folder / "nft.txt", folder / "manifests.yaml", GOLDEN / "kubernetes.yaml")
    return [recognise.read(f.name, replaced.get(f.stem, f.read_text()).encode()) for f in files]


def maps(folder: Path, hooks: set[str] | None, *strays: Stray, loopback: bool = False) -> SocketMaps:
    config = Config("IPv4", ("10.200.0.1",), localhost_node_ports=loopback)
    pieces = [compile_entry(entry, config) for entry in entries(merge(rules_and_objects(folder)), NODE, "IPv4")]
    found = describe([applied(EMPTY, load(pieces, EMPTY).steps)], {}, None if hooks is None else tuple(sorted(hooks)))
    return structs.replace(found, cgroup=CGROUP, strays=strays)


def without(*lost: str) -> set[str]:
    return set(HOOKS) - set(lost)


def verified(held: SocketMaps, folder: Path = DNS, **replaced: str) -> Verification:
    maps_file = recognise.read("ebpf-maps.json", text(held).encode())
    assert [part.values for part in maps_file.parts] == [held]
    return verify(merge([*rules_and_objects(folder, **replaced), maps_file]), NODE)


def lone(found: Verification) -> Difference:
    (one,) = found.differences
    assert found.verdict == "different"
    return one


@pytest.mark.parametrize("hooks", [without(), None], ids=["all run", "not told"])
def test_where_all_run_or_nobody_looked_nothing_is_said(hooks: set[str] | None) -> None:
    assert verified(maps(DNS, hooks)).verdict == "equal"


@pytest.mark.parametrize(
    ("hook", "share", "frontend", "says"),
    [
        (
            "connect4",
            0,
            "10.96.0.1:443/tcp",
            "rules beneath, which do the same with every packet; a difference in the way",
        ),
        ("connect6", 0, "10.96.0.1:443/tcp", "which do the same with every packet"),
        ("sendmsg4", 0, "10.96.0.10:53/udp", "datagrams are left to the rules beneath, which do the same"),
        ("recvmsg4", 1, "10.96.0.10:53/udp", "the sender is the backend, and a client whose socket is not connected"),
        ("recvmsg6", 1, "10.96.0.10:53/udp", "the sender is the backend"),
        ("getpeername4", 0, "10.96.0.1:443/tcp", "getpeername() names the backend"),
        ("getpeername6", 0, "10.96.0.1:443/tcp", "getpeername() names the backend"),
    ],
)
def test_a_program_that_does_not_run_is_a_difference_with_what_clients_see(
    hook: str, share: int, frontend: str, says: str
) -> None:
    one = lone(verified(maps(DNS, without(hook))))
    assert (one.kind, one.object, one.share, one.frontend) == ("program", f"hook {hook}", Fraction(share), frontend)
    assert one.kernel.startswith(f"no program is attached to {CGROUP}: ")
    assert says in one.kernel
    assert (one.share == 0) == ("a difference in the way, not in the outcome" in one.kernel)
    assert ("::ffff:" in one.api) == hook.endswith("6")  # there is no Service of IPv6 here
    assert one.witness.destination == frontend


def test_what_sockets_of_ipv6_send_to_a_service_of_ipv4_does_not_meet_sendmsg6() -> None:
    assert verified(maps(DNS, without("sendmsg6"))).verdict == "equal"


@pytest.mark.parametrize(("lost", "share"), [("sendmsg6", 1), ("sendmsg4", 0)])
def test_what_they_get_back_from_there_hangs_on_sendmsg4(lost: str, share: int) -> None:
    found = verified(maps(DNS, without(lost, "recvmsg6"))).differences
    assert {d.share for d in found if d.object == "hook recvmsg6"} == {share}


def test_nothing_is_to_be_given_back_where_no_backend_is_given() -> None:
    found = verified(maps(DNS, set())).differences
    assert {d.object.removeprefix("hook ") for d in found} == without("sendmsg6")
    assert {d.share for d in found} == {0}
    assert ["no new connection is given a backend" in d.kernel for d in found] == [False] * 3 + [True] * 4
    still = verified(maps(DNS, without("sendmsg4", "recvmsg4"))).differences
    assert ["recvfrom() of a connected socket" in d.kernel for d in still] == [False, True]


def test_rules_beneath_that_differ_are_no_comfort() -> None:
    nft = (DNS / "nft.txt").read_text()
    backend = next(word for word in nft.split() if word.startswith("10.244.") and "." in word)
    found = verified(maps(DNS, without("connect4")), nft=nft.replace(backend, "10.244.9.9"))
    one = next(d for d in found.differences if d.kind == "program")
    assert (one.share, "and they differ as is told here" in one.kernel) == (Fraction(1), True)
    assert {d.kind for d in found.differences} > {"program"}


def test_rules_that_cannot_be_told_are_no_comfort() -> None:
    nft = (DNS / "nft.txt").read_text() + "\ntable ip other {\n\tchain x {\n\t\ttype filter hook forward priority 0; "
    nft += "policy accept;\n\t\tmeta skuid 7 drop\n\t}\n}\n"
    one = next(d for d in verified(maps(DNS, without("connect4")), nft=nft).differences if d.kind == "program")
    assert (one.share, "what they do is not known for all of them" in one.kernel) == (Fraction(1), True)


@pytest.mark.parametrize(
    ("stray", "says"),
    [
        (
            Stray("connect4", "connect4 (7)", "elsewhere", "/sys/fs/cgroup/x"),
            f"program connect4 (7) is attached to /sys/fs/cgroup/x, not to {CGROUP}: ",
        ),
        (Stray("connect4", "plain (8)", "foreign"), "program plain (8) runs there in its place and reads none of"),
    ],
)
def test_where_it_is_instead_and_what_is_in_its_place_is_said(stray: Stray, says: str) -> None:
    assert lone(verified(maps(DNS, without("connect4"), stray))).kernel.startswith(says)


@pytest.mark.parametrize("why", ["foreign", "other-code", "unread-maps"])
def test_what_runs_and_is_not_known_proves_nothing(why: str) -> None:
    found = verified(maps(DNS, without(), Stray("sendmsg4", "mine (9)", why)))  # type: ignore[arg-type]  # one of them
    assert (found.verdict, found.differences) == ("unproven", ())
    assert [(u.object, u.what.startswith("program mine (9) ")) for u in found.unproven] == [("hook sendmsg4", True)]


@pytest.mark.parametrize("lost", ["connect4", "connect6"])
def test_node_ports_on_the_loopback_have_no_rule_beneath(lost: str) -> None:
    found = verified(maps(NODE_PORT, without(lost), loopback=True), NODE_PORT).differences
    missing = [d for d in found if d.kind == "missing"]
    assert bool(missing) == (lost == "connect4")
    for one in missing:
        assert one.frontend.startswith("127.0.0.1:")
        assert (one.clients, one.share) == ("the node", Fraction(1))
        assert one.kernel == "sockets: nothing without connect4, and no rule serves the loopback"
    program = next(d for d in found if d.kind == "program")
    assert ("but those to the loopback's addresses" in program.kernel) == (lost == "connect4")


def test_maps_that_no_program_reads_make_no_difference() -> None:
    whole = maps(DNS, without())
    assert {d.kind for d in verified(structs.replace(whole, slots=())).differences} == {"rejected"}
    unread = structs.replace(whole, slots=(), hooks=())
    assert {d.kind for d in verified(unread).differences} == {"program"}


def ran(held: SocketMaps, folder: Path, *more: str) -> Result:
    file = folder / "ebpf-maps.json"
    file.write_text(text(held))
    given = ["--rules", str(DNS / "nft.txt"), "--rules", str(file), "-f", str(DNS / "manifests.yaml")]
    known = ["-f", str(GOLDEN / "kubernetes.yaml"), "--node", "node-a", "--node-ip", "10.200.0.1"]
    return CliRunner().invoke(command, [*given, *known, *more])


def test_the_command_says_it_with_its_exit_status_and_who_knows_the_remedy(tmp_path: Path) -> None:
    found = ran(maps(DNS, without("connect4")), tmp_path)
    assert found.exit_code == 1
    assert "program  hook connect4 does not run the proxy's" in found.stdout
    assert "a difference in the way, not in the outcome" in found.stdout
    assert f"see     clusterip doctor {DNS / 'nft.txt'} {tmp_path / 'ebpf-maps.json'}" in found.stdout
    assert f"given: sockets are those of processes in {CGROUP}" in found.stdout
    assert ran(maps(DNS, without()), tmp_path).exit_code == 0


def test_as_json_the_share_tells_the_way_from_the_outcome(tmp_path: Path) -> None:
    found = json.loads(ran(maps(DNS, without("connect4", "recvmsg4")), tmp_path, "-o", "json").stdout)
    assert {d["object"]: d["share"] for d in found["differences"]} == {"hook connect4": "0/1", "hook recvmsg4": "1/1"}
