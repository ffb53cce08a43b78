"""Rules for pods, Deployments, ReplicaSets, nodes and the kinds that only keep something."""

import copy
from typing import Any

import pytest

from clusterip.model import defaults, resources, validation
from clusterip.model.resources import Resource
from clusterip.model.status import Object

INVALID, REQUIRED, FORBIDDEN = "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden"
NOT_SUPPORTED, DUPLICATE, TOO_LONG = "FieldValueNotSupported", "FieldValueDuplicate", "FieldValueTooLong"
NOT_FOUND = "FieldValueNotFound"


def completed(resource: Resource, obj: Object) -> Object:
    defaults.apply(resource, obj)
    return obj


def pod(container: Object | None = None, **spec: Any) -> Object:
    whole = {"containers": [{"name": "c", "image": "x", **(container or {})}], **spec}
    return completed(resources.PODS, {"metadata": {"name": "p"}, "spec": whole})


def deployment(**spec: Any) -> Object:
    whole = {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
        **spec,
    }
    return completed(resources.DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": whole})


def replica_set(**spec: Any) -> Object:
    obj = deployment(**spec)
    for name in ("strategy", "revisionHistoryLimit", "progressDeadlineSeconds"):
        del obj["spec"][name]
    return obj


def named(metadata: Object | None = None, **rest: Any) -> Object:
    return {"metadata": {"name": "n", "namespace": "default", **(metadata or {})}, **rest}


HTTP = {"httpGet": {"port": 80}}
C0 = "spec.containers[0]"
EXPRESSION = {"key": "app", "operator": "In", "values": ["web"]}

ROWS: list[tuple[Resource, Object, str, str]] = [
    (resources.PODS, pod(containers=[]), "spec.containers", REQUIRED),
    (resources.PODS, pod({"name": ""}), f"{C0}.name", REQUIRED),
    (resources.PODS, pod({"name": "A"}), f"{C0}.name", INVALID),
    (resources.PODS, pod({"image": ""}), f"{C0}.image", REQUIRED),
    (resources.PODS, pod({"image": " x"}), f"{C0}.image", INVALID),
    (resources.PODS, pod({"imagePullPolicy": "Maybe"}), f"{C0}.imagePullPolicy", NOT_SUPPORTED),
    (resources.PODS, pod(initContainers=[{"name": "c", "image": "x"}]), f"{C0}.name", DUPLICATE),
    (resources.PODS, pod({"ports": [{}]}), f"{C0}.ports[0].containerPort", REQUIRED),
    (resources.PODS, pod({"ports": [{"containerPort": 70000}]}), f"{C0}.ports[0].containerPort", INVALID),
    (resources.PODS, pod({"ports": [{"containerPort": 1, "hostPort": -1}]}), f"{C0}.ports[0].hostPort", INVALID),
    (resources.PODS, pod({"ports": [{"containerPort": 1, "name": "1"}]}), f"{C0}.ports[0].name", INVALID),
    (
        resources.PODS,
        pod({"ports": [{"containerPort": i, "name": "a"} for i in (1, 2)]}),
        f"{C0}.ports[1].name",
        DUPLICATE,
    ),
    (resources.PODS, pod({"ports": [{"containerPort": 1, "protocol": "X"}]}), f"{C0}.ports[0].protocol", NOT_SUPPORTED),
    (resources.PODS, pod({"env": [{"value": "a"}]}), f"{C0}.env[0].name", REQUIRED),
    (resources.PODS, pod({"env": [{"name": "A=B"}]}), f"{C0}.env[0].name", INVALID),
    (resources.PODS, pod({"env": [{"name": "A", "value": "b", "valueFrom": {}}]}), f"{C0}.env[0].valueFrom", INVALID),
    (resources.PODS, pod({"env": [{"name": "A", "valueFrom": {}}]}), f"{C0}.env[0].valueFrom", INVALID),
    (resources.PODS, pod({"restartPolicy": "Always"}), f"{C0}.restartPolicy", FORBIDDEN),
    (
        resources.PODS,
        pod(initContainers=[{"name": "i", "image": "x", "restartPolicy": "Never"}]),
        "spec.initContainers[0].restartPolicy",
        NOT_SUPPORTED,
    ),
    (resources.PODS, pod({"readinessProbe": {}}), f"{C0}.readinessProbe", REQUIRED),
    (
        resources.PODS,
        pod({"readinessProbe": {**HTTP, "exec": {"command": ["a"]}}}),
        f"{C0}.readinessProbe.httpGet",
        FORBIDDEN,
    ),
    (resources.PODS, pod({"readinessProbe": {"exec": {}}}), f"{C0}.readinessProbe.exec.command", REQUIRED),
    (resources.PODS, pod({"readinessProbe": {"httpGet": {}}}), f"{C0}.readinessProbe.httpGet.port", INVALID),
    (
        resources.PODS,
        pod({"readinessProbe": {"tcpSocket": {"port": "8"}}}),
        f"{C0}.readinessProbe.tcpSocket.port",
        INVALID,
    ),
    (
        resources.PODS,
        pod({"readinessProbe": {"httpGet": {"port": 1, "scheme": "FTP"}}}),
        f"{C0}.readinessProbe.httpGet.scheme",
        NOT_SUPPORTED,
    ),
    (
        resources.PODS,
        pod({"readinessProbe": {**HTTP, "periodSeconds": -1}}),
        f"{C0}.readinessProbe.periodSeconds",
        INVALID,
    ),
    (
        resources.PODS,
        pod({"livenessProbe": {**HTTP, "successThreshold": 2}}),
        f"{C0}.livenessProbe.successThreshold",
        INVALID,
    ),
    (
        resources.PODS,
        pod(initContainers=[{"name": "i", "image": "x", "readinessProbe": HTTP}]),
        "spec.initContainers[0].readinessProbe",
        FORBIDDEN,
    ),
    (
        resources.PODS,
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}},  # not defaulted
        "spec.restartPolicy",
        REQUIRED,
    ),
    (resources.PODS, pod(restartPolicy="Sometimes"), "spec.restartPolicy", NOT_SUPPORTED),
    (resources.PODS, pod(dnsPolicy="Magic"), "spec.dnsPolicy", NOT_SUPPORTED),
    (resources.PODS, pod(dnsPolicy="None"), "spec.dnsConfig.nameservers", REQUIRED),
    (resources.PODS, pod(dnsConfig={"nameservers": ["x"]}), "spec.dnsConfig.nameservers[0]", INVALID),
    (resources.PODS, pod(terminationGracePeriodSeconds=-1), "spec.terminationGracePeriodSeconds", INVALID),
    (resources.PODS, pod(nodeSelector={"a b": "c"}), "spec.nodeSelector", INVALID),
    (resources.PODS, pod(hostname="a.b"), "spec.hostname", INVALID),
    (resources.PODS, pod(nodeName="A_"), "spec.nodeName", INVALID),
    (resources.PODS, pod(hostAliases=[{"ip": "x"}]), "spec.hostAliases[0].ip", INVALID),
    (resources.PODS, pod(readinessGates=[{"conditionType": "a b"}]), "spec.readinessGates[0].conditionType", INVALID),
    (
        resources.PODS,
        pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a_b"]}]),
        "spec.hostAliases[0].hostnames",
        INVALID,
    ),
    (resources.PODS, pod(volumes=[{"emptyDir": {}}]), "spec.volumes[0].name", REQUIRED),
    (resources.PODS, pod(volumes=[{"name": "V"}]), "spec.volumes[0].name", INVALID),
    (resources.PODS, pod({"volumeMounts": [{"name": "v"}]}), f"{C0}.volumeMounts[0].mountPath", REQUIRED),
    (resources.PODS, pod(volumes=[{"name": "v"}, {"name": "v"}]), "spec.volumes[1].name", DUPLICATE),
    (
        resources.PODS,
        pod({"volumeMounts": [{"name": "gone", "mountPath": "/x"}]}),
        f"{C0}.volumeMounts[0].name",
        NOT_FOUND,
    ),
    (resources.DEPLOYMENTS, deployment(selector=None), "spec.selector", REQUIRED),
    (resources.DEPLOYMENTS, deployment(selector={}), "spec.selector", INVALID),
    (
        resources.DEPLOYMENTS,
        deployment(selector={"matchLabels": {"app": "b"}}),
        "spec.template.metadata.labels",
        INVALID,
    ),
    (
        resources.DEPLOYMENTS,
        deployment(selector={"matchExpressions": [{**EXPRESSION, "operator": "Like"}]}),
        "spec.selector.matchExpressions[0].operator",
        INVALID,
    ),
    (
        resources.DEPLOYMENTS,
        deployment(selector={"matchExpressions": [{**EXPRESSION, "values": []}]}),
        "spec.selector.matchExpressions[0].values",
        REQUIRED,
    ),
    (
        resources.DEPLOYMENTS,
        deployment(selector={"matchExpressions": [{**EXPRESSION, "operator": "Exists"}]}),
        "spec.selector.matchExpressions[0].values",
        FORBIDDEN,
    ),
    (resources.DEPLOYMENTS, deployment(selector={"matchLabels": {"a": "b c"}}), "spec.selector.matchLabels", INVALID),
    (
        resources.DEPLOYMENTS,
        deployment(selector={"matchExpressions": [{**EXPRESSION, "key": "a b"}]}),
        "spec.selector.matchExpressions[0].key",
        INVALID,
    ),
    (
        resources.DEPLOYMENTS,
        deployment(selector={"matchExpressions": [{**EXPRESSION, "values": ["b c"]}]}),
        "spec.selector.matchExpressions[0].values",
        INVALID,
    ),
    (
        resources.DEPLOYMENTS,
        deployment(template={"metadata": {"labels": {"app": "web", "a": "b c"}}}),
        "spec.template.metadata.labels",
        INVALID,
    ),
    (resources.DEPLOYMENTS, deployment(replicas=-1), "spec.replicas", INVALID),
    (resources.DEPLOYMENTS, deployment(minReadySeconds=600), "spec.progressDeadlineSeconds", INVALID),
    (resources.DEPLOYMENTS, deployment(strategy={"type": "BlueGreen"}), "spec.strategy.type", NOT_SUPPORTED),
    (
        resources.DEPLOYMENTS,
        deployment(strategy={"type": "Recreate", "rollingUpdate": {}}),
        "spec.strategy.rollingUpdate",
        FORBIDDEN,
    ),
    (
        resources.DEPLOYMENTS,
        deployment(strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}),
        "spec.strategy.rollingUpdate.maxUnavailable",
        INVALID,
    ),
    (
        resources.DEPLOYMENTS,
        deployment(strategy={"rollingUpdate": {"maxUnavailable": "101%"}}),
        "spec.strategy.rollingUpdate.maxUnavailable",
        INVALID,
    ),
    (
        resources.DEPLOYMENTS,
        deployment(strategy={"rollingUpdate": {"maxSurge": "a few"}}),
        "spec.strategy.rollingUpdate.maxSurge",
        INVALID,
    ),
    (
        resources.REPLICA_SETS,
        replica_set(template={"metadata": {"labels": {"app": "web"}}, "spec": {"restartPolicy": "Never"}}),
        "spec.template.spec.restartPolicy",
        NOT_SUPPORTED,
    ),
    (
        resources.REPLICA_SETS,
        replica_set(template={"metadata": {"labels": {"app": "web"}}}),
        "spec.template.spec.containers",
        REQUIRED,
    ),
    (
        resources.NODES,
        named(spec={"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.2.0/24"]}),
        "spec.podCIDRs",
        INVALID,
    ),
    (resources.NODES, named(spec={"podCIDRs": ["10.244.1.1/24"]}), "spec.podCIDRs[0]", INVALID),
    (resources.NODES, named(spec={"podCIDRs": ["10.244.1.0/24", "10.244.2.0/24"]}), "spec.podCIDRs", INVALID),
    (resources.NODES, named(spec={"taints": [{"key": "a b", "effect": "NoExecute"}]}), "spec.taints[0].key", INVALID),
    (
        resources.NODES,
        named(spec={"taints": [{"key": "a", "value": "b c", "effect": "NoExecute"}]}),
        "spec.taints[0].value",
        INVALID,
    ),
    (resources.NODES, named(spec={"taints": [{"key": "a"}]}), "spec.taints[0].effect", REQUIRED),
    (resources.NODES, named(spec={"taints": [{"key": "a", "effect": "Run"}]}), "spec.taints[0].effect", NOT_SUPPORTED),
    (resources.NODES, named(spec={"taints": [{"key": "a", "effect": "NoExecute"}] * 2}), "spec.taints[1]", DUPLICATE),
    (resources.CONFIG_MAPS, named(data={"a/b": ""}), "data[a/b]", INVALID),
    (resources.CONFIG_MAPS, named(data={"a": ""}, binaryData={"a": ""}), "data[a]", DUPLICATE),
    (resources.CONFIG_MAPS, named(data={"a": "x" * (1 << 20) + "x"}), "", TOO_LONG),
    (resources.LEASES, named(spec={"leaseDurationSeconds": 0}), "spec.leaseDurationSeconds", INVALID),
    (resources.LEASES, named(spec={"leaseTransitions": -1}), "spec.leaseTransitions", INVALID),
    (resources.EVENTS, named(involvedObject={"namespace": "other"}), "involvedObject.namespace", INVALID),
    (resources.NAMESPACES, named(spec={"finalizers": ["mine"]}), "spec.finalizers[0]", INVALID),
    (resources.NAMESPACES, named({"name": "a.b"}), "metadata.name", INVALID),
    (resources.CONFIG_MAPS, named({"name": "a_b"}), "metadata.name", INVALID),
    (resources.CONFIG_MAPS, named({"labels": {"a": "b c"}}), "metadata.labels", INVALID),
    (resources.CONFIG_MAPS, named({"annotations": {"a b": ""}}), "metadata.annotations", INVALID),
    (resources.CONFIG_MAPS, named({"annotations": {"a": "x" * (256 * 1024)}}), "metadata.annotations", TOO_LONG),
    (resources.CONFIG_MAPS, named({"finalizers": ["a b"]}), "metadata.finalizers[0]", INVALID),
    (resources.CONFIG_MAPS, named({"ownerReferences": [{"kind": "A"}]}), "metadata.ownerReferences[0].uid", REQUIRED),
    (
        resources.CONFIG_MAPS,
        named(
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": n, "uid": n, "controller": True} for n in "ab"
                ]
            }
        ),
        "metadata.ownerReferences",
        INVALID,
    ),
]


@pytest.mark.parametrize(
    ("resource", "obj", "field", "reason"), ROWS, ids=[f"{r.kind}-{f}-{why}" for r, _, f, why in ROWS]
)
def test_a_wrong_document_is_refused_for_the_right_reason(
    resource: Resource, obj: Object, field: str, reason: str
) -> None:
    causes = validation.validate_create(resource, obj)
    assert (field, reason) in [(cause.field, cause.reason) for cause in causes], causes


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (resources.PODS, pod()),
        (
            resources.PODS,
            pod(
                {"readinessProbe": HTTP, "livenessProbe": {"tcpSocket": {"port": "web"}}, "env": [{"name": "a.b-C"}]},
                initContainers=[{"name": "s", "image": "x", "restartPolicy": "Always", "startupProbe": HTTP}],
                volumes=[{"name": "v"}],
            ),
        ),
        (resources.DEPLOYMENTS, deployment()),
        (resources.DEPLOYMENTS, deployment(replicas=0, strategy={"type": "Recreate"})),
        (resources.DEPLOYMENTS, deployment(selector={"matchExpressions": [EXPRESSION]})),
        (resources.REPLICA_SETS, replica_set()),
        (resources.NODES, named(spec={"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1:1::/64"]})),
        (resources.CONFIG_MAPS, named(data={"a.b_C-d": "x"})),
        (resources.LEASES, named(spec={"holderIdentity": "a", "leaseDurationSeconds": 15})),
        (resources.EVENTS, named(involvedObject={"namespace": "default", "kind": "Pod", "name": "p"})),
        (resources.EVENTS, named({"name": "node-1.17fe"}, involvedObject={"kind": "Node", "name": "node-1"})),
        (resources.NAMESPACES, named(spec={"finalizers": ["kubernetes"]})),
    ],
)
def test_a_right_document_is_accepted(resource: Resource, obj: Object) -> None:
    assert validation.validate_create(resource, obj) == []


def changed(obj: Object, path: str, value: Any) -> Object:
    new = copy.deepcopy(obj)
    *owners, last = path.split(".")
    owner: Any = new
    for step in owners:
        owner = owner[int(step)] if isinstance(owner, list) else owner[step]
    owner[last] = value
    return new


@pytest.mark.parametrize(
    ("resource", "obj", "path", "value", "field"),
    [
        (resources.PODS, pod(), "spec.containers.0.image", "y", ""),
        (resources.PODS, pod(), "spec.nodeName", "node-1", ""),
        (resources.PODS, pod(), "spec.tolerations", [{"key": "a"}], ""),
        (resources.PODS, pod(nodeName="node-1"), "spec.nodeName", "node-2", "spec"),
        (resources.PODS, pod(), "spec.containers.0.command", ["a"], "spec"),
        (resources.PODS, pod(), "spec.restartPolicy", "Never", "spec"),
        (resources.DEPLOYMENTS, deployment(), "spec.replicas", 5, ""),
        (resources.DEPLOYMENTS, deployment(), "spec.selector", {"matchExpressions": [EXPRESSION]}, "spec.selector"),
        (resources.REPLICA_SETS, replica_set(), "spec.selector", {"matchExpressions": [EXPRESSION]}, "spec.selector"),
        (
            resources.NODES,
            named(spec={"podCIDRs": ["10.244.1.0/24"]}),
            "spec.podCIDRs",
            ["10.244.2.0/24"],
            "spec.podCIDRs",
        ),
        (resources.NODES, named(spec={}), "spec.podCIDRs", ["10.244.2.0/24"], ""),
        (resources.CONFIG_MAPS, named(immutable=True, data={"a": "1"}), "data", {"a": "2"}, "data"),
        (resources.CONFIG_MAPS, named(data={"a": "1"}), "data", {"a": "2"}, ""),
    ],
)
def test_only_what_may_change_changes(resource: Resource, obj: Object, path: str, value: Any, field: str) -> None:
    causes = validation.validate_update(resource, changed(obj, path, value), obj)
    assert [cause.field for cause in causes] == ([field] if field else [])
