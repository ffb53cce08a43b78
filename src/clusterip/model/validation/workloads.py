"""Rules for Deployments and ReplicaSets."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from clusterip.model import names, objects, selectors
from clusterip.model.causes import IMMUTABLE, forbidden, invalid, not_supported, required
from clusterip.model.status import Cause, Object
from clusterip.model.validation import meta, pods

_OPERATORS = ("DoesNotExist", "Exists", "In", "NotIn")
_PERCENT = re.compile(r"[0-9]+%")


def validate_replica_set(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    return [*_counts(spec, "replicas", "minReadySeconds"), *_selector_and_template(spec, old)]


def validate_deployment(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    return [
        *_counts(spec, "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
        *_selector_and_template(spec, old),
        *_strategy(spec.get("strategy") or {}),
        *_deadline(spec),
    ]


def _deadline(spec: Object) -> Iterator[Cause]:
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _counts(spec: Object, *fields: str) -> Iterator[Cause]:
    for name in fields:
        if (spec.get(name) or 0) < 0:
            yield invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")


def _selector_and_template(spec: Object, old: Object | None) -> Iterator[Cause]:
    selector = spec.get("selector")
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    wrong = list(label_selector(selector or {}, "spec.selector"))
    yield from wrong
    if selector is None:
        yield required("spec.selector")
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, "empty selector is invalid for workloads")
    elif not wrong and not selectors.matches_selector(msgspec.convert(selector, objects.LabelSelector), labels):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    if old is not None and selector != (old.get("spec") or {}).get("selector"):
        yield invalid("spec.selector", selector, IMMUTABLE)
    yield from meta.labels(labels, "spec.template.metadata.labels")
    pod = template.get("spec") or {}
    yield from pods.validate_spec(pod, "spec.template.spec")
    if pod.get("restartPolicy") in ("Never", "OnFailure"):
        yield not_supported("spec.template.spec.restartPolicy", pod["restartPolicy"], ("Always",))


def label_selector(selector: Object, field: str) -> Iterator[Cause]:
    yield from meta.labels(selector.get("matchLabels"), f"{field}.matchLabels")
    for index, one in enumerate(selector.get("matchExpressions") or ()):
        where, values = f"{field}.matchExpressions[{index}]", one.get("values") or []
        if wrong := names.qualified_name(one.get("key") or ""):
            yield invalid(f"{where}.key", one.get("key"), wrong)
        match one.get("operator"):
            case "In" | "NotIn":
                if not values:
                    yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            case "Exists" | "DoesNotExist":
                if values:
                    yield forbidden(
                        f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    )
            case other:
                yield invalid(f"{where}.operator", other, f"not a valid selector operator: {', '.join(_OPERATORS)}")
        for value in values:
            if wrong := names.label_value(value):
                yield invalid(f"{where}.values", value, wrong)


def _strategy(strategy: Object) -> Iterator[Cause]:
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type"):
        case "Recreate":
            if rolling is not None:
                yield forbidden(
                    "spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'"
                )
        case "RollingUpdate":
            yield from _rolling_update(rolling or {})
        case other:
            yield not_supported("spec.strategy.type", other, ("Recreate", "RollingUpdate"))


def _rolling_update(rolling: Object) -> Iterator[Cause]:
    field = "spec.strategy.rollingUpdate"
    bad = False
    for name in ("maxUnavailable", "maxSurge"):
        if wrong := _count_or_percent(rolling.get(name, 0)):
            bad = True
            yield invalid(f"{field}.{name}", rolling[name], wrong)
    unavailable = rolling.get("maxUnavailable", 0)
    if not bad and _is_zero(unavailable) and _is_zero(rolling.get("maxSurge", 0)):
        yield invalid(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
    if not bad and isinstance(unavailable, str) and int(unavailable[:-1]) > 100:
        yield invalid(f"{field}.maxUnavailable", unavailable, "must not be greater than 100%")


def _count_or_percent(value: Any) -> str:
    if isinstance(value, str):
        return "" if _PERCENT.fullmatch(value) else "a valid percent string must be a number followed by '%'"
    return "" if value >= 0 else "must be greater than or equal to 0"


def _is_zero(value: Any) -> bool:
    return int(str(value).removesuffix("%")) == 0
