"""Events are kept for an hour after they were last seen."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.apiserver.serving import NAMESPACE, Api

from clusterip.apiserver import events

EVENTS = f"{NAMESPACE}/events"


def event(name: str, **fields: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "a"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "R", **fields}


async def test_an_event_is_forgotten_an_hour_after_it_was_last_seen(api: Api) -> None:
    async def after(**passed: float) -> set[str]:
        moment = datetime.now(UTC) + timedelta(**passed)
        await events.forget(replace(api.parts.registry, now=lambda: moment))
        return {item["metadata"]["name"] for item in (await api.ok("GET", EVENTS))["items"]}

    soon = (datetime.now(UTC) + timedelta(minutes=30)).strftime("%Y-%m-%dT%H:%M:%S")
    for index in range(events._PAGE + 1):
        await api.ok("POST", EVENTS, event(f"once-{index}"))
    await api.ok("POST", EVENTS, event("again", lastTimestamp=f"{soon}Z"))
    again = {"eventTime": f"{soon}.000000Z", "action": "A", "reportingController": "c", "reportingInstance": "i"}
    await api.ok("POST", EVENTS, event("series", series={"count": 2, "lastObservedTime": f"{soon}.5Z"}, **again))
    assert len(await after(minutes=59)) == events._PAGE + 3
    assert await after(minutes=61) == {"again", "series"}
    assert await after(minutes=91) == set()
