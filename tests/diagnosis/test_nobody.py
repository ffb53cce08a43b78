"""Endpoints that no pod is behind: in a diagnosis, and at the end of a packet's way."""

from fractions import Fraction

import pytest
from tests.diagnosis.asking import ask
from tests.diagnosis.clothes import WEB_RULES, findings
from tests.diagnosis.dumps import RUNNING, manifest, pod, ready, service, slice_of

NODES = manifest("{apiVersion: v1, kind: Node, metadata: {name: node-2}, spec: {podCIDR: 10.244.2.0/24}}")
SYSTEM = pod("coredns-1", "k8s-app: dns", RUNNING.replace("10.244.1.5", "10.244.1.2"), namespace="kube-system")
ONE = pod("web-1", "app: web", RUNNING)
OTHER = pod("web-2", "app: web", RUNNING.replace("10.244.1.5", "10.244.2.6"))
ENDED = OTHER.replace("phase: Running", "phase: Failed")
OBJECTS = service("web", "10.96.0.20") + slice_of("web", f"{ready('10.244.1.5')}, {ready('10.244.2.6')}")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((NODES, SYSTEM, ONE, OTHER), ""),
        ((NODES, SYSTEM, ONE), "no pod has 10.244.2.6, which is in the range of node-2's pods (10.244.2.0/24)"),
        ((NODES, SYSTEM, ONE, ENDED), "pod default/web-2, which had 10.244.2.6, has ended (Failed)"),
        ((SYSTEM, ONE), ""),  # an address of somebody outside, as far as is known
        ((NODES, ONE), ""),  # pods of one namespace alone
        ((NODES, SYSTEM), ""),
        ((NODES,), ""),
    ],
    ids=["all there", "none", "ended", "no range", "some pods", "other pods", "no pods"],
)
def test_an_endpoint_that_no_pod_is_behind_is_an_error_where_all_pods_are_known(
    given: tuple[str, ...], why: str
) -> None:
    found = [f for f in findings(WEB_RULES, OBJECTS, *given) if f.id == "endpoint-without-pod"]
    assert [(f.object, f.share) for f in found] == ([("service default/web", Fraction(1, 2))] if why else [])
    assert why in "".join(f.message for f in found)
    answer = ask(WEB_RULES, OBJECTS, *given, source="pod:10.244.1.9")
    noted = [f for f in answer.findings if f.id == "endpoint-without-pod"]
    assert [(f.message.partition(":")[0], f.share) for f in noted] == ([(why, Fraction(1, 2))] if why else [])


def test_an_endpoint_that_is_not_ready_is_nobodys_loss() -> None:
    unready = OBJECTS.replace("[10.244.2.6], conditions: {ready: true}", "[10.244.2.6], conditions: {ready: false}")
    assert unready != OBJECTS
    assert "endpoint-without-pod" not in {f.id for f in findings(unready, NODES, SYSTEM, ONE)}
