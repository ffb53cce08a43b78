"""What a check tries, what it expects, and how it judges: no network."""

import io
import json
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields
from rich.console import Console

from clusterip.cli.check_text import print_report
from clusterip.lab.check.judge import cell, document, seen, verdict
from clusterip.lab.check.plan import World, expectation, targets, unmatched
from clusterip.lab.check.values import (
    Client,
    ClientKind,
    Expect,
    Expectation,
    Outcome,
    Report,
    Row,
    Saw,
    Target,
    Verdict,
)
from clusterip.model.objects import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Namespace,
    Node,
    NodeAddress,
    NodeStatus,
    ObjectMeta,
    Pod,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)

NODES = tuple(
    Node(
        metadata=ObjectMeta(name=f"node-{n}"),
        status=NodeStatus(addresses=(NodeAddress(type="InternalIP", address=f"192.168.50.1{n}"),)),
    )
    for n in (1, 2)
)
READY, UNREADY, DRAINING = (
    EndpointConditions(ready=True),
    EndpointConditions(ready=False, serving=False),
    EndpointConditions(ready=False, serving=True, terminating=True),
)
NODE_1 = Client("node-1", ClientKind.NODE, "n1", "node-1", ("192.168.50.11",))
NODE_2 = Client("node-2", ClientKind.NODE, "n2", "node-2", ("192.168.50.12",))
POD_1 = Client("pod default/other", ClientKind.POD, "p1", "node-1", ("10.244.1.9",))
POD_2 = Client("pod default/client", ClientKind.POD, "p2", "node-2", ("10.244.2.9",))
HOST = Client("host", ClientKind.HOST, "", "node-1")


def service(name: str = "web", port: ServicePort | None = None, **spec: object) -> Service:
    fields = {"cluster_ip": "10.96.0.7", "selector": {"app": name}, **spec}
    return Service(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ServiceSpec(ports=(port or ServicePort(port=80, name="http"),), **fields),  # type: ignore[arg-type]
    )


def piece(*ends: tuple[EndpointConditions, str], name: str = "web", port: str = "http") -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(name=f"{name}-x", namespace="default", labels={"kubernetes.io/service-name": name}),
        endpoints=tuple(
            Endpoint(addresses=(f"10.244.1.{n}",), conditions=conditions, node_name=node)
            for n, (conditions, node) in enumerate(ends, start=2)
        ),
        ports=(EndpointPort(name=port, port=8080),),
    )


def expected(world: World, client: Client = NODE_1, row: int = 0) -> Expectation:
    return expectation(world, targets(world)[row], client)


def test_every_clusterip_port_is_tried_and_every_node_port_at_every_node() -> None:
    world = World((service(port=ServicePort(port=80, name="http", node_port=30080), type="NodePort"),), nodes=NODES)
    assert [(t.at, t.node) for t in targets(world)] == [
        ("10.96.0.7:80/tcp", ""),
        ("192.168.50.11:30080/tcp", "node-1"),
        ("192.168.50.12:30080/tcp", "node-2"),
    ]


EXPOSED = Service(
    metadata=ObjectMeta(name="web", namespace="default"),
    spec=ServiceSpec(
        type="LoadBalancer",
        cluster_ip="10.96.0.7",
        cluster_ips=("10.96.0.7", "fd00:96::7"),
        external_ips=("203.0.113.7", "2001:db8::7"),
        load_balancer_source_ranges=("10.244.1.0/24", "192.168.50.12/32"),
        selector={"app": "web"},
        ports=(ServicePort(port=80, name="http"),),
    ),
    status=ServiceStatus(
        load_balancer=LoadBalancerStatus(
            ingress=(
                LoadBalancerIngress(ip="203.0.113.100"),
                LoadBalancerIngress(ip="2001:db8::100", ip_mode="VIP"),
                LoadBalancerIngress(ip="203.0.113.101", ip_mode="Proxy"),
            )
        )
    ),
)


def test_external_addresses_are_tried_but_those_that_proxies_leave_to_the_load_balancer() -> None:
    assert [(t.kind.value, t.at) for t in targets(World((EXPOSED,), nodes=NODES))] == [
        ("clusterIP", "10.96.0.7:80/tcp"),
        ("clusterIP", "[fd00:96::7]:80/tcp"),
        ("externalIP", "203.0.113.7:80/tcp"),
        ("externalIP", "[2001:db8::7]:80/tcp"),
        ("loadBalancer", "203.0.113.100:80/tcp"),
        ("loadBalancer", "[2001:db8::100]:80/tcp"),
    ]


@pytest.mark.parametrize(
    ("client", "row", "expect"),
    [
        (POD_1, 4, Expect.REACH),
        (POD_2, 4, Expect.DROP),
        (NODE_1, 4, Expect.DROP),
        (NODE_2, 4, Expect.REACH),
        (POD_2, 2, Expect.REACH),  # source ranges are of the load balancer's addresses alone
        (POD_2, 0, Expect.REACH),
        (HOST, 4, Expect.REACH),  # its address is not known
    ],
)
def test_source_ranges_keep_clients_from_the_load_balancer(client: Client, row: int, expect: Expect) -> None:
    found = expected(World((EXPOSED,), (piece((READY, "node-1")),)), client, row)
    assert found.expect is expect
    if expect is Expect.DROP:
        assert found.why == f"{client.addresses[0]} is not within loadBalancerSourceRanges"


def test_an_external_address_follows_the_external_policy_for_strangers_alone() -> None:
    local = replace_fields(EXPOSED, spec=replace_fields(EXPOSED.spec, external_traffic_policy="Local"))
    world = World((local,), (piece((READY, "node-1")),))
    assert expected(world, POD_2, 2).expect is Expect.REACH
    assert expected(world, HOST, 2).expect is Expect.REACH  # through node-1, which has the endpoint


@pytest.mark.parametrize(
    ("client", "row", "expect"),
    [(NODE_1, 2, Expect.NOT_REACH), (NODE_1, 0, Expect.REFUSE), (POD_1, 2, Expect.REFUSE)],
)
def test_what_a_node_sends_to_an_external_address_without_endpoints_may_go_out(
    client: Client, row: int, expect: Expect
) -> None:
    found = expected(World((EXPOSED,)), client, row)
    assert found == Expectation(expect, "selector app=web matches no pod")


@pytest.mark.parametrize("spec", [{"cluster_ip": "None"}, {"type": "ExternalName"}, {"cluster_ip": ""}])
def test_services_without_a_clusterip_are_not_tried(spec: dict[str, object]) -> None:
    assert targets(World((service(**spec),))) == ()  # type: ignore[arg-type]


def test_services_of_a_namespace_that_is_going_are_not_tried() -> None:
    going = Namespace(metadata=ObjectMeta(name="default", deletion_timestamp="2026-01-01T00:00:00Z"))
    assert targets(World((service(),), namespaces=(going,))) == ()


def test_services_are_chosen_by_name_with_or_without_their_namespace() -> None:
    world = World((service("web"), service("db")))
    assert {t.service for t in targets(world, ("default/db",))} == {"db"}
    assert {t.service for t in targets(world, ("web",))} == {"web"}
    assert unmatched(world, ("web", "default/db", "other/db", "nope")) == ("other/db", "nope")


def test_a_ready_endpoint_makes_it_reachable() -> None:
    world = World((service(),), (piece((READY, "node-1"), (UNREADY, "node-2")),))
    assert expected(world) == Expectation(Expect.REACH, "1 of 2 endpoints ready")


def test_endpoints_that_still_serve_while_they_end_count_when_none_is_ready() -> None:
    world = World((service(),), (piece((DRAINING, "node-1"), (UNREADY, "node-2")),))
    assert expected(world).expect is Expect.REACH


def test_no_ready_endpoint_means_refusal_and_says_how_many_there_are() -> None:
    world = World((service(),), (piece((UNREADY, "node-1"), (UNREADY, "node-2"), (UNREADY, "node-2")),))
    assert expected(world) == Expectation(Expect.REFUSE, "0 of 3 endpoints ready")


def test_a_selector_that_matches_nothing_is_named() -> None:
    assert expected(World((service(),))).why == "selector app=web matches no pod"


def test_a_port_that_no_pod_has_points_to_targetport() -> None:
    pod = Pod(metadata=ObjectMeta(name="p", namespace="default", labels={"app": "web"}))
    world = World((service(),), (piece((READY, "node-1"), port="other"),), (pod,))
    assert expected(world) == Expectation(Expect.REFUSE, "no endpoint has port http: see targetPort")


@pytest.mark.parametrize(("client", "expect"), [(NODE_1, Expect.REACH), (NODE_2, Expect.DROP), (POD_2, Expect.DROP)])
def test_internal_policy_local_keeps_to_the_clients_node(client: Client, expect: Expect) -> None:
    world = World((service(internal_traffic_policy="Local"),), (piece((READY, "node-1")),))
    assert expected(world, client).expect is expect


@pytest.mark.parametrize(
    ("client", "row", "expect"),
    [
        (HOST, 1, Expect.REACH),  # node-1 has the endpoint
        (HOST, 2, Expect.DROP),
        (NODE_1, 2, Expect.DROP),  # from another node it comes from outside
        (NODE_2, 2, Expect.REACH),  # a node asks itself
        (POD_2, 2, Expect.REACH),  # a pod of that node
        (POD_1, 2, Expect.DROP),  # another node's pod is a stranger, too
        (HOST, 0, Expect.REACH),  # the ClusterIP does not follow it
    ],
)
def test_external_policy_local_keeps_strangers_to_the_node_they_ask(client: Client, row: int, expect: Expect) -> None:
    port = ServicePort(port=80, name="http", node_port=30080)
    world = World(
        (service(port=port, type="NodePort", external_traffic_policy="Local"),),
        (piece((READY, "node-1")),),
        nodes=NODES,
    )
    assert expected(world, client, row).expect is expect


JUDGED = {
    (Saw.REACHED, Expect.REACH): Verdict.OK,
    (Saw.SILENT, Expect.REACH): Verdict.UNKNOWN,
    (Saw.REFUSED, Expect.REACH): Verdict.WRONG,
    (Saw.TIMED_OUT, Expect.REACH): Verdict.WRONG,
    (Saw.UNREACHABLE, Expect.REACH): Verdict.WRONG,
    (Saw.REFUSED, Expect.REFUSE): Verdict.EMPTY,
    (Saw.REACHED, Expect.REFUSE): Verdict.WRONG,
    (Saw.TIMED_OUT, Expect.REFUSE): Verdict.WRONG,
    (Saw.SILENT, Expect.REFUSE): Verdict.WRONG,
    (Saw.REFUSED, Expect.NOT_REACH): Verdict.EMPTY,
    (Saw.TIMED_OUT, Expect.NOT_REACH): Verdict.EMPTY,
    (Saw.SILENT, Expect.NOT_REACH): Verdict.EMPTY,
    (Saw.UNREACHABLE, Expect.NOT_REACH): Verdict.EMPTY,
    (Saw.TIMED_OUT, Expect.DROP): Verdict.KEPT_LOCAL,
    (Saw.SILENT, Expect.DROP): Verdict.KEPT_LOCAL,
    (Saw.DROPPED, Expect.DROP): Verdict.KEPT_LOCAL,
    (Saw.DROPPED, Expect.REACH): Verdict.WRONG,
    (Saw.REACHED, Expect.DROP): Verdict.WRONG,
    (Saw.NOT_TRIED, Expect.REACH): Verdict.UNKNOWN,
    (Saw.CLIENT_GONE, Expect.REACH): Verdict.UNKNOWN,
}


@pytest.mark.parametrize(("met", "wanted"), JUDGED.items(), ids=lambda value: str(value))
def test_what_was_seen_is_judged_by_what_was_expected(met: tuple[Saw, Expect], wanted: Verdict) -> None:
    assert verdict(Outcome(met[0]), Expectation(met[1], "")) is wanted


def test_times_are_told_as_people_say_them() -> None:
    assert seen(Outcome(Saw.REFUSED, 0.00031)) == "refused after 0.3 ms"
    assert seen(Outcome(Saw.TIMED_OUT, 2.001)) == "no answer after 2.0 s"
    assert seen(Outcome(Saw.REACHED, 0.0004, "answered 8 bytes")) == "reached in 0.4 ms (answered 8 bytes)"


# --- how it is shown -------------------------------------------------------------------------------------------

WEB = Target("default", "web", "http", "TCP", "10.96.0.7", 80)
IDLE = Target("default", "idle", "", "TCP", "10.96.0.8", 80)
REACH, REFUSE = Expectation(Expect.REACH, "2 of 2 endpoints ready"), Expectation(Expect.REFUSE, "0 of 1 is ready")


def report(*rows: Row) -> Report:
    return Report((NODE_1, POD_2), rows, 0.25)


def row(target: Target, expect: Expectation, *outcomes: Outcome) -> Row:
    pairs = zip((NODE_1, POD_2), outcomes, strict=True)
    return Row(target, tuple(cell(client, outcome, expect) for client, outcome in pairs))


GOOD = row(WEB, REACH, Outcome(Saw.REACHED, 0.0002), Outcome(Saw.REACHED, 0.0004))
HALF = row(WEB, REACH, Outcome(Saw.REACHED, 0.0002), Outcome(Saw.REFUSED, 0.0003))
EMPTY = row(IDLE, REFUSE, Outcome(Saw.REFUSED, 0.0003), Outcome(Saw.REFUSED, 0.0005))


def printed(shown: Report, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_report(shown, Console(file=file, highlight=False, soft_wrap=True, width=100))
    file.flush()
    return raw.getvalue().decode(encoding)


def test_a_good_report_is_the_matrix_and_one_sentence() -> None:
    text = printed(report(GOOD))
    assert "default/web:http  10.96.0.7:80/tcp" in text
    assert "●  ●" in text
    assert text.splitlines()[-1] == "2 tries of 1 Service port from 2 clients in 0.25 s: all reach"


def test_failures_come_first_with_what_they_saw_and_what_the_api_says() -> None:
    first, second, *_ = printed(report(GOOD, HALF)).splitlines()
    assert first == "✗ default/web:http  10.96.0.7:80/tcp"
    assert second.strip() == (
        "from pod default/client: refused after 0.3 ms, but the API says: 2 of 2 endpoints ready; "
        "does anything listen on its targetPort?"
    )


def test_what_is_wrong_comes_before_what_is_only_empty() -> None:
    lines = [line for line in printed(report(EMPTY, HALF)).splitlines() if line[:1] in ("○", "✗")]
    assert [line[0] for line in lines] == ["✗", "○"]


def test_rows_of_a_port_with_the_same_to_say_are_told_once() -> None:
    node_port = replace(IDLE, address="192.168.50.11", port=30080, node="node-1")
    text = printed(report(EMPTY, replace(EMPTY, target=node_port)))
    assert "○ default/idle  10.96.0.8:80/tcp, 192.168.50.11:30080/tcp\n" in text
    assert text.count("everywhere") == 1


def test_a_refusal_that_must_be_is_shown_as_what_it_is_and_still_does_not_reach() -> None:
    text = printed(report(EMPTY))
    assert "everywhere: refused after 0.3 ms, rightly: 0 of 1 is ready" in text
    assert not report(EMPTY).all_reach


def test_silence_of_udp_is_not_held_against_it() -> None:
    assert report(row(WEB, REACH, Outcome(Saw.SILENT, 2.0), Outcome(Saw.SILENT, 2.0))).all_reach


def test_what_could_not_be_asked_is_not_said_to_reach() -> None:
    half = report(row(WEB, REACH, Outcome(Saw.REACHED, 0.0002), Outcome(Saw.CLIENT_GONE)))
    assert not half.all_reach
    assert "pod default/client went away before it could be asked everything: check again" in printed(half)


def test_a_terminal_without_unicode_gets_letters() -> None:
    text = printed(report(GOOD, HALF, EMPTY), "ascii")
    assert "o  X" in text


def test_json_has_a_result_for_each_client_of_each_port() -> None:
    body = json.loads(json.dumps(document(report(HALF, EMPTY))))
    assert body["allReach"] is False
    assert body["counts"] == {"ok": 1, "empty": 2, "kept local": 0, "unknown": 0, "wrong": 1}
    (web, _) = body["ports"]
    assert web["results"][1] == {
        "client": "pod default/client",
        "verdict": "wrong",
        "saw": "refused",
        "milliseconds": 0.3,
        "detail": "",
        "expected": "reach",
        "because": "2 of 2 endpoints ready",
    }
