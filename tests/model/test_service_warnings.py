"""What is accepted and yet said: the warnings of conformance 2.9."""

from typing import Any

import pytest

from clusterip.model import defaults, validation
from clusterip.model.resources import SERVICES
from clusterip.model.status import Object

HINTS = "service.kubernetes.io/topology-aware-hints"


def service(annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    obj: Object = {
        "metadata": {"name": "web", "annotations": annotations or {}},
        "spec": {"ports": [{"port": 80}], **spec},
    }
    defaults.apply(SERVICES, obj)
    return obj


def balancer(**spec: Any) -> Object:
    return service(type="LoadBalancer", **spec)


@pytest.mark.parametrize(
    ("obj", "fragment"),
    [
        (service(annotations={HINTS: "Auto"}), "is deprecated, please use service.kubernetes.io/topology-mode"),
        (service(clusterIP="FD00:96::20", clusterIPs=["FD00:96::20"]), "should be written as 'fd00:96::20'"),
        (balancer(loadBalancerSourceRanges=["FD00::/8"]), "spec.loadBalancerSourceRanges[0]"),
        (service(clusterIP="None", clusterIPs=["None"], externalIPs=["203.0.113.5"]), "ignored for headless"),
        (service(clusterIP="None", clusterIPs=["None"], sessionAffinity="ClientIP"), "spec.sessionAffinity is ignored"),
        (
            service(clusterIP="None", clusterIPs=["None"], loadBalancerIP="203.0.113.5"),
            "spec.loadBalancerIP is ignored",
        ),
        (service(externalIPs=["203.0.113.5"]), "spec.externalIPs is deprecated"),
        (service(type="ExternalName", externalName="a.b", externalIPs=["203.0.113.5"]), "ExternalName"),
        (service(externalName="a.b"), "spec.externalName is ignored"),
        (service(trafficDistribution="PreferClose"), "please use PreferSameZone"),
    ],
)
def test_what_is_unwise_is_said(obj: Object, fragment: str) -> None:
    assert any(fragment in text for text in validation.warnings(SERVICES, obj, None))


def test_a_plain_service_gives_no_warning() -> None:
    assert validation.warnings(SERVICES, service(), None) == []


def test_an_odd_address_is_mentioned_when_it_comes_and_not_ever_after() -> None:
    obj = service(clusterIP="FD00:96::20", clusterIPs=["FD00:96::20"])
    assert validation.warnings(SERVICES, obj, None)
    assert validation.warnings(SERVICES, obj, obj) == []
