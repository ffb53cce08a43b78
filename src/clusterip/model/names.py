"""What may be a name, a label, a port name. Each function gives what is wrong, or "" when nothing is.

Source: RFC 1123, RFC 6335 and the API's rules for labels and annotations.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

Rule: TypeAlias = Callable[[str], str]

_LABEL_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL_1123.pattern}(\.{_LABEL_1123.pattern})*")
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_ENV_NAME = re.compile(r"[ -<>-~]+")  # printable ASCII without "="


def dns_label(text: str) -> str:
    if len(text) > 63:
        return "must be no more than 63 bytes"
    if not _LABEL_1123.fullmatch(text):
        return "a DNS-1123 label is lower case letters, digits and '-', and begins and ends with a letter or digit"
    return ""


def dns_subdomain(text: str) -> str:
    if len(text) > 253:
        return "must be no more than 253 bytes"
    if not _SUBDOMAIN.fullmatch(text):
        return "a DNS-1123 subdomain is DNS labels of lower case letters, digits and '-', joined by '.'"
    return ""


def qualified_name(text: str) -> str:
    """A label key: `name` or `dns.prefix/name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and (not prefix or "/" in prefix or dns_subdomain(prefix)):
        return "the prefix before '/' must be a DNS-1123 subdomain"
    if not name:
        return "the name part must be non-empty"
    if len(name) > 63:
        return "the name part must be no more than 63 bytes"
    if not _NAME_PART.fullmatch(name):
        return "the name part is letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
    return ""


def label_value(text: str) -> str:
    if len(text) > 63:
        return "must be no more than 63 bytes"
    if text and not _NAME_PART.fullmatch(text):
        return "a valid label value is empty, or letters, digits, '-', '_', '.', with a letter or digit at both ends"
    return ""


def port_name(text: str) -> str:
    """An IANA service name, as `targetPort` and container ports use it."""
    if len(text) > 15:
        return "must be no more than 15 characters long"
    if not _PORT_NAME.fullmatch(text) or "--" in text:
        return "must be lower case letters, digits and single '-', beginning and ending with a letter or digit"
    if not any(c.isalpha() for c in text):
        return "must contain at least one letter (a-z)"
    return ""


def env_name(text: str) -> str:
    if not _ENV_NAME.fullmatch(text):
        return "must be printable ASCII characters other than '='"
    return ""
