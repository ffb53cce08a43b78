"""What a document of each kind must satisfy: causes for what is wrong, warnings for what is unwise. Pure.

Run on defaulted documents, for Services after allocation. Names and fragments follow conformance 2.9.
"""

from collections.abc import Callable
from typing import TypeAlias

from clusterip.model import resources
from clusterip.model.resources import Resource
from clusterip.model.status import Cause, Object
from clusterip.model.validation import endpoints, meta, networking, nodes, pods, records, service, workloads
from clusterip.model.validation.warnings import warnings

__all__ = ["validate_create", "validate_update", "warnings"]

Check: TypeAlias = Callable[[Object, Object | None], list[Cause]]  # (new, old or None) -> what is wrong

_CHECKS: dict[Resource, Check] = {
    resources.SERVICES: service.validate,
    resources.ENDPOINT_SLICES: endpoints.validate_slice,
    resources.ENDPOINTS: endpoints.validate_endpoints,
    resources.PODS: pods.validate,
    resources.DEPLOYMENTS: workloads.validate_deployment,
    resources.REPLICA_SETS: workloads.validate_replica_set,
    resources.SERVICE_CIDRS: networking.validate_service_cidr,
    resources.IP_ADDRESSES: networking.validate_ip_address,
    resources.NODES: nodes.validate,
    resources.CONFIG_MAPS: records.validate_config_map,
    resources.LEASES: records.validate_lease,
    resources.EVENTS: records.validate_event,
    resources.NAMESPACES: records.validate_namespace,
}


def validate_create(resource: Resource, obj: Object) -> list[Cause]:
    return [*meta.validate_name(resource, obj), *meta.validate(obj), *_CHECKS[resource](obj, None)]


def validate_update(resource: Resource, new: Object, old: Object) -> list[Cause]:
    """`old` is what is stored: values that it already has may be kept even where new ones would be refused."""
    return [*meta.validate(new), *_CHECKS[resource](new, old)]
