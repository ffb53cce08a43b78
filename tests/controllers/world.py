"""A cluster in a dictionary: holds documents, does controllers' writes as an API server would, and shows the result to
the next plan at once. No network, no time."""

import copy
import itertools
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from tests.client.fake_apiserver import merged

from clusterip.client.view import Change, Ref, View
from clusterip.controllers.lookup import Lookup
from clusterip.controllers.loop import Controller
from clusterip.controllers.writes import Bind, Create, Delete, Key, Patch, Update, Write
from clusterip.model import objects
from clusterip.model.objects import Value
from clusterip.model.resources import NODES, PODS, RESOURCES, SERVICES, Resource
from clusterip.model.status import Object

T = TypeVar("T", bound=Value)
NOW = 1_700_000_000.0
ZONE = "topology.kubernetes.io/zone"
TYPES: dict[Resource, type[Value]] = {r: getattr(objects, r.kind) for r in RESOURCES}


class World:
    def __init__(self) -> None:
        self.documents: dict[tuple[Resource, str, str], Object] = {}
        self.lookup = Lookup(View())
        self.now = NOW
        self.log: list[Write] = []
        self._numbers = itertools.count(1)
        self.controllers: list[Controller] = []
        self._due: dict[tuple[Controller, Key], None] = {}

    def follow(self, *controllers: Controller) -> "World":
        self.controllers.extend(controllers)
        return self

    def put(self, resource: Resource, document: Object) -> Object:
        document = msgspec.json.decode(msgspec.json.encode(document))  # over the wire and back
        meta = document.setdefault("metadata", {})
        if not meta.get("name"):
            meta["name"] = f"{meta['generateName']}{next(self._numbers):05d}"
        key = (resource, meta.get("namespace", ""), meta["name"])
        old = self.documents.get(key)
        meta.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{resource.plural}-{next(self._numbers)}")
        meta.setdefault("creationTimestamp", "2023-11-14T22:00:00Z")
        meta["generation"] = _generation(old, document)
        meta["resourceVersion"] = str(next(self._numbers))
        self.documents[key] = document
        value = msgspec.json.decode(msgspec.json.encode(document), type=TYPES[resource])
        self._tell(Ref(resource.kind, *key[1:]), Change(self.lookup.view.put(value), value))
        return document

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        del self.documents[resource, namespace, name]
        before = self.lookup.view.remove(TYPES[resource], namespace, name)
        self._tell(Ref(resource.kind, namespace, name), Change(before, None))

    def patch(self, resource: Resource, namespace: str, name: str, patch: Object) -> Object:
        return self.put(resource, merged(self.documents[resource, namespace, name], patch))

    def all(self, as_type: type[T]) -> list[T]:
        return sorted(self.lookup.view.list(as_type), key=lambda value: value.metadata.name)  # type: ignore[attr-defined]

    def settle(self, rounds: int = 200) -> list[Write]:
        """Plans and writes until nobody wants anything; returns what was written."""
        written: list[Write] = []
        for _ in range(rounds):
            if not self._due:
                return written
            controller, key = next(iter(self._due))
            del self._due[controller, key]
            plan = controller.plan(self.lookup, key, self.now)
            written.extend(plan.writes)
            self.do(plan.writes)
        raise AssertionError(f"no end after {rounds} rounds: {written[-3:]}")

    def due(self, controller: Controller, key: Key) -> None:
        """As when time has come for it."""
        self._due[controller, key] = None

    def do(self, writes: Iterable[Write]) -> None:
        for write in writes:
            self.log.append(write)
            match write:
                case Create():
                    document = copy.deepcopy(write.object)
                    document.setdefault("metadata", {})
                    if write.namespace:
                        document["metadata"]["namespace"] = write.namespace
                    self.put(write.resource, document)
                case Update():
                    self.put(write.resource, write.object)
                case Patch():
                    patch = {"status": write.patch["status"]} if write.subresource == "status" else write.patch
                    self.patch(write.resource, write.namespace, write.name, patch)
                    self._end(write.resource, write.namespace, write.name)
                case Bind():
                    self.patch(PODS, write.namespace, write.name, {"spec": {"nodeName": write.node}})
                case Delete():
                    self._delete(write)

    def _delete(self, write: Delete) -> None:
        key = (write.resource, write.namespace, write.name)
        document = self.documents.get(key)
        if document is None or document["metadata"]["uid"] != write.uid:
            return
        if write.propagation == "Foreground":
            document["metadata"].setdefault("finalizers", []).append("foregroundDeletion")
        self.patch(*key, {"metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z"}})
        self._end(*key)

    def _end(self, resource: Resource, namespace: str, name: str) -> None:
        meta = self.documents[resource, namespace, name]["metadata"]
        spec = self.documents[resource, namespace, name].get("spec") or {}
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and not spec.get("finalizers"):
            self.remove(resource, namespace, name)

    def _tell(self, ref: Ref, change: Change) -> None:
        self.lookup.note(ref, change)
        for controller in self.controllers:
            for key in controller.keys(ref, change, self.lookup):
                self._due[controller, key] = None

    # --- what the tests fill it with

    def node(self, name: str, zone: str = "", *, ready: bool = True, **spec: Any) -> None:
        self.put(
            NODES,
            {
                "metadata": {"name": name, "labels": {ZONE: zone} if zone else {}},
                "spec": spec,
                "status": {
                    "conditions": [{"type": "Ready", "status": str(ready)}],
                    "allocatable": {"cpu": "4"},
                },
            },
        )

    def service(self, name: str = "web", ports: list[Object] | None = None, **spec: Any) -> Object:
        meta = spec.pop("metadata", {})
        full = {"selector": {"app": name}, "clusterIP": "10.96.0.10", "ipFamilies": ["IPv4"], **spec}
        full["ports"] = [{"port": 80, "targetPort": 8080, "protocol": "TCP"}] if ports is None else ports
        return self.put(SERVICES, {"metadata": {"name": name, "namespace": "default", **meta}, "spec": full})

    def pod(self, name: str, ip: str = "", *, ready: bool = True, **over: Any) -> Object:
        labels = over.pop("labels", {"app": "web"})
        document = {
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c"}]},
            "status": {
                "phase": "Running",
                "podIP": ip,
                "podIPs": [{"ip": ip}] if ip else [],
                "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2023-11-14T22:10:00Z"}],
            },
        }
        return self.put(PODS, merged(document, over))


def _generation(old: Object | None, new: Object) -> int:
    if old is None:
        return 1
    before: int = old["metadata"]["generation"]
    return before + (old.get("spec") != new.get("spec"))
