"""What is filled in, field by field."""

import copy
from typing import Any

import pytest

from clusterip.model import defaults, resources
from clusterip.model.resources import RESOURCES, Resource
from clusterip.model.status import Object


def service(**spec: Any) -> Object:
    return {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], **spec}}


def pod(container: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "clusterip/echo:1", **(container or {})}], **spec},
    }


def deployment(**spec: Any) -> Object:
    return {"metadata": {"name": "d"}, "spec": {"template": pod(), **spec}}


def at(obj: Any, path: str) -> Any:
    for step in path.split("."):
        obj = obj[int(step)] if isinstance(obj, list) else obj[step]
    return obj


GONE = "gone"

ROWS: list[tuple[Resource, Object, str, Any]] = [
    (resources.SERVICES, service(), "spec.type", "ClusterIP"),
    (resources.SERVICES, service(), "spec.ports.0.protocol", "TCP"),
    (resources.SERVICES, service(), "spec.ports.0.targetPort", 80),
    (resources.SERVICES, service(ports=[{"port": 80, "targetPort": ""}]), "spec.ports.0.targetPort", 80),
    (resources.SERVICES, service(ports=[{"port": 80, "targetPort": "web"}]), "spec.ports.0.targetPort", "web"),
    (resources.SERVICES, service(), "spec.sessionAffinity", "None"),
    (resources.SERVICES, service(sessionAffinityConfig={"clientIP": {}}), "spec.sessionAffinityConfig", GONE),
    (
        resources.SERVICES,
        service(sessionAffinity="ClientIP"),
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        10800,
    ),
    (resources.SERVICES, service(), "spec.internalTrafficPolicy", "Cluster"),
    (resources.SERVICES, service(type="ExternalName"), "spec.internalTrafficPolicy", GONE),
    (resources.SERVICES, service(), "spec.externalTrafficPolicy", GONE),
    (resources.SERVICES, service(externalIPs=["203.0.113.5"]), "spec.externalTrafficPolicy", "Cluster"),
    (resources.SERVICES, service(type="NodePort"), "spec.externalTrafficPolicy", "Cluster"),
    (resources.SERVICES, service(type="LoadBalancer"), "spec.allocateLoadBalancerNodePorts", True),
    (resources.SERVICES, service(), "spec.allocateLoadBalancerNodePorts", GONE),
    (
        resources.SERVICES,
        {**service(type="LoadBalancer"), "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}},
        "status.loadBalancer.ingress.0.ipMode",
        "VIP",
    ),
    (resources.PODS, pod(), "spec.restartPolicy", "Always"),
    (resources.PODS, pod(), "spec.dnsPolicy", "ClusterFirst"),
    (resources.PODS, pod(), "spec.terminationGracePeriodSeconds", 30),
    (resources.PODS, pod(terminationGracePeriodSeconds=0), "spec.terminationGracePeriodSeconds", 0),
    (resources.PODS, pod(), "spec.schedulerName", "default-scheduler"),
    (resources.PODS, pod(), "spec.enableServiceLinks", True),
    (resources.PODS, pod(), "spec.containers.0.imagePullPolicy", "IfNotPresent"),
    (resources.PODS, pod({"image": "a.example:5000/x"}), "spec.containers.0.imagePullPolicy", "Always"),
    (resources.PODS, pod({"image": "x:latest"}), "spec.containers.0.imagePullPolicy", "Always"),
    (resources.PODS, pod({"image": "x@sha256:0"}), "spec.containers.0.imagePullPolicy", "IfNotPresent"),
    (resources.PODS, pod({"ports": [{"containerPort": 80}]}), "spec.containers.0.ports.0.protocol", "TCP"),
    (resources.PODS, pod({"ports": [{"containerPort": 80}]}), "spec.containers.0.ports.0.hostPort", GONE),
    (
        resources.PODS,
        pod({"ports": [{"containerPort": 80}]}, hostNetwork=True),
        "spec.containers.0.ports.0.hostPort",
        80,
    ),
    (
        resources.PODS,
        pod({"readinessProbe": {"httpGet": {"port": 80}}}),
        "spec.containers.0.readinessProbe",
        {
            "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
    ),
    (
        resources.PODS,
        pod({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}),
        "spec.containers.0.env.0.valueFrom.fieldRef.apiVersion",
        "v1",
    ),
    (
        resources.PODS,
        pod({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}),
        "spec.containers.0.resources.requests",
        {"cpu": "500m", "memory": "1Gi"},
    ),
    (resources.PODS, pod(volumes=[{"name": "v"}]), "spec.volumes.0.emptyDir", {}),
    (
        resources.PODS,
        pod(volumes=[{"name": "v", "configMap": {"name": "c"}}]),
        "spec.volumes.0.configMap.defaultMode",
        420,
    ),
    (resources.PODS, pod(), "spec.securityContext", {}),
    (resources.PODS, pod(), "spec.containers.0.terminationMessagePath", "/dev/termination-log"),
    (resources.PODS, pod(), "spec.containers.0.terminationMessagePolicy", "File"),
    (
        resources.PODS,
        pod({"lifecycle": {"preStop": {"httpGet": {"port": 80}}, "stopSignal": "SIGUSR1"}}),
        "spec.containers.0.lifecycle.preStop.httpGet.path",
        "/",
    ),
    (resources.PODS, pod(), "status.phase", "Pending"),
    (resources.PODS, pod(), "status.qosClass", "BestEffort"),
    (resources.PODS, pod({"resources": {"requests": {"cpu": "1"}}}), "status.qosClass", "Burstable"),
    (resources.PODS, pod({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}), "status.qosClass", "Guaranteed"),
    (resources.DEPLOYMENTS, deployment(), "spec.replicas", 1),
    (resources.DEPLOYMENTS, deployment(replicas=0), "spec.replicas", 0),
    (
        resources.DEPLOYMENTS,
        deployment(),
        "spec.strategy",
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
    ),
    (resources.DEPLOYMENTS, deployment(strategy={"type": "Recreate"}), "spec.strategy", {"type": "Recreate"}),
    (resources.DEPLOYMENTS, deployment(), "spec.revisionHistoryLimit", 10),
    (resources.DEPLOYMENTS, deployment(), "spec.progressDeadlineSeconds", 600),
    (resources.DEPLOYMENTS, deployment(), "spec.template.spec.restartPolicy", "Always"),
    (resources.DEPLOYMENTS, deployment(), "spec.template.spec.enableServiceLinks", GONE),
    (resources.DEPLOYMENTS, deployment(template={}), "spec.template.metadata", {}),
    (resources.DEPLOYMENTS, deployment(), "status", {}),
    (resources.REPLICA_SETS, deployment(), "spec.replicas", 1),
    (resources.REPLICA_SETS, deployment(), "status.replicas", 0),
    (resources.NAMESPACES, {"metadata": {"name": "ns"}}, "metadata.labels", {"kubernetes.io/metadata.name": "ns"}),
    (resources.NAMESPACES, {"metadata": {"name": "ns"}}, "spec.finalizers", ["kubernetes"]),
    (resources.NAMESPACES, {"metadata": {"name": "ns"}}, "status.phase", "Active"),
    (
        resources.ENDPOINT_SLICES,
        {"metadata": {}, "ports": [{"port": 80}]},
        "ports.0",
        {"port": 80, "name": "", "protocol": "TCP"},
    ),
    (
        resources.ENDPOINTS,
        {"metadata": {}, "subsets": [{"ports": [{"port": 80}]}]},
        "subsets.0.ports.0.protocol",
        "TCP",
    ),
]


@pytest.mark.parametrize(("resource", "obj", "path", "value"), ROWS, ids=[f"{r.kind}-{p}-{v}" for r, _, p, v in ROWS])
def test_what_is_left_out_is_filled_in(resource: Resource, obj: Object, path: str, value: Any) -> None:
    completed = copy.deepcopy(obj)
    defaults.apply(resource, completed)
    if value is GONE:
        owner, _, name = path.rpartition(".")
        assert name not in at(completed, owner)
    else:
        assert at(completed, path) == value
    again = copy.deepcopy(completed)
    defaults.apply(resource, again)
    assert again == completed


@pytest.mark.parametrize("resource", RESOURCES, ids=[r.kind for r in RESOURCES])
def test_a_bare_document_of_any_kind_can_be_completed(resource: Resource) -> None:
    obj: Object = {"metadata": {}}
    defaults.apply(resource, obj)
    assert obj["metadata"] is not None
