"""Moments as the API writes them. Pure: the clock is read by the loop."""

from datetime import UTC, datetime


def seconds(text: str | None) -> float:
    """RFC 3339 to seconds since the epoch; 0.0 for none and for what cannot be read."""
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def rfc3339(moment: float) -> str:
    """Whole seconds, UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
