"""Where ClusterIPs come from, as the API says: of an address there that no Service has, nobody answers for."""

import asyncio
import logging

from clusterip.client.api import Api
from clusterip.client.mirror import Watched
from clusterip.client.view import View
from clusterip.errors import ClusterIPError
from clusterip.model.objects import ServiceCIDR
from clusterip.model.resources import SERVICE_CIDRS
from clusterip.model.status import ApiError
from clusterip.services.addresses import canonical_range
from clusterip.services.table import Family

log = logging.getLogger(__name__)


_POLL = 1.0  # seconds between attempts to reach the API


async def watched(api: Api) -> tuple[Watched, ...]:
    """() where the API has no ServiceCIDRs (before Kubernetes 1.33), or does not let us read them. Waits for an API
    that does not answer: before it does there is nothing to write anyway."""
    while True:
        try:
            await api.list(SERVICE_CIDRS, ServiceCIDR)
        except ApiError as error:
            if error.code in (403, 404):
                log.warning("proxy.servicecidrs.unknown reason=%r", error.message)
                return ()
            log.warning("proxy.servicecidrs.waiting reason=%r", error.message)
        except ClusterIPError as error:
            log.warning("proxy.servicecidrs.waiting reason=%r", error.message)
        else:
            return (Watched(SERVICE_CIDRS, ServiceCIDR),)
        await asyncio.sleep(_POLL)


def known(view: View, family: Family) -> tuple[str, ...]:
    """Canonical, sorted, each once."""
    found = (canonical_range(text, family) for cidr in view.list(ServiceCIDR) for text in cidr.spec.cidrs)
    return tuple(sorted({text for text in found if text}))
