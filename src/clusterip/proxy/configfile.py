"""Reads and writes a KubeProxyConfiguration. Pure: text in, value out; every problem is told at once."""

import types
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, get_args, get_origin

import msgspec
import yaml

from clusterip.errors import BadInput
from clusterip.proxy.config import API_VERSION, EBPF, KIND, ProxyConfig, Section
from clusterip.proxy.durations import Duration, parse, text

S = TypeVar("S", bound=Section)

# A zero here means "the default", as `null` does everywhere: kubeadm writes files full of them.
_ZERO_IS_DEFAULT = frozenset(
    {
        "bindAddress",
        "healthzBindAddress",
        "metricsBindAddress",
        "configSyncPeriod",
        "clientConnection.contentType",
        "clientConnection.qps",
        "clientConnection.burst",
        "logging.format",
        "logging.flushFrequency",
        "iptables.syncPeriod",
        "iptables.minSyncPeriod",
        "ipvs.syncPeriod",
        "nftables.syncPeriod",
        "nftables.minSyncPeriod",
    }
)
_ZEROS = ("", 0, "0", "0s")
_FLUSH = "logging.flushFrequency"  # the one duration that may be a number: of nanoseconds


class Problem(NamedTuple):
    """`path` is the field ("iptables.syncPeriod") or flag; `what` is wrong with it, and what is allowed."""

    path: str
    what: str


def refuse(source: str, problems: Sequence[Problem]) -> BadInput:
    count = "1 thing is wrong" if len(problems) == 1 else f"{len(problems)} things are wrong"
    lines = "".join(f"\n  {p.path}: {p.what}" for p in problems)
    return BadInput(
        f"{source}: {count}{lines}", hint="`clusterip proxy --write-config-to FILE` writes all the defaults"
    )


def read(content: bytes, source: str) -> ProxyConfig:
    """`source` names the file in errors. Raises BadInput. The value still has to be checked and completed: `rules`."""
    document = _document(content, source)
    problems: list[Problem] = []
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = document.pop(key, None)
        if found != wanted:
            problems.append(Problem(key, f"must be {wanted}, is {_shown(found)}"))
    config = _section(ProxyConfig, document, "", problems)
    if problems:
        raise refuse(source, problems)
    return config


def write(config: ProxyConfig) -> str:
    """The whole file as YAML: `read(write(c)) == c` for every completed configuration."""
    return yaml.safe_dump(to_document(config), sort_keys=True, default_flow_style=False)


def to_document(config: ProxyConfig) -> dict[str, object]:
    """The configuration as JSON, `apiVersion` and `kind` included."""
    document = {"apiVersion": API_VERSION, "kind": KIND, **_plain_section(config)}
    if config.ebpf == EBPF():
        del document["ebpf"]  # kube-proxy itself refuses a file with a field that it does not know
    return document


def _plain_section(section: Section) -> dict[str, object]:
    return {f.encode_name: _plain(getattr(section, f.name)) for f in msgspec.structs.fields(section)}


def _plain(value: object) -> object:
    match value:
        case Duration():
            return text(value)
        case Section():
            return _plain_section(value)
        case tuple():
            return [_plain(item) for item in value]
        case dict():
            return dict(value)
        case _:
            return value


class _Loader(yaml.CSafeLoader):
    """Refuses a key that is given twice: one of the two values would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _document(content: bytes, source: str) -> dict[str, object]:
    try:
        found = yaml.load(content.decode(), Loader=_Loader)  # noqa: S506  a SafeLoader
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from error
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise BadInput(f"{source}: is not YAML: {' '.join(str(error).split()) or 'nested too deeply'}") from error
    if not isinstance(found, dict):
        raise BadInput(f"{source}: must hold one {KIND}, holds {_shown(found)}")
    return {str(key): value for key, value in found.items()}


def _section(as_type: type[S], given: object, path: str, problems: list[Problem]) -> S:
    """Reads what it can; what is wrong goes to `problems` and counts as absent."""
    if not isinstance(given, Mapping):
        problems.append(Problem(path, f"must be an object with fields, is {_shown(given)}"))
        return as_type()
    fields = {f.encode_name: f for f in msgspec.structs.fields(as_type)}
    values: dict[str, object] = {}
    for key, value in given.items():
        here = f"{path}.{key}" if path else str(key)
        if key not in fields:
            problems.append(Problem(here, f"no such field; there are {', '.join(sorted(fields))}"))
            continue
        if value is None or (here in _ZERO_IS_DEFAULT and not isinstance(value, bool) and value in _ZEROS):
            continue
        for read_value in _value(fields[key].type, value, here, problems):
            values[fields[key].name] = read_value
    return as_type(**values)


def _value(as_type: object, given: object, path: str, problems: list[Problem]) -> Iterator[object]:
    """Yields the value, or nothing if there is a problem with it."""
    if isinstance(as_type, type) and issubclass(as_type, Section):
        yield _section(as_type, given, path, problems)
    elif get_origin(as_type) is tuple:
        yield from _list(get_args(as_type)[0], given, path, problems)
    elif get_origin(as_type) is dict:
        yield from _switches(given, path, problems)
    else:
        try:
            yield _scalar(as_type, given, path)
        except ValueError as error:
            problems.append(Problem(path, str(error)))


def _list(of: object, given: object, path: str, problems: list[Problem]) -> Iterator[object]:
    if not isinstance(given, list):
        problems.append(Problem(path, f"must be a list, is {_shown(given)}"))
        return
    yield tuple(v for i, item in enumerate(given) for v in _value(of, item, f"{path}[{i}]", problems))


def _switches(given: object, path: str, problems: list[Problem]) -> Iterator[object]:
    if not isinstance(given, Mapping):
        problems.append(Problem(path, f"must be an object of true and false, is {_shown(given)}"))
        return
    found = {str(k): list(_value(bool, v, f"{path}.{k}", problems)) for k, v in given.items()}
    yield {name: values[0] for name, values in found.items() if values}


def _scalar(as_type: object, given: object, path: str) -> object:
    """Raises ValueError with what is wrong."""
    whole = isinstance(given, int) and not isinstance(given, bool)
    match as_type:
        case _ if as_type is str and isinstance(given, str):
            return given
        case _ if as_type is bool and isinstance(given, bool):
            return given
        case _ if as_type is int and whole:
            return given
        case _ if as_type is float and (whole or isinstance(given, float)):
            return float(given)  # type: ignore[arg-type]  # it is one of the two
        case _ if as_type is Duration and isinstance(given, str):
            return parse(given)
        case _ if as_type is Duration and whole and path == _FLUSH:
            return Duration(int(given) / 10**9)  # type: ignore[call-overload]  # `whole` says it is an int
    raise ValueError(f"must be {_WANTED[as_type]}, is {_shown(given)}")


_WANTED: Mapping[object, str] = types.MappingProxyType(
    {
        str: "text",
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        Duration: "a duration, such as 30s or 1m30s",
    }
)


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case Mapping():
            return "an object"
        case list():
            return "a list"
        case str() if len(value) > 60:
            return repr(value[:57]) + "..."
        case _:
            return repr(value)
