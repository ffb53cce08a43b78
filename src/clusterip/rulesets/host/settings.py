"""Settings of the kernel: `sysctl -a`, and lines of files below /sys and /proc."""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading, numbered


class Settings(Struct, frozen=True):
    """Files below /proc/sys by their name with dots ("net.ipv4.ip_forward"), others by their path."""

    values: Mapping[str, str]
    lines: Mapping[str, int] = {}

    def number(self, name: str) -> int | None:
        """None: not known."""
        text = self.values.get(name, "").split()
        return int(text[0]) if text and re.fullmatch(r"-?\d{1,19}", text[0]) else None


class HairpinMode(Struct, frozen=True):
    bridge: str
    port: str
    on: bool
    line: int = 0


_SETTING = re.compile(r"([\w./@:-]+?)\s*=\s*(.*)")
_FILE = re.compile(r"(/(?:sys|proc)/[^\s:]+)\s*[:= ]\s*(.*)")
_REFUSED = re.compile(r"sysctl: ")
_HAIRPIN = re.compile(r"(?:/sys)?(?:/.*)?/net/([^/]+)/brif/([^/]+)/hairpin_mode")
_HAIRPIN_OF_PORT = re.compile(r"(?:/sys)?/.*/net/([^/]+)/brport/hairpin_mode")


def read_settings(text: str, origin: Origin = INPUT) -> Reading[Settings]:
    """Lines "net.ipv4.ip_forward = 1", "/proc/sys/net/ipv4/ip_forward:1", "/sys/devices/.../hairpin_mode 0"."""
    problems = Problems(origin)
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in numbered(text.split("\n")):
        if _REFUSED.match(line):
            continue  # "permission denied on key ...": the setting is not known, and is not there
        matched = _FILE.fullmatch(line) or _SETTING.fullmatch(line)
        if matched is None:
            problems.unreadable(number, line)
            continue
        name = setting_name(matched[1])
        values[name] = matched[2].strip()
        lines[name] = origin.line + number
    return Reading(Settings(values, lines), len(values), problems.all())


def setting_name(path: str) -> str:
    """ "/proc/sys/net/ipv4/ip_forward" and "net/ipv4/ip_forward" -> "net.ipv4.ip_forward"."""
    if path.startswith("/proc/sys/"):
        path = path.removeprefix("/proc/sys/")
    elif path.startswith("/"):
        return path
    # sysctl writes either separator; in "net.ipv4.conf.eth0/100.rp_filter" the slash is a dot of the name.
    first = next((c for c in path if c in "./"), ".")
    return path if first == "." else "".join({"/": ".", ".": "/"}.get(c, c) for c in path)


def hairpin_modes(settings: Settings) -> Iterator[HairpinMode]:
    """Those of bridge ports, from files below /sys. The bridge is "" where only the port names itself."""
    for path, value in settings.values.items():
        at = settings.lines.get(path, 0)
        if matched := _HAIRPIN.fullmatch(path):
            yield HairpinMode(matched[1], matched[2], value == "1", at)
        elif matched := _HAIRPIN_OF_PORT.fullmatch(path):
            yield HairpinMode("", matched[1], value == "1", at)
