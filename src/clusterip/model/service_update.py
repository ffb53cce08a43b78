"""What happens to a Service between the client's document and the allocator.

`carry_over` keeps what the server once chose and the client left out, and drops what the new type has no use for.
`infer_families` settles ipFamilyPolicy and ipFamilies, so that the allocator knows how many addresses of which family
are wanted. Both work in place on a defaulted document; validation comes after allocation. Source: conformance 2.6, 2.8.
"""

from collections.abc import Callable, Sequence

from clusterip.model.causes import invalid
from clusterip.model.defaults import externally_accessible
from clusterip.model.status import Cause, Object

HEADLESS = "None"
SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"


def needs_cluster_ip(spec: Object) -> bool:
    return spec.get("type") in ("ClusterIP", "NodePort", "LoadBalancer")


def needs_node_ports(spec: Object) -> bool:
    """Whether each port has a node port: chosen by us where the client names none."""
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts", True) is not False
    return spec.get("type") == "NodePort"


def may_have_node_ports(spec: Object) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def needs_health_check_port(spec: Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def is_headless(spec: Object) -> bool:
    return spec.get("clusterIP") == HEADLESS or HEADLESS in (spec.get("clusterIPs") or ())


def family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


# --- sticky fields ---------------------------------------------------------------------------------------------


def carry_over(new: Object, old: Object | None) -> None:
    """Completes `new` from `old`; with `old` None (a creation) only clusterIPs follows clusterIP."""
    spec = new.setdefault("spec", {})
    if old is None:
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        return
    before = old.get("spec") or {}
    _drop_what_the_type_lost(new, spec, old, before)
    if needs_cluster_ip(spec) and needs_cluster_ip(before):
        _keep_addresses(spec, before)
    _follow_singular(spec, before)
    if may_have_node_ports(spec) and may_have_node_ports(before):
        _keep_node_ports(spec, before)
    if needs_health_check_port(spec) and needs_health_check_port(before) and not spec.get("healthCheckNodePort"):
        _copy(spec, before, "healthCheckNodePort")


def _drop_what_the_type_lost(new: Object, spec: Object, old: Object, before: Object) -> None:
    """Fields the new type cannot have go, if the client left them as they were; if not, validation speaks up."""

    def lost(needed: Callable[[Object], bool]) -> bool:
        return needed(before) and not needed(spec)

    if lost(needs_cluster_ip):
        if _same(spec, before, "clusterIPs"):
            _drop(spec, "clusterIP", "clusterIPs")
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if _same(spec, before, name):
                _drop(spec, name)
    if lost(may_have_node_ports) and _node_ports(spec) == _node_ports(before):
        for port in spec.get("ports") or ():
            _drop(port, "nodePort")
    if lost(needs_health_check_port) and _same(spec, before, "healthCheckNodePort"):
        _drop(spec, "healthCheckNodePort")
    if before.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if _same(spec, before, name):
                _drop(spec, name)
        if (new.get("status") or {}) == (old.get("status") or {}):
            new["status"] = {"loadBalancer": {}}
    if lost(externally_accessible) and _same(spec, before, "externalTrafficPolicy"):
        _drop(spec, "externalTrafficPolicy")


def _keep_addresses(spec: Object, before: Object) -> None:
    if not spec.get("clusterIP") and not spec.get("clusterIPs"):
        _copy(spec, before, "clusterIP", "clusterIPs")
    elif not spec.get("clusterIP") and spec["clusterIPs"][0] == (before.get("clusterIPs") or [""])[0]:
        _copy(spec, before, "clusterIP")
    elif not spec.get("clusterIPs") and _same(spec, before, "clusterIP"):
        _copy(spec, before, "clusterIPs")


def _follow_singular(spec: Object, before: Object) -> None:
    """Clients that know only `clusterIP` change it alone: the list, left as it was, follows."""
    changed = not _same(spec, before, "clusterIP")
    if spec.get("clusterIP") and changed and _same(spec, before, "clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _keep_node_ports(spec: Object, before: Object) -> None:
    """By port name; a number that the new document still uses is not given to a second port."""
    taken = _node_ports(spec) & _node_ports(before)
    by_name = {port.get("name") or "": port.get("nodePort") for port in before.get("ports") or ()}
    for port in spec.get("ports") or ():
        known = by_name.get(port.get("name") or "")
        if not port.get("nodePort") and known and known not in taken:
            port["nodePort"] = known
            taken.add(known)


def _node_ports(spec: Object) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}


# --- address families ------------------------------------------------------------------------------------------


def infer_families(obj: Object, old: Object | None, cluster_families: Sequence[str]) -> list[Cause]:
    """Settles policy and families. `cluster_families`: what the cluster has ranges for, the primary first."""
    spec = obj["spec"]
    before = (old or {}).get("spec") or {}
    if not needs_cluster_ip(spec):
        return []
    if needs_cluster_ip(before):
        for name in ("ipFamilyPolicy", "ipFamilies"):
            if not spec.get(name):
                _copy(spec, before, name)
        if _untouched_preference(spec, before):
            return []
        _shrink(spec, before)
    if causes := _too_many_for_single(spec) or _unexplained_removal(spec, before):
        return causes
    if causes := _families_from_addresses(spec, cluster_families):
        return causes
    if is_headless(spec) and not spec.get("selector"):
        _selectorless_families(spec, cluster_families)
        return []
    return _complete(spec, cluster_families)


def _untouched_preference(spec: Object, before: Object) -> bool:
    """A cluster that became dual-stack does not change Services that merely prefer it, until somebody edits them."""
    same = all(_same(spec, before, name) for name in ("ipFamilyPolicy", "ipFamilies", "clusterIPs"))
    return spec.get("ipFamilyPolicy") == PREFER and bool(spec.get("clusterIPs")) and same


def _shrink(spec: Object, before: Object) -> None:
    """From two families to SingleStack: lists left as they were lose their second entry."""
    if spec.get("ipFamilyPolicy") != SINGLE or before.get("ipFamilyPolicy") == SINGLE:
        return
    for name in ("clusterIPs", "ipFamilies"):
        if len(spec.get(name) or ()) == 2 and _same(spec, before, name):
            spec[name] = spec[name][:1]


def _too_many_for_single(spec: Object) -> list[Cause]:
    if spec.get("ipFamilyPolicy") not in (None, SINGLE):
        return []
    if is_headless(spec) and not spec.get("selector") and not spec.get("ipFamilyPolicy"):
        return []
    for name in ("ipFamilies", "clusterIPs"):
        if len(spec.get(name) or ()) == 2:
            return [_policy_cause(spec, f"must be {PREFER!r} or {REQUIRE!r} when two {name!r} are given")]
    return []


def _unexplained_removal(spec: Object, before: Object) -> list[Cause]:
    """The second address or family is given up by saying SingleStack, not by leaving it out."""
    if spec.get("ipFamilyPolicy") == SINGLE or not needs_cluster_ip(before) or is_headless(before):
        return []
    for name in ("clusterIPs", "ipFamilies"):
        if len(before.get(name) or ()) == 2 and len(spec.get(name) or ()) == 1:
            return [_policy_cause(spec, f"must be {SINGLE!r} to release the secondary of {name!r}")]
    return []


def _families_from_addresses(spec: Object, cluster: Sequence[str]) -> list[Cause]:
    """Addresses the client asks for say which families it means."""
    families = list(spec.get("ipFamilies") or ())
    causes = []
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        if address in (HEADLESS, "") or index >= 2:
            break
        if index < len(families):
            continue
        family = family_of(address)
        if family not in cluster:
            causes.append(invalid(f"spec.clusterIPs[{index}]", address, f"{family} is not configured on this cluster"))
        families.append(family)
    if families:
        spec["ipFamilies"] = families
    return causes


def _selectorless_families(spec: Object, cluster: Sequence[str]) -> None:
    """Nobody but the user knows the endpoints of a headless Service without selector: both families may come."""
    policy = spec.setdefault("ipFamilyPolicy", REQUIRE)
    families = spec.setdefault("ipFamilies", [cluster[0]])
    if policy != SINGLE and len(families) == 1:
        families.append(_other(families[0]))


def _complete(spec: Object, cluster: Sequence[str]) -> list[Cause]:
    policy = spec.setdefault("ipFamilyPolicy", SINGLE)
    if policy == REQUIRE and len(cluster) < 2:
        return [_policy_cause(spec, "this cluster is not configured for dual-stack services")]
    families = spec.setdefault("ipFamilies", [cluster[0]])
    causes = [
        invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
        for index, family in enumerate(families)
        if family in ("IPv4", "IPv6") and family not in cluster
    ]
    if not causes and policy in (PREFER, REQUIRE) and len(families) == 1 and len(cluster) == 2:
        families.append(_other(families[0]))
    return causes


def _other(family: str) -> str:
    return "IPv4" if family == "IPv6" else "IPv6"


def _policy_cause(spec: Object, why: str) -> Cause:
    return invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why)


# --- fields of two documents -----------------------------------------------------------------------------------


def _same(spec: Object, before: Object, name: str) -> bool:
    """Absent and empty are the same."""
    return bool((spec.get(name) or None) == (before.get(name) or None))


def _copy(spec: Object, before: Object, *names: str) -> None:
    for name in names:
        if name in before:
            value = before[name]
            spec[name] = list(value) if isinstance(value, list) else value


def _drop(owner: Object, *names: str) -> None:
    for name in names:
        owner.pop(name, None)
