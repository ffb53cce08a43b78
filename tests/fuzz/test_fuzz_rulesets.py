"""Every parser, with noise and with damaged samples: values or problems, never a traceback, never a hang.

What is found is used as trace and doctor would: chains are read, events understood, everything printed.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.examples import share

from clusterip.rulesets import conntrack, host, ipset, iptables, ipvs, klog, manifests, nft, proxylog, recognise
from clusterip.rulesets.evidence import Origin, Reading
from clusterip.rulesets.iptables import listing, rulespecs, saved

TESTS = Path(__file__).parents[1]


@cache
def samples() -> tuple[bytes, ...]:
    paths = [
        *sorted((TESTS / "cases").glob("*/input*")),
        *sorted((TESTS / "golden").glob("*/*.*")),
        *sorted((TESTS / "rulesets" / "data").glob("*")),
    ]
    return tuple(path.read_bytes() for path in paths)


@cache
def words() -> tuple[bytes, ...]:
    return tuple(sorted({word for sample in samples() for word in sample.split()}))


SCRAPS = [b"{", b"}", b'"', b"\n", b" : ", b"!", b"(", b")", b",", b"/", b"[", b"]", b"=", b"9" * 25, b"\x00", b"\xff"]
SCRAPS += [b"0x", b"-", b"\t", b"*", b"@", b"\\", b"'", b"\r", b"#", b"COMMIT\n", b"*nat\n", b"table ip t {\n", b"  "]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sample, cut, spliced with others, with bytes and words changed."""
    data = draw(st.sampled_from(samples()))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from([0, 1, 3, 20, 500])))
        match draw(st.integers(0, 4)):
            case 0:
                new = b""
            case 1:
                new = draw(st.sampled_from(words()))
            case 2:
                new = draw(st.sampled_from(SCRAPS))
            case 3:
                other = draw(st.sampled_from(samples()))
                start = draw(st.integers(0, len(other)))
                new = other[start : start + 2000]
            case _:
                new = data[at:end] * 2
        data = data[:at] + new + data[end:]
    return data


def use(found: recognise.Recognised) -> None:
    """All that is read when first asked for, and all that can be printed."""
    for problem in found.problems:
        assert "\n" not in str(problem)
        assert problem.line >= 0
    for part in found.parts:
        match part.values:
            case saved.Saved(ruleset):
                iptables.ruleset_text(ruleset)
            case nft.Ruleset():
                nft.ruleset_text(part.values)
            case klog.Log():
                proxylog.events(part.values)
            case host.Settings():
                list(host.hairpin_modes(part.values))
            case ipset.IPSets():
                ipset.text(part.values)
            case ipvs.Services():
                ipvs.text(part.values)
            case _:
                repr(part.values)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=share(300))
@given(damaged())
def test_no_damage_is_too_much(data: bytes) -> None:
    use(recognise.read("f", data))


@given(st.binary(max_size=500))
@example(b"Chain X (1 references)\ntarget prot opt source destination\nx\n")
@example(b"Chain X (1 references)\ntarget prot opt source destination\nX all -- !!10.0.0.0/8 0.0.0.0/0\n")
@example(b"tcp 6 1 src=1 dst=2 src=2 dst=1 mark=01\n")
@example(b"\xff\xfe*\x00n\x00a\x00t")
def test_no_bytes_are_too_odd(data: bytes) -> None:
    use(recognise.read("f", data))


def by_listing(text: str, origin: Origin) -> Reading[object]:
    head = "Chain INPUT (policy ACCEPT)\ntarget prot opt source destination\n"
    return listing.read(head + text, origin)


def by_chain(text: str, origin: Origin) -> Reading[object]:
    return nft.read(f"table ip t {{\nchain c {{\n{text}\n}}\n}}\n", origin)


PARSERS: dict[str, Callable[[str, Origin], Reading[object]]] = {
    "iptables-save": saved.read,
    "iptables -S": rulespecs.read,
    "iptables -L": by_listing,
    "nft": nft.read,
    "nft rules": by_chain,
    "nft -j": nft.read_json,
    "ipvsadm": ipvs.read,
    "ipvsadm -Lnc": ipvs.read_connections,
    "ipset": ipset.read,
    "conntrack": conntrack.read,
    "conntrack -S": conntrack.read_statistics,
    "interfaces": host.read_interfaces,
    "routes": host.read_routes,
    "rules": host.read_policy,
    "settings": host.read_settings,
    "log": klog.read,
    "manifests": manifests.read,
}


@st.composite
def likely(draw: st.DrawFn) -> str:
    """Words of the samples in any order: what each parser knows, where it does not expect it."""
    found = draw(st.lists(st.sampled_from(words()) | st.sampled_from(SCRAPS), max_size=40))
    joined = b"".join(word + draw(st.sampled_from([b" ", b"\n", b" ", b""])) for word in found)
    return joined.decode("utf-8", "replace")


@pytest.mark.parametrize("name", PARSERS)
def test_no_text_is_too_odd_for_a_parser(name: str) -> None:
    @settings(max_examples=share(150))
    @given(st.text(max_size=200) | likely())
    def holds(text: str) -> None:
        reading = PARSERS[name](text, Origin("f", 1))
        repr(reading)

    holds()


@pytest.mark.parametrize(
    "opening", ["(", "{ ", "jhash ", "fib ", "ct ", "tcp dport { ", "numgen random mod 1 map { 0 : ("]
)
def test_depth_is_bounded(opening: str) -> None:
    rule = nft.parse_rule(f"ip saddr {opening * 100_000}")
    nft.rule_text(rule)


def _json_of_nft() -> list[object]:
    """One of each statement and expression that nft's JSON has, as the manual page writes them."""
    payload = {"payload": {"protocol": "ip", "field": "saddr"}}
    items: list[object] = [
        {"match": {"op": "==", "left": {"&": [{"meta": {"key": "mark"}}, 255]}, "right": {"range": [1, 2]}}},
        {"match": {"op": "in", "left": {"ct": {"key": "state", "dir": "reply"}}, "right": ["new", "related"]}},
        {
            "match": {
                "left": {"fib": {"flags": ["saddr"], "result": "type"}},
                "right": {"prefix": {"addr": "::", "len": 1}},
            }
        },
        {"vmap": {"key": {"concat": [payload, payload]}, "data": {"set": [[1, {"goto": {"target": "x"}}]]}}},
        {"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"map": {"key": payload, "data": "@m"}}}},
        {"dnat": {"addr": {"map": {"key": {"numgen": {"mode": "inc", "mod": 2}}, "data": {"set": [[0, "1.1.1.1"]]}}}}},
        {
            "set": {
                "op": "add",
                "elem": {"elem": {"val": payload, "timeout": 5}},
                "set": "@s",
                "stmt": [{"counter": None}],
            }
        },
        {"limit": {"rate": 1, "per": "second", "burst": 5, "inv": True}},
        {"reject": {"type": "icmp", "expr": "x"}},
        {"log": {"prefix": "a", "flags": ["tcp"]}},
        {"jhash": {"mod": 1, "expr": payload}},
        {"xt": {"type": "match", "name": "x"}},
        {"quota": {"val": 1}},
    ]
    return items


@st.composite
def misshapen(draw: st.DrawFn) -> object:
    """JSON of nft with a part of it replaced, removed or put elsewhere."""

    def changed(value: object) -> object:
        if draw(st.integers(0, 9)) == 0:
            return draw(st.sampled_from([None, True, -1, "", "@x", "*", [], {}, [[]], *_json_of_nft()]))
        if isinstance(value, dict):
            return {key: changed(item) for key, item in value.items() if draw(st.integers(0, 19))}
        return [changed(item) for item in value] if isinstance(value, list) else value

    return changed(draw(st.sampled_from(_json_of_nft())))


@settings(max_examples=share(500))
@given(st.lists(misshapen(), max_size=4))
def test_no_json_of_nft_is_too_misshapen(items: list[object]) -> None:
    where = {"family": "ip", "table": "t"}
    document = [
        {"table": {"family": "ip", "name": "t"}},
        {"chain": {**where, "name": "c"}},
        {"rule": {**where, "chain": "c", "expr": items}},
        {"set": {**where, "name": "s", "type": "ipv4_addr", "elem": items}},
        {"map": {**where, "name": "m", "type": "ipv4_addr", "map": "mark", "elem": [[item, item] for item in items]}},
    ]
    use(recognise.read("f", json.dumps({"nftables": document}).encode()))


def test_json_is_not_followed_without_end() -> None:
    deep = '{"&": [' * 900 + "1" + ", 1]}" * 900
    expression = f'{{"mangle": {{"key": 1, "value": {deep}}}}}'
    item = f'{{"rule": {{"family": "ip", "table": "t", "chain": "c", "expr": [{expression}]}}}}'
    text = f'{{"nftables": [{{"table": {{"family": "ip", "name": "t"}}}}, {item}]}}'
    use(recognise.read("f", text.encode()))
