"""What a new cluster holds from the start: its DNS server, and a pod to look from."""

from clusterip.client.api import Api
from clusterip.lab.plan import Plan
from clusterip.model.objects import Value
from clusterip.model.resources import DEPLOYMENTS, PODS, SERVICES, Resource
from clusterip.model.status import ApiError, Object

CLIENT = "client"
DNS_NAMESPACE, DNS_DEPLOYMENT, DNS_SERVICE = "kube-system", "cluster-dns", "kube-dns"
DNS_LABELS = {"k8s-app": "kube-dns"}
METRICS_PORT = 9153


async def create(api: Api, plan: Plan) -> None:
    """What is there already stays as it is."""
    await _create(api, SERVICES, dns_service(plan))
    await _create(api, DEPLOYMENTS, dns_deployment())
    await _create(api, PODS, client_pod())


async def _create(api: Api, resource: Resource, body: Object) -> None:
    meta = body["metadata"]
    try:
        # Asked first: a Service that is there would be refused for its address, which is taken, by itself.
        await api.get(resource, meta["namespace"], meta["name"], Value)
    except ApiError as error:
        if error.code != 404:
            raise
        document = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        await api.create(resource, meta["namespace"], document)


def dns_service(plan: Plan) -> Object:
    return {
        "metadata": {"name": DNS_SERVICE, "namespace": DNS_NAMESPACE, "labels": DNS_LABELS},
        "spec": {
            "selector": DNS_LABELS,
            "clusterIPs": list(plan.dns_ips),
            "ipFamilyPolicy": "SingleStack" if len(plan.dns_ips) == 1 else "RequireDualStack",
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
                {"name": "metrics", "port": METRICS_PORT, "protocol": "TCP", "targetPort": METRICS_PORT},
            ],
        },
    }


def dns_deployment() -> Object:
    container = {
        "name": "dns",
        "image": "clusterip/dns",
        # From inside the laboratory no other name server can be reached.
        "args": ["--forward", "none"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": METRICS_PORT},
            "periodSeconds": 1,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": METRICS_PORT},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
        },
    }
    return {
        "metadata": {"name": DNS_DEPLOYMENT, "namespace": DNS_NAMESPACE, "labels": DNS_LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": DNS_LABELS},
            # The server of names must not need names to be found.
            "template": {
                "metadata": {"labels": DNS_LABELS},
                "spec": {"dnsPolicy": "Default", "containers": [container]},
            },
        },
    }


def client_pod() -> Object:
    return {
        "metadata": {"name": CLIENT, "namespace": "default", "labels": {"app": CLIENT}},
        "spec": {"containers": [{"name": CLIENT, "image": "clusterip/client"}]},
    }
