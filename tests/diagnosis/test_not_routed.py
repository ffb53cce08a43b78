"""What the kernel itself does not send on: no rule is blamed for it."""

import pytest
from tests.diagnosis.asking import ADDRESSES, ROUTES, ask
from tests.diagnosis.clothes import BOTH, WEB_RULES, findings
from tests.diagnosis.dumps import service

OBJECTS = service("web", "10.96.0.20") + BOTH
OFF = "net.ipv4.conf.all.rp_filter = 0\nnet.ipv4.ip_forward = 0\n"
HOLE = "blackhole 10.244.1.5\n"


@pytest.mark.parametrize(
    ("texts", "found", "remedy"),
    [
        ((OFF, ROUTES), ("ip-forward", "setting net.ipv4.ip_forward"), "sysctl -w net.ipv4.ip_forward=1"),
        ((OFF.replace("= 0", "= 1"), ROUTES + HOLE), ("host-firewall", "routing"), "ip route"),
    ],
)
def test_a_setting_or_a_route_that_stops_packets_is_named(
    texts: tuple[str, ...], found: tuple[str, str], remedy: str
) -> None:
    answer = ask(WEB_RULES, OBJECTS, ADDRESSES, *texts)
    assert [(f.id, f.object, f.remedy) for f in answer.findings if f.level == "E"] == [(*found, remedy)]
    told = [f for f in findings(WEB_RULES, OBJECTS, ADDRESSES, *texts) if f.level == "E"]
    assert [(f.id, f.object, f.remedy) for f in told] == [(*found, remedy)]
    assert "connections to 10.96.0.20:80/tcp" in told[0].message


def test_the_line_that_says_so_is_shown() -> None:
    (told,) = (f for f in findings(WEB_RULES, OBJECTS, ADDRESSES, ROUTES, OFF) if f.id == "ip-forward")
    assert [(e.text, e.line) for e in told.evidence] == [("net.ipv4.ip_forward = 0", 2)]


def test_a_node_that_forwards_is_no_fault() -> None:
    given = (WEB_RULES, OBJECTS, ADDRESSES, ROUTES, OFF.replace("ip_forward = 0", "ip_forward = 1"))
    assert [f.id for f in findings(*given) if f.level == "E"] == []
