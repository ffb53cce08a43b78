"""Defaults of pods and of the pod templates in workloads."""

from collections.abc import Iterator
from typing import Any

from clusterip.model.status import Object

_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FILE_MODE = 0o644
_VOLUMES_WITH_FILES = ("secret", "configMap", "downwardAPI", "projected")


def pod(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    _pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", qos_class(spec))


def template(obj: Object) -> None:
    obj.setdefault("metadata", {})
    _pod_spec(obj.setdefault("spec", {}))


def qos_class(spec: Object) -> str:
    """BestEffort without any request or limit; Guaranteed if all have equal ones for cpu and memory; else Burstable."""
    resources = [container.get("resources") or {} for container in _containers(spec)]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    guaranteed = all(
        (limits := r.get("limits") or {}).keys() >= {"cpu", "memory"} and (r.get("requests") or limits) == limits
        for r in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _pod_spec(spec: Object) -> None:
    for name, value in _SPEC.items():
        _fill(spec, name, value)
    spec.setdefault("securityContext", {})
    for container in _containers(spec):
        _container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes", ()):
        _volume(volume)


def _containers(spec: Object) -> Iterator[Object]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(group, ())


def _container(container: Object, *, host_network: bool) -> None:
    for name, value in _CONTAINER.items():
        _fill(container, name, value)
    _fill(container, "imagePullPolicy", _pull_policy(container.get("image", "")))
    for port in container.get("ports", ()):
        _fill(port, "protocol", "TCP")
        if host_network:
            _fill(port, "hostPort", port.get("containerPort", 0))
    _resources(container.setdefault("resources", {}))
    for variable in container.get("env", ()):
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            _fill(reference, "apiVersion", "v1")
    for name in _PROBES:
        if name in container:
            _probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _http_get(hook.get("httpGet"))


def _pull_policy(image: str) -> str:
    """Always for `latest`, said or implied: that tag moves."""
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def _resources(resources: Object) -> None:
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _probe(probe: Object) -> None:
    for name, value in _PROBE.items():
        _fill(probe, name, value)
    _http_get(probe.get("httpGet"))
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _http_get(action: Object | None) -> None:
    if action is not None:
        _fill(action, "path", "/")
        _fill(action, "scheme", "HTTP")


def _volume(volume: Object) -> None:
    if not (volume.keys() - {"name"}):
        volume["emptyDir"] = {}
    for source in _VOLUMES_WITH_FILES:
        if source in volume:
            volume[source].setdefault("defaultMode", _FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")


def _fill(owner: Object, name: str, value: Any) -> None:
    """For fields whose empty value counts as absent, except a termination grace period of zero, which is a wish."""
    if owner.get(name) in (None, "") or (owner[name] == 0 and name != "terminationGracePeriodSeconds"):
        owner[name] = value
