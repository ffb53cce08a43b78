"""Whatever the rules are: the ways out of them are told, they sum up to one, and nothing ends in a traceback."""

from fractions import Fraction
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnosis.asking import ADDRESSES, ROUTES

from clusterip.diagnosis.answer import Trace, to_json
from clusterip.diagnosis.facts import merge
from clusterip.diagnosis.outcomes import Reached
from clusterip.diagnosis.question import Client, Target
from clusterip.diagnosis.trace import Tracer, told
from clusterip.diagnosis.walk.branch import Condition
from clusterip.rulesets import recognise

MATCHES = (
    *("-d 10.96.0.20/32", "-s 10.244.0.0/16", "! -s 10.244.1.7/32", "-i cip0", "! -o eth0", "-p tcp -m tcp --dport 80"),
    *("-m statistic --mode random --probability 0.25", "-m statistic --mode nth --every 3 --packet 0"),
    *("-m recent --rcheck --seconds 60 --name A --rsource", "-m recent --set --name A --rsource"),
    *("-m mark --mark 0x1/0x1", "-m mark ! --mark 0x2/0x2", "-m conntrack --ctstate NEW", "-m time --timestart 08:00"),
    *("-m limit --limit 1/sec", "-m addrtype --dst-type LOCAL", "-p tcp -m tcp --sport 99", "-s some.host", "-m wrong"),
    *("-m conntrack --ctstate DNAT", "-m set --match-set s dst", "-m connmark --mark zero", "-d 10.0.0.0/99"),
)
TARGETS = (
    *("ACCEPT", "DROP", "RETURN", "REJECT", "A", "B", "C", "MARK --set-xmark 0x1/0x1", "MARK --set-xmark 0x2/0x3"),
    *(
        "DNAT --to-destination 10.244.2.1:8080",
        "DNAT --to-destination 10.244.2.2",
        "DNAT --to-destination 1.2.3.4-1.2.3.9",
    ),
    *("MASQUERADE", "SNAT --to-source 192.168.50.11", "LOG", "NFQUEUE", "DNAT --to-destination x:y", "GONE"),
    *("CONNMARK --save-mark --nfmask 0x1 --ctmask 0x1", "CONNMARK --set-xmark x", "CT --notrack"),
)
NFT = (
    *("ip daddr 10.96.0.20 drop", "tcp dport 80 accept", "numgen random mod 2 vmap { 0 : jump a, 1 : goto b }"),
    *("dnat to 10.244.2.1:80", "dnat ip to numgen random mod 2 map { 0 : 10.244.2.1 . 80, 1 : 10.244.2.2 . 81 }"),
    *("meta mark set meta mark | 0x1", "meta mark & 0x1 != 0x0 drop", "ct state new jump a", "return", "jump gone"),
    *("tcp sport 99 drop", "limit rate 1/second accept", "ip saddr @s drop", "meta skuid 0 reject", "masquerade"),
    *("ip daddr . tcp dport { 10.96.0.20 . 80 } jump b", "jhash ip saddr mod 3 vmap { 0 : drop, 1 : jump a }", "%% 1"),
    *(
        "update @s { ip saddr }",
        "fib daddr type local accept",
        'iifname "cip*" jump a',
        'xt match "x"',
        "quota 1 bytes",
    ),
)


def iptables(draw: st.DrawFn) -> str:
    lines = []
    for table in draw(st.lists(st.sampled_from(["raw", "mangle", "nat", "filter"]), max_size=3, unique=True)):
        chains = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"]
        lines += [f"*{table}", *(f":{c} ACCEPT [0:0]" for c in chains), *(f":{c} - [0:0]" for c in "ABC")]
        for _ in range(draw(st.integers(0, 8))):
            matches = " ".join(draw(st.lists(st.sampled_from(MATCHES), max_size=2)))
            where = draw(st.sampled_from([*chains, "A", "B", "C"]))
            lines.append(f"-A {where} {matches} -j {draw(st.sampled_from(TARGETS))}")
        lines.append("COMMIT")
    return "\n".join([*lines, ""])


def nft(draw: st.DrawFn) -> str:
    rules = st.lists(st.sampled_from(NFT), max_size=5).map(lambda found: "".join(f"\t\t{rule}\n" for rule in found))
    text = "table ip t {\n\tset s {\n\t\ttype ipv4_addr\n\t\tflags dynamic\n\t}\n"
    for hook, kind, priority in draw(
        st.lists(
            st.tuples(
                st.sampled_from(["prerouting", "forward", "output", "input", "postrouting"]),
                st.sampled_from(["filter", "nat"]),
                st.sampled_from(["-150", "-100", "0", "100"]),
            ),
            max_size=3,
            unique=True,
        )
    ):
        name = f"{hook}{kind}{priority}".replace("-", "m")
        text += (
            f"\tchain {name} {{\n\t\ttype {kind} hook {hook} priority {priority}; policy accept;\n{draw(rules)}\t}}\n"
        )
    return text + "".join(f"\tchain {name} {{\n{draw(rules)}\t}}\n" for name in "ab") + "}\n"


@st.composite
def dumps(draw: st.DrawFn) -> list[str]:
    known = draw(st.sampled_from([[], [ADDRESSES], [ADDRESSES, ROUTES]]))
    return [iptables(draw), nft(draw), *known]


CLIENTS = st.sampled_from(
    [Client("pod", "10.244.1.7"), Client("node", ""), Client("node", "192.168.50.11"), Client("outside", "203.0.113.9")]
)
TARGETS_ASKED = st.sampled_from(
    [Target("tcp", "10.96.0.20", 80), Target("udp", "192.168.50.11", 53), Target("icmp", "10.96.0.20")]
)


@settings(deadline=None)
@given(dumps(), CLIENTS, TARGETS_ASKED)
def test_in_every_case_the_probabilities_of_all_ways_sum_up_to_one(
    texts: list[str], client: Client, to: Target
) -> None:
    tracer = Tracer(merge(recognise.read(f"f{n}", text.encode()) for n, text in enumerate(texts)))
    walked = tracer.walk(client, to)
    answer: Trace = told(walked)
    assert to_json(answer)
    assert answer.verdict in {o.verdict for o in answer.outcomes} | {"unknown"}
    conditions = {c for one in walked.found for c in one.branch.when}
    for pattern in range(4):
        world = {c: crc32(f"{pattern} {c.key}".encode()) % 2 == 0 for c in conditions}
        assert total(walked.found, world) == 1


def total(found: tuple[Reached, ...], world: dict[Condition, bool]) -> Fraction:
    """Of the ways that are open in a case where everything unknown is decided."""
    open_ways = (one for one in found if all(world[c] == holds for c, holds in one.branch.when.items()))
    return sum((one.branch.probability for one in open_ways), Fraction(0))
