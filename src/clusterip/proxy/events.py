"""What the proxy tells people through Events on its Node and on Services."""

import logging
import secrets
from datetime import UTC, datetime

from clusterip.client.api import Api
from clusterip.errors import ClusterIPError
from clusterip.model.resources import EVENTS
from clusterip.model.status import Object
from clusterip.services.tracker import ServiceName

log = logging.getLogger(__name__)

COMPONENT = "kube-proxy"


class Events:
    """An Event that cannot be written is logged and forgotten: it must not disturb the proxy's work."""

    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._node = node

    async def on_node(self, reason: str, message: str = "", warning: bool = False) -> None:
        # By convention an Event about a node has the node's name where its uid would be.
        involved = {"kind": "Node", "name": self._node, "uid": self._node}
        await self._create("default", involved, (reason, message, warning))

    async def on_service(self, service: ServiceName, reason: str, message: str) -> None:
        involved = {"kind": "Service", "namespace": service.namespace, "name": service.name, "apiVersion": "v1"}
        await self._create(service.namespace, involved, (reason, message, True))

    async def _create(self, namespace: str, involved: Object, said: tuple[str, str, bool]) -> None:
        reason, message, warning = said
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{involved['name']}.{secrets.token_hex(8)}", "namespace": namespace},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "source": {"component": COMPONENT, "host": self._node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.create(EVENTS, namespace, event)
        except ClusterIPError as error:
            log.warning("proxy.event.lost reason=%s error=%r", reason, error.message)
