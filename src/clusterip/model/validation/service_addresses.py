"""Rules for a Service's addresses and families: what they may be, and what of them may change."""

from collections.abc import Iterator

from clusterip.model.causes import FIXED, duplicate, forbidden, invalid, not_supported, required
from clusterip.model.service_update import HEADLESS, PREFER, REQUIRE, SINGLE, is_headless
from clusterip.model.status import Cause, Object
from clusterip.model.validation import addresses

FAMILIES = ("IPv4", "IPv6")
_EXTERNAL_NAME = "may not be set for ExternalName services"


def validate(spec: Object, before: Object) -> Iterator[Cause]:
    if spec.get("type") == "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(name):
                yield forbidden(f"spec.{name}", _EXTERNAL_NAME)
    else:
        yield from _cluster_ips(spec, before)
        yield from _families(spec)
    kept = frozenset(before.get("externalIPs") or ())
    for index, one in enumerate(spec.get("externalIPs") or ()):
        if wrong := addresses.ordinary(one, kept):
            yield invalid(f"spec.externalIPs[{index}]", one, wrong)
    if before and "ExternalName" not in (spec.get("type"), before.get("type")):
        yield from _unchanged(spec, before)


def _cluster_ips(spec: Object, before: Object) -> Iterator[Cause]:
    single, several = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    field = "spec.clusterIPs"
    if several and not single:
        yield invalid(field, several, "must be empty when `clusterIP` is not specified")
    elif single and not several:
        yield required(field)
    elif single and several[0] != single:
        yield invalid(field, several, "first value must match `clusterIP`")
    if len(several) > 2:
        yield invalid(field, several, "may only hold up to 2 values")
    if HEADLESS in several and len(several) > 1:
        yield invalid(field, several, "'None' must be the first and only value")
        return
    kept = frozenset(before.get("clusterIPs") or ())
    wrong_ones = [(index, one, addresses.address(one, kept)) for index, one in enumerate(several) if one != HEADLESS]
    yield from (invalid(f"{field}[{index}]", one, wrong) for index, one, wrong in wrong_ones if wrong)
    if len(several) == 2 and addresses.family(several[0]) == addresses.family(several[1]):
        yield invalid(field, several, "may specify no more than one IP for each IP family")


def _families(spec: Object) -> Iterator[Cause]:
    families = spec.get("ipFamilies") or []
    if len(families) > 2:
        yield invalid("spec.ipFamilies", families, "may only hold up to 2 values")
    for index, family in enumerate(families):
        if family not in FAMILIES:
            yield not_supported(f"spec.ipFamilies[{index}]", family, FAMILIES)
        elif family in families[:index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in (SINGLE, PREFER, REQUIRE):
        yield not_supported("spec.ipFamilyPolicy", policy, (PREFER, REQUIRE, SINGLE))
    for index, (family, address) in enumerate(zip(families, spec.get("clusterIPs") or (), strict=False)):
        if addresses.parse(address) and family in FAMILIES and addresses.family(address) != family:
            why = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            yield invalid(f"spec.clusterIPs[{index}]", address, why)


def _unchanged(spec: Object, before: Object) -> Iterator[Cause]:
    """A second entry may come and go; what is there does not change. Headless Services may change families."""
    if is_headless(spec) and is_headless(before):
        return
    for name in ("clusterIPs", "ipFamilies"):
        new, old = spec.get(name) or [], before.get(name) or []
        if old and not new:
            yield invalid(f"spec.{name}[0]", None, f"the primary of `{name}` can not be unset: {FIXED}")
            continue
        for index, (now, was) in enumerate(zip(new, old, strict=False)):
            if now != was:
                yield invalid(f"spec.{name}[{index}]", now, FIXED)
        if len(old) == 2 and len(new) == 1 and spec.get("ipFamilyPolicy") != SINGLE:
            why = f"must be set to '{SINGLE}' when releasing the secondary of `{name}`"
            yield invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why)
