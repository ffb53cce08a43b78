"""Reads and writes of objects, on a store: optimistic concurrency, retries, the life of an object from `begin` to
`gone`. Knows nothing of HTTP.
"""

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from clusterip.apiserver import documents, lifecycle, refusals
from clusterip.apiserver.lifecycle import Stamp
from clusterip.apiserver.ranges import Ranges
from clusterip.apiserver.requests import DeleteQuery, ListQuery, Position, Target, namespace_of
from clusterip.apiserver.services import Claim, Services
from clusterip.errors import ClusterIPError
from clusterip.model import defaults, naming, selectors, validation
from clusterip.model.resources import IP_ADDRESSES, NAMESPACES, PODS, SERVICE_CIDRS, SERVICES, Resource
from clusterip.model.status import ApiError, Object
from clusterip.store.base import Check, Compacted, Conflict, Delete, Item, Page, Put, Store

PROTECTED = ("default", "kube-system", "kube-public", "kube-node-lease")
_ATTEMPTS = 32  # of a write that others keep overtaking; each has lost to a write that succeeded


@dataclass(frozen=True, slots=True)
class Listed:
    items: tuple[Item, ...]
    revision: int
    remaining: int
    token: str  # of the next page; "": there is none


@dataclass(frozen=True, slots=True)
class Written:
    item: Item
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deleted:
    item: Item  # as it was last, or as it is while something holds it
    gone: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection are meant."""

    labels: selectors.LabelSelector
    fields: selectors.FieldSelector

    @property
    def all(self) -> bool:
        return not self.labels.requirements and not self.fields.terms

    def matches(self, obj: Object) -> bool:
        return self.labels.matches(obj["metadata"].get("labels")) and self.fields.matches(obj)

    def matches_item(self, item: Item) -> bool:
        """Decodes no more than it has to."""
        if self.labels.requirements and not self.labels.matches(documents.head(item).metadata.labels):
            return False
        return not self.fields.terms or self.fields.matches(documents.decode(item))


def selection(query: ListQuery, resource: Resource) -> Selection:
    """Raises ApiError 400."""
    fields = selectors.parse_fields(query.field_selector, resource)
    return Selection(selectors.parse_labels(query.label_selector), fields)


@dataclass(frozen=True, slots=True)
class Registry:
    store: Store
    services: Services
    ranges: Ranges
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def stamp(self) -> Stamp:
        suffix = "".join(random.choices(naming.ALPHABET, k=naming.SUFFIX_LENGTH))  # noqa: S311  a name, no secret
        return Stamp(self.now(), str(uuid.uuid4()), suffix)

    async def get(self, target: Target) -> Item:
        item = await self.store.get(target.key)
        if item is None:
            raise refusals.not_found(target.resource, target.name)
        return item

    async def list(self, target: Target, query: ListQuery) -> Listed:
        wanted = selection(query, target.resource)
        revision, after = self._revision(query), query.position.after if query.position else ""
        name = wanted.fields.required("metadata.name")
        if name is not None and not revision and (target.namespace or not target.resource.namespaced):
            item = await self.store.get(f"{target.prefix}{name}")
            found = (item,) if item and wanted.matches_item(item) else ()
            return Listed(found, self.store.revision, 0, "")
        try:
            page = await self.store.list(
                target.prefix, revision=revision, after=after, limit=query.limit if wanted.all else 0
            )
        except Compacted as error:
            raise refusals.expired(error.revision, error.oldest) from error
        return _shown(page, wanted, query.limit)

    def _revision(self, query: ListQuery) -> int:
        """0: what is now."""
        newest = self.store.revision
        asked = query.position.revision if query.position else query.revision
        if asked > newest:
            # A page of a list that this store never gave, or a client that has read from a store with more history.
            raise refusals.expired(asked, newest) if query.position else refusals.too_new(asked, newest)
        return asked if query.position or query.exact else 0

    async def create(self, target: Target, obj: Object, *, dry_run: bool = False) -> Written:
        named = bool(obj["metadata"].get("name"))
        for _ in range(_ATTEMPTS):
            checks = await self._namespace(target, obj["metadata"].get("name", ""))
            claim = self._creation(target, obj, self.stamp())
            new = Target(target.resource, target.namespace, claim.obj["metadata"]["name"])
            try:
                item = await self._commit(new, None, claim, checks, dry_run=dry_run)
            except Conflict as conflict:
                if conflict.key == new.key and named:
                    raise refusals.already_exists(target.resource, new.name) from conflict
                self.services.learn(conflict)
                continue
            return Written(item, tuple(validation.warnings(target.resource, claim.obj, None)))
        raise refusals.unavailable(f"{target.resource.qualified}: others were faster {_ATTEMPTS} times in a row")

    def _creation(self, target: Target, obj: Object, stamp: Stamp) -> Claim:
        new: Object = {**obj, "metadata": dict(obj["metadata"])}
        lifecycle.begin(target, new, stamp)
        defaults.apply(target.resource, new)
        claim = self.services.claim(None, new, stamp) if target.resource is SERVICES else Claim(new)
        causes = validation.validate_create(target.resource, claim.obj)
        if causes:
            raise refusals.invalid(target.resource, new["metadata"]["name"], causes)
        return claim

    async def _namespace(self, target: Target, new_name: str) -> tuple[Check, ...]:
        """The namespace must be there, stay there until the commit, and not be going."""
        name = namespace_of(target)
        if not name:
            return ()
        item = await self.store.get(f"/{NAMESPACES.qualified}/{name}")
        if item is None:
            raise refusals.not_found(NAMESPACES, name)
        if documents.decode(item)["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            raise refusals.forbidden(target.resource, new_name, why)
        return (Check(item.key, item.revision),)

    async def update(self, target: Target, edit: Callable[[Object], Object], *, dry_run: bool = False) -> Written:
        """`edit` gives the new document for the one there is (its own copy), and is asked again when somebody was
        faster. A resourceVersion in the new document is a condition: then that is a Conflict."""
        for _ in range(_ATTEMPTS):
            item = await self.get(target)
            old = documents.decode(item)
            new = edit(documents.decode(item))
            if new["metadata"].get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
                raise refusals.modified(target.resource, target.name)
            claim = self._change(target, old, new)
            if lifecycle.same(claim.obj, old):
                return Written(item)
            warnings = tuple(validation.warnings(target.resource, claim.obj, old))
            try:
                if lifecycle.gone(target.resource, claim.obj) and not dry_run:
                    return Written(await self._remove(target, item, claim.obj), warnings)
                return Written(await self._commit(target, item, claim, (), dry_run=dry_run), warnings)
            except Conflict as conflict:
                self.services.learn(conflict)
        raise refusals.modified(target.resource, target.name)

    def _change(self, target: Target, old: Object, new: Object) -> Claim:
        resource = target.resource
        lifecycle.succeed(target, new, old)
        defaults.apply(resource, new)
        whole = resource is SERVICES and not target.subresource
        claim = self.services.claim(old, new, self.stamp()) if whole else Claim(new)
        lifecycle.number_generation(resource, claim.obj, old)
        causes = lifecycle.finalizer_causes(claim.obj, old)
        if target.subresource != "binding":  # which does what validation forbids everybody else
            causes += validation.validate_update(resource, claim.obj, old)
        if causes:
            raise refusals.invalid(resource, target.name, causes)
        return claim

    async def _commit(
        self, target: Target, old: Item | None, claim: Claim, checks: Sequence[Check], *, dry_run: bool
    ) -> Item:
        """Raises Conflict, with nothing taken. Between the claim's making and its taking nothing is awaited."""
        value = documents.value(claim.obj)
        if dry_run:
            there = await self.store.get(target.key)
            if there and not old:
                raise Conflict(target.key, there.revision)
            return Item(target.key, value, 0, old.revision if old else 0)
        self.services.take(claim)
        try:
            own = Check(target.key, old.revision if old else 0)
            revision = await self.store.commit((own, *checks, *claim.checks), (Put(target.key, value), *claim.writes))
        except ClusterIPError:
            # Not for a cancellation: the write may still happen. The repair loop frees what it leaves behind.
            self.services.undo(claim)
            raise
        self.services.settle(claim)
        await self._changed(target.resource, claim.obj, removed=False)
        return Item(target.key, value, old.created if old else revision, revision)

    async def delete(self, target: Target, query: DeleteQuery) -> Deleted:
        resource = target.resource
        for _ in range(_ATTEMPTS):
            item = await self.get(target)
            old = documents.decode(item)
            lifecycle.check_preconditions(resource, old, query)
            if resource is NAMESPACES and target.name in PROTECTED:
                raise refusals.forbidden(resource, target.name, "this namespace may not be deleted")
            ending = lifecycle.end(resource, old, query, self.stamp())
            try:
                if lifecycle.gone(resource, ending):
                    gone = item if query.dry_run else await self._remove(target, item, ending)
                    return Deleted(gone, True)
                if query.dry_run or lifecycle.same(ending, old):
                    return Deleted(item, False)
                return Deleted(await self._commit(target, item, Claim(ending), (), dry_run=False), False)
            except Conflict:
                continue
        raise refusals.modified(resource, target.name)

    async def _remove(self, target: Target, item: Item, last: Object) -> Item:
        """Raises Conflict. Gives the object as it was last, under the revision that it went with."""
        stored = documents.decode(item)  # what it holds is what was stored, whatever the last write wanted
        claim = self.services.give_up(stored) if target.resource is SERVICES else Claim(last)
        revision = await self.store.commit(
            (Check(target.key, item.revision), *claim.checks), (Delete(target.key), *claim.writes)
        )
        self.services.settle(claim)
        await self._changed(target.resource, last, removed=True)
        return Item(item.key, documents.value(last), item.created, revision)

    async def _changed(self, resource: Resource, obj: Object, *, removed: bool) -> None:
        """What the pools must know of writes that are not a Service's."""
        if resource is IP_ADDRESSES:
            await self.ranges.address_changed(obj, removed=removed)
        elif resource is SERVICE_CIDRS:
            await self.ranges.reread()

    async def delete_collection(self, target: Target, query: ListQuery, options: DeleteQuery) -> Listed:
        listed = await self.list(target, query)
        gone: list[Item] = []
        for item in listed.items:
            metadata = documents.head(item).metadata
            one = Target(target.resource, metadata.namespace, metadata.name)
            try:
                gone.append((await self.delete(one, options)).item)
            except ApiError as error:
                if error.code != 404:
                    raise
        return Listed(tuple(gone), self.store.revision, 0, "")

    async def bind(self, target: Target, node: str) -> None:
        """Gives a pod its node. Raises ApiError 409 if it has one."""

        def edit(pod: Object) -> Object:
            if pod["spec"].get("nodeName"):
                why = f"pod {target.name} is already assigned to node {pod['spec']['nodeName']!r}"
                raise refusals.conflict(PODS, target.name, why)
            if pod["metadata"].get("deletionTimestamp"):
                why = f"pod {target.name} is being deleted, cannot be assigned to a host"
                raise refusals.conflict(PODS, target.name, why)
            pod["spec"]["nodeName"] = node
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.stamp().time()}
            others = [c for c in pod.get("status", {}).get("conditions", ()) if c["type"] != "PodScheduled"]
            pod["status"] = {**pod.get("status", {}), "conditions": [*others, scheduled]}
            return pod

        await self.update(Target(PODS, target.namespace, target.name, "binding"), edit)


def _shown(page: Page, wanted: Selection, limit: int) -> Listed:
    """The items that are wanted, cut to `limit`, and where the next page begins."""
    if wanted.all:
        items, more, remaining = page.items, page.remaining > 0, page.remaining
    else:
        matching = [item for item in page.items if wanted.matches_item(item)]
        items = tuple(matching[:limit] if limit else matching)
        more, remaining = len(matching) > len(items), 0  # with selectors the API does not say how many are left
    token = Position(page.revision, items[-1].key).token() if more and items else ""
    return Listed(items, page.revision, remaining, token)
