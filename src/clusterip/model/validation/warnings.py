"""What is accepted but should be said: texts for `Warning: 299` headers, which kubectl prints."""

import ipaddress
from collections.abc import Iterator

from clusterip.model import resources
from clusterip.model.resources import Resource
from clusterip.model.service_update import is_headless
from clusterip.model.status import Object
from clusterip.model.validation.addresses import parse
from clusterip.model.validation.service import TOPOLOGY_HINTS, TOPOLOGY_MODE


def warnings(resource: Resource, new: Object, old: Object | None) -> list[str]:
    """`old` None on creation. On update most are repeated only for what changed."""
    if resource is resources.SERVICES:
        return [*_service(new), *_addresses(new, old)]
    if resource is resources.ENDPOINT_SLICES:
        return list(_slice(new, old))
    if resource is resources.ENDPOINTS:
        return ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]
    return []


def _service(obj: Object) -> Iterator[str]:
    spec = obj.get("spec") or {}
    if TOPOLOGY_HINTS in (obj["metadata"].get("annotations") or {}):
        yield f"annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"
    if is_headless(spec):
        for name in ("loadBalancerIP", "externalIPs", "sessionAffinity"):
            if spec.get(name) not in (None, "", [], "None"):
                yield f"spec.{name} is ignored for headless services"
    elif spec.get("externalIPs"):
        if spec.get("type") == "ExternalName":
            yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
        else:
            yield "spec.externalIPs is deprecated: whoever may set it can take over any address"
    if spec.get("externalName") and spec.get("type") != "ExternalName":
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield "spec.trafficDistribution: PreferClose is deprecated, please use PreferSameZone instead"


def _addresses(new: Object, old: Object | None) -> Iterator[str]:
    """Addresses and ranges that are valid, yet not as the API itself would write them."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    for name in ("clusterIPs", "externalIPs", "loadBalancerSourceRanges"):
        if spec.get(name) == before.get(name):
            continue
        for index, text in enumerate(spec.get(name) or ()):
            if better := _canonical(text):
                yield f"spec.{name}[{index}]: should be written as {better!r}, not {text!r}"
    balancer = spec.get("loadBalancerIP")
    if balancer and balancer != before.get("loadBalancerIP") and (better := _canonical(balancer)):
        yield f"spec.loadBalancerIP: should be written as {better!r}, not {balancer!r}"


def _slice(new: Object, old: Object | None) -> Iterator[str]:
    if new.get("addressType") == "FQDN" and old is None:
        yield "FQDN endpoints are deprecated"


def _canonical(text: str) -> str:
    """How it should be written; "" when it is so already, or is no address at all."""
    base, slash, _ = text.strip().partition("/")
    parsed = parse(base)
    if parsed is None:
        return ""
    try:
        better = str(ipaddress.ip_network(text.strip(), strict=False)) if slash else str(parsed)
    except ValueError:
        return ""
    return better if better != text.strip() else ""
