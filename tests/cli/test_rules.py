"""`clusterip rules`, as it is typed: manifests of all shapes, and what is said when they are wrong."""

import io
import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from clusterip.cli import manifests
from clusterip.cli.rules import command
from clusterip.errors import BadInput
from clusterip.kernel import netns as namespaces
from clusterip.model.status import Object
from clusterip.rulesets.iptables import parse
from clusterip.services.resolve import SERVICE_NAME_LABEL

SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]},
}
SLICE: Object = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "web-x", "namespace": "shop", "labels": {SERVICE_NAME_LABEL: "web"}},
    "addressType": "IPv4",
    "ports": [{"port": 8080}],
    "endpoints": [{"addresses": ["10.244.1.2"], "conditions": None, "nodeName": "node-1"}],
}
SIX: Object = {
    **SERVICE,
    "spec": {
        "type": "LoadBalancer",
        "clusterIP": "fd00:96::a",
        "ports": [{"port": 80, "nodePort": 30080}],
        "sessionAffinity": "ClientIP",
        "loadBalancerSourceRanges": ["2001:db8::/64"],
        "externalIPs": ["2001:db8:7::7"],
    },
    "status": {"loadBalancer": {"ingress": [{"ip": "2001:db8:2::200"}]}},
}
SLICE_SIX = {
    **SLICE,
    "addressType": "IPv6",
    "endpoints": [{"addresses": ["fd00:1:1::2"]}, {"addresses": ["fd00:1::3"]}],
}
TO_BACKEND = "-j DNAT --to-destination 10.244.1.2:8080"


def run(text: str | bytes, *options: str) -> Result:
    argv = ["-f", "-", "--node-name", "node-1", *options]
    return CliRunner().invoke(command, argv, input=text, catch_exceptions=True)


def refused(text: str | bytes, *options: str) -> str:
    error = run(text, *options).exception
    assert isinstance(error, BadInput), error
    return error.message


def spec(**fields: object) -> Object:
    """A Service that is ours but for these."""
    return {**SERVICE, "spec": {**SERVICE["spec"], **fields}}


def dump(*documents: object) -> str:
    return yaml.safe_dump_all(documents)


@pytest.mark.parametrize(
    "text",
    [
        dump(SERVICE, SLICE),
        dump({"apiVersion": "v1", "kind": "List", "items": [SERVICE, SLICE]}),
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [SERVICE, SLICE]}, indent="\t"),
        dump(
            {"apiVersion": "v1", "kind": "ServiceList", "items": [{k: SERVICE[k] for k in ("metadata", "spec")}]}, SLICE
        ),
        "---\n# nothing here\n---\n" + dump(SERVICE, None, SLICE),
        dump(SERVICE, SERVICE, SLICE),
        "\ufeff" + dump(SERVICE, SLICE),
    ],
    ids=["documents", "list", "json", "typed list", "empty documents", "twice", "byte order mark"],
)
def test_manifests_come_in_all_shapes(text: str) -> None:
    result = run(text.encode())
    assert result.exception is None, result.exception
    assert TO_BACKEND in result.stdout
    assert result.stdout.count("shop/web cluster IP") == 1


def test_the_output_is_a_whole_ruleset() -> None:
    ruleset = parse(run(dump(SERVICE, SLICE)).stdout)
    assert list(ruleset.tables) == ["mangle", "nat", "filter"]


def test_files_add_up_and_stdin_is_one_of_them(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(dump(SERVICE))
    result = CliRunner().invoke(command, ["-f", str(file), "-f", "-"], input=dump(SLICE))
    assert TO_BACKEND in result.stdout


def test_other_kinds_are_passed_over_and_named_on_stderr() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    result = run(dump(SERVICE, SLICE, pod))
    assert TO_BACKEND in result.stdout
    assert "document 3: Pod (v1) passed over" in result.stderr


@pytest.mark.parametrize("text", ["", "---\n# nothing here\n"])
def test_an_input_without_an_object_is_said_on_stderr(text: str) -> None:
    assert run(text).stderr == "stdin: holds no object\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (dump(SERVICE) + "---\nkind: [\n", ["stdin", "document 2", "line"]),
        ("kind: Service\n\tname: x\n", ["document 1", "line 2"]),
        ("- 1\n", ["document 1", "line 1", "an object was expected, not list"]),
        ("just words\n", ["an object was expected, not str"]),
        ("metadata: {name: x}\n", ["apiVersion and kind"]),
        ("apiVersion: 1\nkind: Service\n", ["apiVersion and kind"]),
        (dump(SLICE) + "---\napiVersion: v1\nkind: Service\nspec:\n  ports:\n  - port: http\n",
         ["document 2", "spec.ports[0].port", "expected `int`, got `str`"]),
        ("apiVersion: v1\nkind: Service\nspec:\n  clusterIP: 10.96.0.1\n  ports: 80\n", ["line 5", "spec.ports"]),
        ("apiVersion: v1\nkind: Service\nspec: []\n", ["line 3", "spec"]),
        ("apiVersion: v1\nkind: List\nitems:\n- 1\n", ["line 4", "an object was expected"]),
        ("apiVersion: v1\nkind: Service\nmetadata:\n  name: 'a\" -j ACCEPT'\n", ["line 4", "metadata.name"]),
        ("apiVersion: v1\nkind: Service\nmetadata:\n  namespace: A\n  name: a\n", ["line 4", "metadata.namespace"]),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1, name: 'x\ny'}]}\n",
         ["spec.ports[0].name"]),
        (dump(spec(clusterIP="foo")), ["line 7", "Service: spec.clusterIP: 'foo' is no IP address"]),
        (dump(spec(type="Foo")), ["spec.type: 'Foo' is none of ClusterIP, NodePort"]),
        (dump(spec(ports=[{"port": 80}, {"port": 99999}])), ["spec.ports[1].port: 99999 is no port"]),
        (dump(spec(ports=[{"nodePort": 80, "port": 0}])), ["spec.ports[0].port: 0 is no port"]),
        (dump(spec(ports=[{"port": 80, "nodePort": -1}])), ["spec.ports[0].nodePort: -1 is no port"]),
        (dump(spec(ports=[{"port": 80, "protocol": "FOO"}])), ["spec.ports[0].protocol: 'FOO' is none of TCP, UDP"]),
        (dump({**SLICE, "endpoints": [{"addresses": ["foo"]}]}), ["endpoints[0].addresses[0]: 'foo' is no IP address"]),
        (dump({**SLICE, "ports": [{"port": 70000}]}), ["EndpointSlice: ports[0].port: 70000 is no port"]),
        ("kind: Service\nkind: Service\napiVersion: v1\n", ["the key kind is given twice"]),
        (b"\xff\xfe\x00nonsense", ["stdin"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str | bytes, parts: list[str]) -> None:
    message = refused(text)
    assert message.startswith("stdin: document ")
    for part in parts:
        assert part in message


@given(st.text(max_size=80))
def test_any_text_gives_rules_or_one_error(text: str) -> None:
    result = run(text.encode())
    assert result.exception is None or isinstance(result.exception, BadInput)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["metadata", "spec", "status"]), json_values, st.sampled_from([SERVICE, SLICE]))
def test_any_document_gives_rules_or_one_error(field: str, value: object, base: Object) -> None:
    result = run(json.dumps({**base, field: value}))
    assert result.exception is None or isinstance(result.exception, BadInput)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match=r"no-such\.yaml: cannot be read: No such file"):
        manifests.read(["no-such.yaml"])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--cluster-cidr", "10.244.0.0"], "--cluster-cidr: '10.244.0.0'"),
        (["--service-cidr", "x"], "--service-cidr"),
        (["--node-ip", "10.0.0.256"], "--node-ip"),
        (["--node-labels", "a b=c"], "--node-labels"),
        (["--node-labels", "zone"], "is not KEY=VALUE"),
        (["--nodeport-addresses", "10.0.0.1"], "--nodeport-addresses"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: list[str], part: str) -> None:
    assert part in refused(dump(SERVICE), *options)


def test_the_options_reach_the_rules() -> None:
    open_service = {
        **SERVICE,
        "spec": {**SERVICE["spec"], "type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
    }
    text = dump(open_service, SLICE)
    assert "0x1/0x1" in run(text, "--masquerade-bit", "0").stdout
    assert "--nfacct-name" in run(text, "--nfacct").stdout
    assert "INVALID" not in run(text, "--tcp-be-liberal").stdout
    assert "! -d 127.0.0.0/8" in run(text, "--no-localhost-nodeports").stdout
    served = run(text, "--node-ip", "192.168.50.11", "--nodeport-addresses", "192.168.50.0/24").stdout
    assert "-d 192.168.50.11/32" in served
    assert "127.0.0.1/32" not in served
    masquerade = 'cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ'
    assert masquerade not in run(text).stdout
    assert masquerade in run(text, "--masquerade-all").stdout
    assert "! -s 10.244.0.0/16" in run(text, "--cluster-cidr", "fd00:1::/48,10.244.0.0/16").stdout


def test_the_family_is_the_manifests_own_unless_it_is_given() -> None:
    assert "[fd00:1:1::2]:8080" in run(dump(SIX, SLICE_SIX)).stdout
    dual = {**SERVICE, "spec": {**SERVICE["spec"], "clusterIPs": ["10.96.0.10", "fd00:96::a"]}}
    both = dump(dual, SLICE, {**SLICE_SIX, "metadata": {**SLICE["metadata"], "name": "web-6"}})
    four = run(both)
    assert "--family IPv6" in four.stderr
    assert (TO_BACKEND in four.stdout, "fd00" in four.stdout) == (True, False)
    six = run(both, "--family", "IPv6").stdout
    assert ("fd00:96::a/128" in six, "10.96.0.10" in six) == (True, False)


def test_what_is_probably_not_meant_is_said_on_stderr() -> None:
    headless = {**SERVICE, "metadata": {"name": "h"}, "spec": {"clusterIP": "None"}}
    pending = {**SERVICE, "metadata": {"name": "p"}, "spec": {"ports": [{"port": 80}]}}
    result = run(dump(SERVICE, headless, pending), "--service-cidr", "10.97.0.0/16")
    assert "shop/web: 10.96.0.10 is outside the Service range" in result.stderr
    assert "service default/h: headless" in result.stderr
    assert "service default/p: has no spec.clusterIP yet" in result.stderr


def test_node_ports_that_no_address_serves_are_said_on_stderr() -> None:
    ports = [{"port": 80, "nodePort": 30080}]
    text = dump({**SERVICE, "spec": {**SERVICE["spec"], "type": "NodePort", "ports": ports}}, SLICE)
    said = "node port 30080 of shop/web: no address serves it here: give --node-ip"
    for mode in ("ipvs", "nftables", "ebpf"):
        assert said in run(text, "--proxy-mode", mode).stderr
        assert said not in run(text, "--proxy-mode", mode, "--node-ip", "192.168.50.11").stderr
        ranges = run(text, "--proxy-mode", mode, "--nodeport-addresses", "0.0.0.0/0").stderr
        assert (said in ranges) == (mode == "ipvs")
    assert said not in run(text).stderr, "iptables mode serves all of the node's addresses, whichever they are"


def test_more_than_a_thousand_endpoints_are_a_large_cluster() -> None:
    endpoints = [{"addresses": [f"10.244.{i // 250}.{i % 250}"]} for i in range(1001)]
    assert "shop/web -> " not in run(dump(SERVICE, {**SLICE, "endpoints": endpoints})).stdout
    assert "shop/web -> " in run(dump(SERVICE, {**SLICE, "endpoints": endpoints[:1000]})).stdout


def test_zones_come_from_the_nodes_labels() -> None:
    hinted = [
        {"addresses": [f"10.244.1.{i}"], "hints": {"forZones": [{"name": zone}]}}
        for i, zone in enumerate("ab", start=1)
    ]
    text = dump(SERVICE, {**SLICE, "endpoints": hinted})
    near = run(text, "--node-labels", "topology.kubernetes.io/zone=a,other=x").stdout
    assert ("10.244.1.1:8080" in near, "10.244.1.2:8080" in near) == (True, False)


def test_the_command_line_prints_the_error_and_gives_status_2() -> None:
    argv = [sys.executable, "-c", "from clusterip.cli.main import main; main()", "rules", "-f", "-"]
    done = subprocess.run(argv, input="kind: [", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: stdin: document 1: ")
    assert "Traceback" not in done.stderr


def test_stdin_is_read_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(dump(SERVICE).encode()), encoding="ascii"))
    assert len(manifests.read(["-"]).services) == 1


@pytest.mark.kernel
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_ipv6_rules_load(variant: str) -> None:
    text = run(dump(SIX, SLICE_SIX), "--cluster-cidr", "fd00:1::/32", "--node-ip", "2001:db8::11").stdout
    name = f"rules-{uuid.uuid4().hex[:8]}"
    namespaces.create(name)
    try:
        inside = ("ip", "netns", "exec", name)
        subprocess.run([*inside, f"ip6tables-{variant}-restore"], input=text, text=True, check=True, timeout=60)
        argv = [*inside, f"ip6tables-{variant}-save"]
        saved = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    finally:
        namespaces.delete(name)
    want, got = parse(text), parse(saved)
    for table in want:
        for chain in table.chains.values():
            kept = [(r.matches, r.target) for r in got.rules(table.name, chain.name)]
            assert kept == [(r.matches, r.target) for r in chain.rules], chain.name
