"""A question to a few lines of a dump."""

from fractions import Fraction

from clusterip.diagnosis.answer import Trace
from clusterip.diagnosis.facts import Facts, merge
from clusterip.diagnosis.trace import Tracer
from clusterip.rulesets import recognise

CLIENT = "pod:10.244.1.7"
SERVICE = "10.96.0.20:80"

ADDRESSES = """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default qlen 1000
    inet 192.168.50.11/24 scope global eth0
3: cip0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default qlen 1000
    inet 10.244.1.1/24 scope global cip0
"""
ROUTES = """default via 192.168.50.1 dev eth0
10.244.1.0/24 dev cip0 proto kernel scope link src 10.244.1.1
10.244.2.0/24 via 192.168.50.12 dev eth0
192.168.50.0/24 dev eth0 proto kernel scope link src 192.168.50.11
"""


def facts(*texts: str, node: str = "") -> Facts:
    read = [recognise.read(f"file-{n}", text.encode()) for n, text in enumerate(texts)]
    assert not [problem for r in read for problem in r.problems]
    return merge(read, node)


def ask(*texts: str, source: str = CLIENT, to: str = SERVICE, interface: str | None = None) -> Trace:
    return Tracer(facts(*texts)).ask(source, to, interface)


def nat(*rules: str, chains: str = "") -> str:
    """A nat table; `chains` beside the built-in ones, by name."""
    return _table("nat", "PREROUTING INPUT OUTPUT POSTROUTING", chains, rules)


def filtered(*rules: str, chains: str = "", forward: str = "ACCEPT") -> str:
    return _table("filter", "INPUT FORWARD OUTPUT", chains, rules).replace(":FORWARD ACCEPT", f":FORWARD {forward}")


def mangled(*rules: str, chains: str = "") -> str:
    return _table("mangle", "PREROUTING INPUT FORWARD OUTPUT POSTROUTING", chains, rules)


def _table(name: str, built_in: str, chains: str, rules: tuple[str, ...]) -> str:
    lines = [f"*{name}", *(f":{c} ACCEPT [0:0]" for c in built_in.split()), *(f":{c} - [0:0]" for c in chains.split())]
    return "\n".join([*lines, *(f"-A {rule}" for rule in rules), "COMMIT", ""])


def nft(body: str, family: str = "ip") -> str:
    return f"table {family} test {{\n{body}\n}}\n"


def shares(answer: Trace) -> dict[str, Fraction]:
    """Of each backend, or of a verdict that is none; where something is unknown it stands before it."""
    return {" ".join((*o.when, o.backend or o.verdict)): o.probability for o in answer.outcomes}


def ids(answer: Trace) -> list[str]:
    return [f.id for f in answer.findings]
