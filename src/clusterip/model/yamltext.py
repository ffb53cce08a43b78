"""YAML as kubectl and the API server read it (Go's yaml, then JSON), which is not what PyYAML's loaders do:
`0777` is 511, `on` is true, `1e3` is the number 1000, `12:30:45` and `2026-01-02` stay strings, keys become strings.

PyYAML's C parser makes the nodes; the values are made here, so that keys given twice and documents that would
unfold without bound are noticed.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clusterip.errors import BadInput

_BOOLS = {
    spelling: value
    for words, value in (("y yes true on", True), ("n no false off", False))
    for word in words.split()
    for spelling in (word, word.capitalize(), word.upper())
}
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_INT = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][+-]?[0-9]+)?")
_NO_JSON = re.compile(r"[+-]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"
_MOST_NODES = 2_000_000  # a document that unfolds to more through its aliases is an attack, not a manifest


@dataclass(frozen=True, slots=True)
class Document:
    value: Any  # what JSON could say
    duplicates: tuple[str, ...]  # paths of keys given more than once; the last one counts


def documents(text: bytes | str) -> Iterator[Document]:
    """Each document of a stream; empty ones have value None. Raises BadInput, saying where."""
    try:
        aliases = "*" in text if isinstance(text, str) else b"*" in text
        for node in yaml.compose_all(text, Loader=_Loader):
            if aliases and node and _size(node, {}) > _MOST_NODES:
                raise BadInput("YAML: its aliases unfold to too much")
            unfolding = _Unfolding()
            value = unfolding.value(node, "") if node else None
            yield Document(value, tuple(unfolding.duplicates))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise BadInput(f"YAML: {where}{error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise BadInput(f"YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise BadInput("YAML: nested too deeply, or an alias contains itself") from error


class _Loader(yaml.CSafeLoader):
    """Only the choice of a plain scalar's tag differs from PyYAML's."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and implicit[0]:
            return _TAG + _plain_kind(value)
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]  # types-PyYAML leaves it bare


def _plain_kind(text: str) -> str:
    if text in _NULLS:
        return "null"
    if text in _BOOLS:
        return "bool"
    if text == "<<":
        return "merge"
    digits = text.replace("_", "") if text[0] in "+-.0123456789" else text
    if _INT.fullmatch(digits):
        return "int"
    if _NO_JSON.fullmatch(text):
        return "float"
    return "float" if _FLOAT.fullmatch(digits) and math.isfinite(float(digits)) else "str"


def _integer(text: str) -> int:
    sign, digits = text[:1] if text[0] in "+-" else "", text.lstrip("+-")
    octal = digits[0] == "0" and digits[1:].isdigit()
    return int(sign + digits, 8 if octal else 0)


def _number(text: str) -> int | float:
    digits = text.replace("_", "")
    if _INT.fullmatch(digits) and len(digits) < 400:
        return _integer(digits)
    if _NO_JSON.fullmatch(digits):
        raise ValueError(text)
    number = float(digits)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _size(node: Node, known: dict[int, int]) -> int:
    """How many nodes this one unfolds to; each is looked at once, however often aliases name it."""
    if isinstance(node, ScalarNode):
        return 1
    if id(node) not in known:
        inner = node.value if isinstance(node, SequenceNode) else [value for _, value in node.value]
        known[id(node)] = 1 + sum([_size(one, known) for one in inner])
    return known[id(node)]


class _Unfolding:
    """One document on its way from nodes to values."""

    def __init__(self) -> None:
        self.duplicates: list[str] = []

    def value(self, node: Node, path: str) -> Any:
        match node:
            case ScalarNode():
                return _scalar(node)
            case SequenceNode():
                return [self.value(item, f"{path}[{i}]") for i, item in enumerate(node.value)]
            case MappingNode():
                return self._mapping(node, path)
            case _:
                raise BadInput(f"YAML: unknown node {node!r}")

    def _mapping(self, node: MappingNode, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        own: set[str] = set()
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                # in document order, so that a later merge wins over an earlier key: Go's reading, not the standard's
                for part in self._merged(key_node, value_node, path):
                    result.update(part)
                continue
            key = _key(key_node)
            here = f"{path}.{key}" if path else key
            if key in own:
                self.duplicates.append(here)
            own.add(key)
            result[key] = self.value(value_node, here)
        return result

    def _merged(self, key: Node, value: Node, path: str) -> list[dict[str, Any]]:
        """What `<<` brings; of several mappings the first counts, so it comes last."""
        found = self.value(value, path)
        parts = found if isinstance(found, list) else [found]
        if not all(isinstance(part, dict) for part in parts):
            raise BadInput(f"YAML: {_where(key)}<< needs a mapping or a list of mappings")
        return parts[::-1]


def _where(node: Node) -> str:
    return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: "


def _key(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        raise BadInput(f"YAML: {_where(node)}a key must be a string")
    value = _scalar(node)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        raise BadInput(f"YAML: {_where(node)}a key must not be null")
    return str(value)


def _scalar(node: ScalarNode) -> Any:
    text: str = node.value
    try:
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return _BOOLS[text]
            case "int" | "float":
                return _number(text)
            case _:
                return text
    except (KeyError, ValueError) as error:
        raise BadInput(f"YAML: {_where(node)}{text!r} cannot be a {node.tag.removeprefix(_TAG)} here") from error
