"""Rules for ServiceCIDR and IPAddress: conformance 2.4."""

from collections.abc import Iterator

from clusterip.model.causes import IMMUTABLE, invalid, required
from clusterip.model.status import Cause, Object
from clusterip.model.validation import addresses


def validate_service_cidr(obj: Object, old: Object | None) -> list[Cause]:
    cidrs = (obj.get("spec") or {}).get("cidrs") or []
    if old is not None:
        before = (old.get("spec") or {}).get("cidrs") or []
        # one range may be joined by one of the other family; anything else would strand addresses
        if cidrs != before and not (len(before) == 1 and len(cidrs) == 2 and cidrs[0] == before[0]):
            return [invalid("spec.cidrs", cidrs, IMMUTABLE)]
    return list(_cidrs(cidrs))


def _cidrs(cidrs: list[str]) -> Iterator[Cause]:
    if not cidrs:
        yield required("spec.cidrs", "at least one CIDR required")
    if len(cidrs) > 2:
        yield invalid("spec.cidrs", cidrs, "may only hold up to 2 values")
        return
    wrong_ones = [addresses.network(cidr) or _not_canonical(cidr) for cidr in cidrs]
    yield from (invalid(f"spec.cidrs[{i}]", cidrs[i], wrong) for i, wrong in enumerate(wrong_ones) if wrong)
    if len(cidrs) == 2 and addresses.family(cidrs[0]) == addresses.family(cidrs[1]):
        yield invalid("spec.cidrs", cidrs, "may specify no more than one CIDR for each IP family")


def _not_canonical(cidr: str) -> str:
    return addresses.canonical(cidr.partition("/")[0])


def validate_ip_address(obj: Object, old: Object | None) -> list[Cause]:
    parent = (obj.get("spec") or {}).get("parentRef")
    if old is not None:
        before = (old.get("spec") or {}).get("parentRef")
        return [] if parent == before else [invalid("spec.parentRef", parent, IMMUTABLE)]
    causes = []
    name = obj["metadata"].get("name") or ""
    if name and (wrong := addresses.canonical(name)):
        causes.append(invalid("metadata.name", name, wrong))
    if parent is None:
        return [*causes, required("spec.parentRef")]
    causes += [required(f"spec.parentRef.{part}") for part in ("resource", "name") if not parent.get(part)]
    return causes
