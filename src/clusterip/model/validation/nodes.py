"""Rules for nodes."""

from collections.abc import Iterator

from clusterip.model import names
from clusterip.model.causes import duplicate, forbidden, invalid, not_supported, required
from clusterip.model.status import Cause, Object
from clusterip.model.validation import addresses

_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")


def validate(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = [*_pod_cidrs(spec), *_taints(spec.get("taints") or [])]
    before = ((old or {}).get("spec") or {}).get("podCIDRs")
    if before and spec.get("podCIDRs") != before:
        causes.append(forbidden("spec.podCIDRs", "node updates may not change podCIDR once it is set"))
    return causes


def _pod_cidrs(spec: Object) -> Iterator[Cause]:
    several, single = spec.get("podCIDRs") or [], spec.get("podCIDR")
    if single and several and several[0] != single:
        yield invalid("spec.podCIDRs", several, "first value must match `podCIDR`")
    if len(several) > 2 or (len(several) == 2 and addresses.family(several[0]) == addresses.family(several[1])):
        yield invalid("spec.podCIDRs", several, "may specify no more than one CIDR for each IP family")
    for index, one in enumerate(several):
        if wrong := addresses.network(one):
            yield invalid(f"spec.podCIDRs[{index}]", one, wrong)


def _taints(taints: list[Object]) -> Iterator[Cause]:
    seen = set()
    for index, taint in enumerate(taints):
        field, key, effect = f"spec.taints[{index}]", taint.get("key") or "", taint.get("effect") or ""
        if wrong := names.qualified_name(key):
            yield invalid(f"{field}.key", key, wrong)
        if wrong := names.label_value(taint.get("value") or ""):
            yield invalid(f"{field}.value", taint["value"], wrong)
        if not effect:
            yield required(f"{field}.effect")
        elif effect not in _EFFECTS:
            yield not_supported(f"{field}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            yield duplicate(field, taint)
        seen.add((key, effect))
