"""How long ago, in kubectl's words: `5s`, `3m20s`, `4h`, `2d`."""

from datetime import UTC, datetime

UNKNOWN = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def since(timestamp: str | None, now: float) -> str:
    """`timestamp` as the API writes it; `now` in Unix seconds."""
    if not timestamp:
        return UNKNOWN
    try:
        return span(now - datetime.fromisoformat(timestamp).astimezone(UTC).timestamp())
    except ValueError:
        return UNKNOWN


def span(seconds: float) -> str:
    """The larger the span, the coarser: two units at most, and the second only where it still says something."""
    whole = int(seconds)
    if seconds <= -2:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 48 * _HOUR:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(seconds: int, large: int, large_sign: str, small: int, small_sign: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_sign}" + (f"{rest}{small_sign}" if rest else "")
