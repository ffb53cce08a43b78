"""What an update of a Service keeps though the client left it out, and what it drops though the client left it in.

A client that never heard of an allocated field must not lose it, and a client that changes the type need not know
which fields go with the old type. Both only where the client did not touch the field itself.
"""

from copy import deepcopy

from clusterip.allocation.shape import (
    cluster_ips,
    external,
    needs_cluster_ip,
    needs_health_check_node_port,
    needs_node_ports,
    ports,
    service_type,
    spec,
)
from clusterip.model.status import Object


def carry(old: Object | None, new: Object) -> Object:
    """`new` (defaults filled in) with what is kept from `old` and without what went with the old type. Comes before
    families are inferred and addresses planned; `old` None: a creation."""
    service = deepcopy(new)
    service.setdefault("spec", {})
    if old is None:
        if spec(service).get("clusterIP") and not spec(service).get("clusterIPs"):
            service["spec"]["clusterIPs"] = [service["spec"]["clusterIP"]]
        return service
    _agree(old, service)
    _keep_addresses(old, service)
    _keep_ports(old, service)
    _drop(old, service)
    _drop_second_family(old, service)
    return service


def _agree(old: Object, service: Object) -> None:
    """clusterIP and clusterIPs[0] are one thing with two names: the one that was changed decides."""
    was, now = spec(old), spec(service)
    same_list = (was.get("clusterIPs") or []) == (now.get("clusterIPs") or [])
    same_one = (was.get("clusterIP") or "") == (now.get("clusterIP") or "")
    if same_list and not same_one:
        if not now.get("clusterIP"):
            now.pop("clusterIPs", None)
        else:
            now["clusterIPs"] = [now["clusterIP"], *(now.get("clusterIPs") or [])[1:]]
    elif same_one and now.get("clusterIP") and not now.get("clusterIPs"):
        now.pop("clusterIP", None)


def _keep_addresses(old: Object, service: Object) -> None:
    was, now = spec(old), spec(service)
    if not needs_cluster_ip(old) or not needs_cluster_ip(service):
        return
    if not now.get("clusterIP"):
        now["clusterIP"] = was.get("clusterIP") or ""
        now["clusterIPs"] = now.get("clusterIPs") or list(cluster_ips(old))
    elif not now.get("clusterIPs"):
        now["clusterIPs"] = list(cluster_ips(old)) if now["clusterIP"] == was.get("clusterIP") else [now["clusterIP"]]
    if not now.get("ipFamilyPolicy") and was.get("ipFamilyPolicy"):
        now["ipFamilyPolicy"] = was["ipFamilyPolicy"]
    if not now.get("ipFamilies") and was.get("ipFamilies"):
        now["ipFamilies"] = list(was["ipFamilies"])


def _keep_ports(old: Object, service: Object) -> None:
    was, now = spec(old), spec(service)
    if needs_node_ports(old) and needs_node_ports(service):
        used = {port.get("nodePort") for port in ports(service)}
        by_name = {port.get("name") or "": port.get("nodePort") or 0 for port in ports(old)}
        for port in ports(service):
            kept = by_name.get(port.get("name") or "", 0)
            if not port.get("nodePort") and kept and kept not in used:
                port["nodePort"] = kept
                used.add(kept)
    if needs_health_check_node_port(old) and needs_health_check_node_port(service):
        kept = was.get("healthCheckNodePort") or 0
        if kept and not now.get("healthCheckNodePort"):
            now["healthCheckNodePort"] = kept


def _drop(old: Object, service: Object) -> None:
    """A field that goes with the old type, unless the client changed it: then validation has something to say."""
    now = spec(service)
    if needs_cluster_ip(old) and not needs_cluster_ip(service):
        if _same(old, service, "clusterIP") and _same(old, service, "clusterIPs"):
            now.pop("clusterIP", None)
            now.pop("clusterIPs", None)
        _drop_unchanged(old, service, "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")
    if needs_node_ports(old) and not needs_node_ports(service):
        held = {port.get("nodePort") or 0 for port in ports(old)}
        if all((port.get("nodePort") or 0) in held | {0} for port in ports(service)):
            for port in ports(service):
                port.pop("nodePort", None)
    if needs_health_check_node_port(old) and not needs_health_check_node_port(service):
        _drop_unchanged(old, service, "healthCheckNodePort")
    if external(old) and not external(service):
        _drop_unchanged(old, service, "externalTrafficPolicy")
    if service_type(old) == "LoadBalancer" != service_type(service):
        _drop_unchanged(old, service, "allocateLoadBalancerNodePorts", "loadBalancerClass")
        status = service.get("status")
        if isinstance(status, dict) and "loadBalancer" in status:
            status["loadBalancer"] = {}


def _drop_second_family(old: Object, service: Object) -> None:
    """Two families before, SingleStack now: where a list is as it was, its second goes."""
    now = spec(service)
    if not needs_cluster_ip(old) or not needs_cluster_ip(service) or now.get("ipFamilyPolicy") != "SingleStack":
        return
    for field in ("clusterIPs", "ipFamilies"):
        if len(now.get(field) or []) == 2 and _same(old, service, field):
            now[field] = now[field][:1]


def _same(old: Object, service: Object, field: str) -> bool:
    return (spec(old).get(field) or None) == (spec(service).get(field) or None)


def _drop_unchanged(old: Object, service: Object, *fields: str) -> None:
    for field in fields:
        if field in spec(service) and _same(old, service, field):
            del spec(service)[field]
