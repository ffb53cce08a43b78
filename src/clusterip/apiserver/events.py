"""Events that the API server itself has to tell of an object."""

from clusterip.apiserver.registry import Registry
from clusterip.apiserver.requests import Target
from clusterip.model.resources import EVENTS
from clusterip.model.status import Object


async def warn(registry: Registry, about: Object, reason: str, message: str) -> None:
    """A Warning event on an object, counted up if it was said before."""
    metadata = about["metadata"]
    namespace = metadata.get("namespace") or "default"
    now = registry.stamp().time()
    name = f"{metadata['name'].replace(':', '-')}.{reason.lower()}"
    target = Target(EVENTS, namespace, name)

    def again(old: Object) -> Object:
        return {**old, "message": message, "count": old.get("count", 1) + 1, "lastTimestamp": now}

    if await registry.store.get(target.key):
        await registry.update(target, again)
        return
    involved = {
        "kind": about["kind"],
        "apiVersion": about["apiVersion"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **({"namespace": metadata["namespace"]} if metadata.get("namespace") else {}),
    }
    event = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "apiserver"},
    }
    await registry.create(Target(EVENTS, namespace), event)
