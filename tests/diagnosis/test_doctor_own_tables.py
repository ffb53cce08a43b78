"""Our own nftables table in a diagnosis: what it does for each frontend, and each fault that rules of iptables show."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.nftables.strategies_nft import configs
from tests.dataplane.strategies import V4, V6, Pool, hosts, tables
from tests.diagnosis.asking import ask
from tests.diagnosis.clothes import findings
from tests.diagnosis.dumps import ready, save, service, slice_of
from tests.diagnosis.own import TWO, USUAL, WEB, ruleset

from clusterip.dataplane.nftables.config import Config
from clusterip.diagnosis.doctor.known import known
from clusterip.diagnosis.doctor.programmed import Frontend
from clusterip.diagnosis.doctor.programmed_own import own_frontends
from clusterip.diagnosis.doctor.refusals import refusals
from clusterip.diagnosis.findings import Finding
from clusterip.rulesets.recognise import read
from clusterip.services.table import Backend, FrontendKind, PortName

OTHER = replace(WEB, name=PortName("default", "db", ""), cluster_ip="10.96.0.30")
PORT = '{name: "", port: 8080}'
OBJECTS = "".join(
    service(name, vip) + slice_of(name, f"{ready('10.244.1.5')}, {ready('10.244.2.6')}", PORT)
    for name, vip in (("web", "10.96.0.20"), ("db", "10.96.0.30"))
)


def told(*texts: str) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in findings(*texts):
        if one.level != "I":
            found.setdefault(one.id, []).append(one)
    return found


# --- what is read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_each_frontend_has_the_shares_that_a_client_from_outside_meets(pool: Pool, data: st.DataObject) -> None:
    entries = list(data.draw(tables(pool)).values())
    config, host = data.draw(configs(pool)), data.draw(hosts(pool))
    all_known = known([read("nft.txt", ruleset(*entries, config=config, host=host).encode())])
    found = {p.frontend: (p.name, dict(p.shares)) for rules in all_known.nft for p in own_frontends(rules)}
    refused = {(r.frontend, r.name) for r in refusals(all_known)}
    wanted, empty, seen = {}, set(), set()
    for entry in entries:
        for kind, address, port, protocol in entry.frontends():
            frontend = Frontend(protocol.lower(), address, port)
            if frontend in seen:
                continue
            seen.add(frontend)
            internal = kind is FrontendKind.CLUSTER_IP
            local = entry.internal_local if internal else entry.external_local
            backends = entry.local if local else entry.cluster
            if entry.has_backends:
                wanted[frontend] = (str(entry.name), {str(b): Fraction(1, len(backends)) for b in backends})
            else:
                empty.add((frontend, str(entry.name)))
    assert found == wanted
    assert refused == empty


# --- faults ---------------------------------------------------------------------------------------------------------


def test_a_table_that_holds_what_the_api_says_is_no_fault() -> None:
    assert told(ruleset(WEB, OTHER), OBJECTS) == {}


@pytest.mark.parametrize("affinity", [0, 10800])
def test_a_backend_that_no_slice_holds_is_stale_and_one_that_lacks_is_missing(affinity: int) -> None:
    old = replace(WEB, cluster=(TWO[0], Backend("10.244.9.9", 8080)), affinity_seconds=affinity)
    found = told(ruleset(old, OTHER), OBJECTS)
    (stale,) = found["stale-endpoint"]
    assert (stale.object, stale.share) == ("service default/web", Fraction(1, 2))
    assert "10.244.9.9:8080" in stale.message
    assert ["10.244.2.6:8080 is ready" in f.message for f in found["missing-endpoint"]] == [True]


def test_an_element_that_is_gone_costs_its_share() -> None:
    whole = ruleset(WEB, OTHER)
    gone = re.sub(r"10\.96\.0\.20 \. tcp \. 80 \. 1 [^,}]*?: [\d.]+ \. 8080,?", "", whole)
    assert gone != whole
    (missing,) = told(gone, OBJECTS)["missing-endpoint"]
    assert (missing.object, missing.share) == ("service default/web", Fraction(1, 2))
    assert "50 % of new connections reach no backend" in missing.message


def test_a_service_that_is_refused_and_has_backends_is_missing_them() -> None:
    empty = replace(WEB, cluster=(), has_backends=False)
    (missing,) = told(ruleset(empty, OTHER), OBJECTS)["missing-endpoint"]
    assert (missing.object, missing.share) == ("service default/web", Fraction(1))
    assert "refuse 10.96.0.20:80/tcp" in missing.message


def test_a_service_that_is_not_there_at_all_is_missing() -> None:
    (missing,) = told(ruleset(OTHER), OBJECTS)["missing-endpoint"]
    assert (missing.object, missing.share) == ("service default/web", Fraction(1))
    assert "The rules have nothing for 10.96.0.20:80/tcp" in missing.message


def test_rules_of_another_cluster_lack_nothing() -> None:
    stranger = replace(WEB, name=PortName("default", "else", ""), cluster_ip="10.96.0.99")
    assert "missing-endpoint" not in told(ruleset(stranger), OBJECTS)


def test_a_dump_of_refusals_alone_says_nothing_of_what_is_served() -> None:
    refused = save(
        "filter",
        [
            "-A FORWARD -j KUBE-SERVICES",
            '-A KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "default/web has no endpoints" '
            "-m tcp --dport 80 -j REJECT",
        ],
    )
    assert [f.object for f in told(refused, OBJECTS)["missing-endpoint"]] == ["service default/web"]


def test_a_local_policy_is_no_missing_backend() -> None:
    exposed = replace(WEB, node_port=30080, external_local=True, local=(TWO[0],))
    assert told(ruleset(exposed, OTHER), OBJECTS) == {}


@pytest.mark.parametrize(
    ("config", "found"),
    [(Config(), ["masquerade-missing"]), (replace(USUAL, masquerade_all=True), ["masquerade-all"]), (USUAL, [])],
)
def test_masquerading_is_judged_as_in_other_layouts(config: Config, found: list[str]) -> None:
    assert list(told(ruleset(WEB, OTHER, config=config), OBJECTS)) == found


def test_nodes_that_differ_are_told_apart() -> None:
    one = ruleset(replace(WEB, cluster=TWO[:1]))
    assert "node-drift" in told(ruleset(WEB), one)


def test_a_trace_to_a_service_without_endpoints_names_it_and_says_so() -> None:
    answer = ask(ruleset(replace(WEB, cluster=(), has_backends=False)), source="pod:10.244.1.7", to="10.96.0.20:80")
    assert (answer.service, answer.verdict) == ("default/web", "rejected")
    assert [(f.id, f.object) for f in answer.findings if f.level == "E"] == [("no-endpoints", "service default/web")]
