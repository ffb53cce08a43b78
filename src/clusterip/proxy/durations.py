"""Durations as Go writes them: "30s", "1h0m0s", "1.5h", "250ms"."""

import re

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TERM = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?(?:{_TERM.pattern})+")


class Duration(float):
    """Seconds; `str` gives Go's text."""

    def __str__(self) -> str:
        return text(self)


def parse(words: str) -> Duration:
    """Raises ValueError."""
    if words in ("0", "+0", "-0"):
        return Duration(0)
    if not _WHOLE.fullmatch(words):
        raise ValueError(f"{words!r} is not a duration: write a number and a unit, such as 30s, 1m30s or 250ms")
    nanoseconds = sum(float(number) * _UNITS[unit] for number, unit in _TERM.findall(words))
    return Duration((-nanoseconds if words.startswith("-") else nanoseconds) / 10**9)


def text(seconds: float) -> str:
    nanoseconds = round(abs(seconds) * 10**9)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < 10**9:
        unit = "ms" if nanoseconds >= 10**6 else "µs" if nanoseconds >= 1_000 else "ns"
        return f"{sign}{_number(nanoseconds, _UNITS[unit])}{unit}"
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    parts = f"{_number(rest, 10**9)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{parts}"
    return f"{sign}{minutes}m{parts}" if minutes else f"{sign}{parts}"


def _number(amount: int, unit: int) -> str:
    """amount / unit without a tail of zeros, exactly: units are powers of ten."""
    whole, rest = divmod(amount, unit)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1)}".rstrip("0") if rest else str(whole)
