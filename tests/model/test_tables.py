"""What `kubectl get` shows, cell by cell."""

from datetime import UTC, datetime
from typing import Any

import pytest

from clusterip.model import ages, pod_columns, resources, tables
from clusterip.model.resources import RESOURCES, Resource
from clusterip.model.status import Object

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC).timestamp()
CREATED = "2026-11-30T11:56:40Z"  # 3m20s ago


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (5.9, "5s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (14_460, "4h1m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (176_400, "2d1h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (65_000_000, "2y22d"),
        (252_288_000, "8y"),
    ],
)
def test_an_age_is_as_coarse_as_kubectls(seconds: float, text: str) -> None:
    assert ages.span(seconds) == text


def test_no_time_or_no_real_time_is_unknown() -> None:
    assert ages.since(None, NOW) == ages.since("soon", NOW) == "<unknown>"
    assert ages.since(CREATED, NOW) == "3m20s"


def obj(**rest: Any) -> Object:
    return {"metadata": {"name": "web", "namespace": "default", "creationTimestamp": CREATED}, **rest}


def service(ingress: list[Object] | None = None, **spec: Any) -> Object:
    return obj(spec={"type": "ClusterIP", **spec}, status={"loadBalancer": {"ingress": ingress or []}})


TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}}
SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["b", "a"]},
        {"key": "x", "operator": "DoesNotExist"},
    ],
}
SELECTOR_TEXT = "app=web,tier in (a,b),!x"

ROWS: list[tuple[Resource, Object, list[str | int]]] = [
    (
        resources.SERVICES,
        service(
            clusterIP="10.96.0.20",
            clusterIPs=["10.96.0.20", "fd00::1"],
            ports=[{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
            selector={"b": "2", "a": "1"},
        ),
        ["web", "ClusterIP", "10.96.0.20", "<none>", "80/TCP,53/UDP", "3m20s", "a=1,b=2"],
    ),
    (
        resources.SERVICES,
        service(clusterIP="None", externalIPs=["203.0.113.5", "203.0.113.6"]),
        ["web", "ClusterIP", "None", "203.0.113.5,203.0.113.6", "<none>", "3m20s", "<none>"],
    ),
    (
        resources.SERVICES,
        service(type="NodePort", clusterIP="10.96.0.20", ports=[{"port": 80, "nodePort": 30080, "protocol": "TCP"}]),
        ["web", "NodePort", "10.96.0.20", "<none>", "80:30080/TCP", "3m20s", "<none>"],
    ),
    (
        resources.SERVICES,
        service(type="LoadBalancer", clusterIP="10.96.0.20"),
        ["web", "LoadBalancer", "10.96.0.20", "<pending>", "<none>", "3m20s", "<none>"],
    ),
    (
        resources.SERVICES,
        service([{"ip": "203.0.113.9"}, {"hostname": "a.example"}], type="LoadBalancer", externalIPs=["203.0.113.5"]),
        ["web", "LoadBalancer", "<none>", "203.0.113.9,a...,203.0.113.5", "<none>", "3m20s", "<none>"],
    ),
    (
        resources.SERVICES,
        service(type="ExternalName", externalName="db.example.com"),
        ["web", "ExternalName", "<none>", "db.example.com", "<none>", "3m20s", "<none>"],
    ),
    (
        resources.ENDPOINT_SLICES,
        obj(
            addressType="IPv4",
            ports=[{"port": 80}, {"name": "any"}],
            endpoints=[{"addresses": [f"10.244.1.{i}"]} for i in range(5)],
        ),
        ["web", "IPv4", "80,*", "10.244.1.0,10.244.1.1,10.244.1.2 + 2 more...", "3m20s"],
    ),
    (
        resources.ENDPOINT_SLICES,
        obj(addressType="IPv6", endpoints=None, ports=None),
        ["web", "IPv6", "<unset>", "<unset>", "3m20s"],
    ),
    (
        resources.ENDPOINTS,
        obj(subsets=[{"addresses": [{"ip": "10.244.1.5"}, {"ip": "fd00::5"}], "ports": [{"port": 80}, {"port": 81}]}]),
        ["web", "10.244.1.5:80,[fd00::5]:80,10.244.1.5:81 + 1 more...", "3m20s"],
    ),
    (resources.ENDPOINTS, obj(), ["web", "<none>", "3m20s"]),
    (
        resources.DEPLOYMENTS,
        obj(
            spec={"replicas": 3, "template": TEMPLATE, "selector": SELECTOR},
            status={"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1},
        ),
        ["web", "2/3", 3, 1, "3m20s", "a,b", "x,y", SELECTOR_TEXT],
    ),
    (
        resources.REPLICA_SETS,
        obj(spec={"replicas": 0, "template": TEMPLATE, "selector": {}}, status={"replicas": 2}),
        ["web", 0, 2, 0, "3m20s", "a,b", "x,y", "<none>"],
    ),
    (
        resources.NODES,
        {
            "metadata": {
                "name": "node-1",
                "creationTimestamp": CREATED,
                "labels": {"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/a": ""},
            },
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "192.168.50.11"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "kernelVersion": "6.18"},
            },
        },
        [
            "node-1",
            "Ready,SchedulingDisabled",
            "a,control-plane",
            "3m20s",
            "v1.36.0",
            "192.168.50.11",
            "<none>",
            "<unknown>",
            "6.18",
            "<unknown>",
        ],
    ),
    (
        resources.NODES,
        obj(status={"conditions": [{"type": "Ready", "status": "Unknown"}]}),
        ["web", "NotReady", "<none>", "3m20s", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"],
    ),
    (resources.NAMESPACES, obj(status={"phase": "Active"}), ["web", "Active", "3m20s"]),
    (
        resources.EVENTS,
        obj(
            involvedObject={"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"},
            type="Warning",
            reason="Unhealthy",
            message=" probe failed \n",
            count=4,
            firstTimestamp=CREATED,
            lastTimestamp="2026-11-30T11:59:50Z",
            source={"component": "node", "host": "node-1"},
        ),
        [
            "10s",
            "Warning",
            "Unhealthy",
            "pod/p",
            "spec.containers{a}",
            "node, node-1",
            "probe failed",
            "3m20s",
            4,
            "web",
        ],
    ),
    (
        resources.EVENTS,
        obj(eventTime="2026-11-30T11:59:00.000000Z", involvedObject={"name": "p"}, reportingComponent="scheduler"),
        ["60s", "", "", "p", "", "scheduler", "", "60s", 1, "web"],
    ),
    (resources.CONFIG_MAPS, obj(data={"a": "1"}, binaryData={"b": "", "c": ""}), ["web", 3, "3m20s"]),
    (resources.LEASES, obj(spec={"holderIdentity": "node-1"}), ["web", "node-1", "3m20s"]),
    (
        resources.SERVICE_CIDRS,
        obj(spec={"cidrs": ["10.96.0.0/16", "fd00::/112"]}),
        ["web", "10.96.0.0/16,fd00::/112", "3m20s"],
    ),
    (
        resources.IP_ADDRESSES,
        obj(spec={"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}),
        ["web", "services/default/web", "3m20s"],
    ),
]


@pytest.mark.parametrize(("resource", "document", "cells"), ROWS, ids=[f"{r.kind}-{c[1]}" for r, _, c in ROWS])
def test_a_row_reads_as_on_any_cluster(resource: Resource, document: Object, cells: list[str | int]) -> None:
    (row,) = tables.table(resource, [document], now=NOW)["rows"]
    assert row["cells"] == cells


@pytest.mark.parametrize("resource", RESOURCES, ids=[r.kind for r in RESOURCES])
def test_every_kind_has_a_layout_and_its_bare_object_a_full_row(resource: Resource) -> None:
    answer = tables.table(resource, [{"metadata": {"name": "bare"}}], now=NOW)
    assert len(answer["rows"][0]["cells"]) == len(answer["columnDefinitions"])
    assert "bare" in answer["rows"][0]["cells"]


def test_a_table_carries_what_lists_and_watches_need() -> None:
    document = service()
    answer = tables.table(
        resources.SERVICES, [document], now=NOW, include="Object", resource_version="7", remaining=3, continue_token="c"
    )
    assert answer["metadata"] == {"resourceVersion": "7", "continue": "c", "remainingItemCount": 3}
    assert answer["rows"][0]["object"] == document
    later = tables.table(resources.SERVICES, [document], now=NOW, include="None", with_definitions=False)
    assert later["columnDefinitions"] is None
    assert later["rows"][0]["object"] is None
    partial = tables.table(resources.SERVICES, [document], now=NOW)["rows"][0]["object"]
    assert partial == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": document["metadata"],
    }


# --- pods ------------------------------------------------------------------------------------------------------


def state(kind: str, **rest: Any) -> Object:
    return {kind: rest}


def container(kind: str, *, ready: bool = False, restarts: int = 0, last: str = "", **rest: Any) -> Object:
    status: Object = {"name": "c", "ready": ready, "restartCount": restarts, "state": state(kind, **rest)}
    if last:
        status["lastState"] = state("terminated", finishedAt=last)
    return status


def pod(phase: str, *containers: Object, init: tuple[Object, ...] = (), sidecar: bool = False, **rest: Any) -> Object:
    inits = [{"name": f"i{n}"} for n in range(len(init))]
    if sidecar:
        inits[0]["restartPolicy"] = "Always"
    return {
        "metadata": {"name": "p", "creationTimestamp": CREATED, **rest.pop("metadata", {})},
        "spec": {
            "containers": [{"name": "c"}] * max(len(containers), 1),
            "initContainers": inits,
            **rest.pop("spec", {}),
        },
        "status": {
            "phase": phase,
            "containerStatuses": list(containers),
            "initContainerStatuses": [{**one, "name": f"i{n}"} for n, one in enumerate(init)],
            **rest,
        },
    }


RUNNING = container("running", ready=True)
DELETED = {"deletionTimestamp": CREATED}
WAITING = container("waiting", reason="PodInitializing")


@pytest.mark.parametrize(
    ("document", "ready", "word", "restarts"),
    [
        (pod("Running", RUNNING), "1/1", "Running", "0"),
        (pod("Pending"), "0/1", "Pending", "0"),
        (pod("Pending", container("waiting", reason="ContainerCreating")), "0/1", "ContainerCreating", "0"),
        (pod("Running", RUNNING, container("running")), "1/2", "Running", "0"),
        (pod("Succeeded", container("terminated", reason="Completed")), "0/1", "Completed", "0"),
        (pod("Failed", container("terminated", reason="Error", exitCode=1)), "0/1", "Error", "0"),
        (pod("Failed", container("terminated", exitCode=3)), "0/1", "ExitCode:3", "0"),
        (pod("Failed", container("terminated", signal=9)), "0/1", "Signal:9", "0"),
        (pod("Failed", reason="Evicted"), "0/1", "Evicted", "0"),
        (
            pod("Running", container("waiting", reason="CrashLoopBackOff", restarts=3, last="2026-11-30T11:59:55Z")),
            "0/1",
            "CrashLoopBackOff",
            "3 (5s ago)",
        ),
        (pod("Running", RUNNING, metadata=DELETED), "1/1", "Terminating", "0"),
        (pod("Succeeded", container("terminated", reason="Completed"), metadata=DELETED), "0/1", "Completed", "0"),
        (pod("Running", RUNNING, metadata=DELETED, reason="NodeLost"), "1/1", "Unknown", "0"),
        (pod("Pending", WAITING, init=(container("running"),)), "0/1", "Init:0/1", "0"),
        (
            pod("Pending", WAITING, init=(container("terminated", reason="Completed"), container("running"))),
            "0/1",
            "Init:1/2",
            "0",
        ),
        (
            pod("Pending", WAITING, init=(container("terminated", exitCode=2, restarts=1),)),
            "0/1",
            "Init:ExitCode:2",
            "1",
        ),
        (
            pod("Pending", WAITING, init=(container("waiting", reason="CrashLoopBackOff", restarts=2),)),
            "0/1",
            "Init:CrashLoopBackOff",
            "2",
        ),
        (
            pod("Running", RUNNING, init=(container("running", ready=True) | {"started": True},), sidecar=True),
            "2/2",
            "Running",
            "0",
        ),
        (
            pod("Running", RUNNING, init=(container("terminated", reason="Completed", restarts=4),)),
            "1/1",
            "Running",
            "0",
        ),
        (
            pod(
                "Running",
                container("terminated", reason="Completed"),
                RUNNING,
                conditions=[{"type": "Ready", "status": "True"}],
            ),
            "1/2",
            "Running",
            "0",
        ),
        (pod("Running", container("terminated", reason="Completed"), RUNNING), "1/2", "NotReady", "0"),
        (
            pod("Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            "0/1",
            "SchedulingGated",
            "0",
        ),
    ],
)
def test_a_pods_word_is_kubectls(document: Object, ready: str, word: str, restarts: str) -> None:
    (row,) = tables.table(resources.PODS, [document], now=NOW)["rows"]
    assert row["cells"][1:4] == [ready, word, restarts]
    assert pod_columns.summary(document).word == word


def test_the_wide_columns_of_a_pod_say_where_it_is() -> None:
    document = pod(
        "Running", RUNNING, podIPs=[{"ip": "10.244.1.5"}], conditions=[{"type": "x.io/a", "status": "True"}],
        spec={"nodeName": "node-1", "readinessGates": [{"conditionType": "x.io/a"}, {"conditionType": "x.io/b"}]},
    )  # fmt: skip
    (row,) = tables.table(resources.PODS, [document], now=NOW)["rows"]
    assert row["cells"][5:] == ["10.244.1.5", "node-1", "<none>", "1/2"]


def test_a_finished_pod_is_marked_so_that_kubectl_can_leave_it_out() -> None:
    (row,) = tables.table(resources.PODS, [pod("Succeeded")], now=NOW)["rows"]
    assert row["conditions"][0]["reason"] == "Succeeded"
