"""Rules of Services that no hook leads to, and a family of which there are none."""

import pytest
from tests.diagnosis.clothes import BOTH, NFT_MAP, NFT_SERVICE, WEB_RULES, findings
from tests.diagnosis.dumps import service
from tests.diagnosis.own import WEB, ruleset

from clusterip.diagnosis.doctor import diagnose
from clusterip.diagnosis.doctor.proxies import Proxy
from clusterip.diagnosis.findings import Finding
from clusterip.rulesets.recognise import read

OWN = ruleset(WEB)
THEIRS = NFT_SERVICE % (NFT_MAP, "")
PROXY = Proxy("clusterip proxy", "kill 7", "tail log", "kill 7")
DUAL = service("web", "10.96.0.20", spec=", clusterIPs: [10.96.0.20, 'fd00:96::20'], ipFamilies: [IPv4, IPv6]")
BOTH_FAMILIES = BOTH + BOTH.replace("web-x", "web-y").replace("10.244.1.5", "'fd00:1:1::5'").replace(
    "10.244.2.6", "'fd00:1:2::6'"
).replace("IPv4", "IPv6")  # fmt: skip


def without(text: str, *lines: str) -> str:
    """A dump that has lost these lines."""
    assert all(line in text for line in lines)
    return "\n".join(line for line in text.split("\n") if not any(lost in line for lost in lines))


def lost(*texts: str) -> list[str]:
    return sorted(f.object for f in findings(*texts) if f.id == "services-not-hooked")


@pytest.mark.parametrize(
    ("rules", "where"),
    [
        (WEB_RULES, []),
        (without(WEB_RULES, "-A PREROUTING"), ["nat/PREROUTING"]),
        (without(WEB_RULES, "-A PREROUTING", "-A OUTPUT"), ["nat/OUTPUT", "nat/PREROUTING"]),
        (without(WEB_RULES, "-A OUTPUT", ":OUTPUT"), []),  # the dump leaves the hook out
        (OWN, []),
        (without(OWN, "vmap @service-ips"), ["ip clusterip/nat-output", "ip clusterip/nat-prerouting"]),
        (THEIRS, []),
        (without(THEIRS, "jump services"), ["ip kube-proxy/nat-prerouting"]),
    ],
)
def test_a_hook_that_does_not_lead_to_the_services_is_named(rules: str, where: list[str]) -> None:
    assert lost(rules) == where


def test_who_is_not_masqueraded_is_no_question_where_nobody_is_translated() -> None:
    marks = without(WEB_RULES, "-j KUBE-MARK-MASQ")
    assert "masquerade-missing" in {f.id for f in findings(marks)}
    assert "masquerade-missing" not in {f.id for f in findings(without(marks, "-A PREROUTING"))}


def told(*texts: str, proxy: Proxy | None = PROXY) -> list[Finding]:
    inputs = [read(f"file-{n}", text.encode()) for n, text in enumerate(texts)]
    return [f for f in diagnose(inputs, "node-1", proxy=proxy).findings if f.id == "no-service-rules"]


def test_a_family_without_any_rule_is_told_where_all_of_a_node_was_read() -> None:
    (one,) = told(OWN, DUAL, BOTH_FAMILIES)
    assert (one.object, one.level, one.remedy) == ("node node-1, IPv6", "E", "kill 7")
    assert one.share == 1
    assert [f.object for f in told("table ip other {\n}\n", DUAL, BOTH_FAMILIES)] == [
        "node node-1, IPv4",
        "node node-1, IPv6",
    ]
    assert told(OWN, service("web", "10.96.0.20"), BOTH) == []
    assert told(OWN, DUAL, BOTH_FAMILIES, proxy=None) == []  # the other family's dump was not given, maybe
