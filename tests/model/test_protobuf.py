"""Protobuf bodies, byte for byte as kubectl 1.33 and 1.36 sent them to a listener."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.model import codec, protobuf
from clusterip.model.protobuf_fields import ROWS, ZERO_IS_ABSENT
from clusterip.model.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, RESOURCES, SERVICES, Resource
from clusterip.model.schema import Sequence, Struct, Table, Type, definitions, fields, struct_of
from clusterip.model.status import ApiError, Object

# kubectl create deployment app --image=clusterip/echo --replicas=0 --port=8080 -- sleep 5
DEPLOYMENT = """azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EssBCh8KA2FwcBIAGgAiACoAMgA4AEIAWgoKA2FwcBIDYXBwEpkBCAASDAoKCgNh
cHASA2FwcBp/ChwKABIAGgAiACoAMgA4AEIAWgoKA2FwcBIDYXBwEl8SQQoEZWNobxIOY2x1c3RlcmlwL2VjaG8aBXNsZWVwGgE1
KgAyCwoAEAAYkD8iACoAQgBqAHIAgAEAiAEAkAEAogEAGgAyAEIASgBSAFgAYABoAIIBAIoBAJoBAMIBACICCgAoADgAGgwIABAA
GAAgACgAOAAaACIA"""
# kubectl create service clusterip foo --tcp=80:http
CLUSTER_IP = """azhzAAoNCgJ2MRIHU2VydmljZRJsCh8KA2ZvbxIAGgAiACoAMgA4AEIAWgoKA2FwcBIDZm9vEkUKHgoHODAtaHR0cBIDVENQGFAi
CggBEAAaBGh0dHAoABIKCgNhcHASA2ZvbxoAIglDbHVzdGVySVA6AEIAUgBaAGAAaAAaAgoAGgAiAA=="""
# kubectl create service nodeport foo --tcp=5678:8080 --node-port=30080
NODE_PORT = """azhzAAoNCgJ2MRIHU2VydmljZRJtCh8KA2ZvbxIAGgAiACoAMgA4AEIAWgoKA2FwcBIDZm9vEkYKIAoJNTY3OC04MDgwEgNUQ1AY
riwiBwgAEJA/GgAogOsBEgoKA2FwcBIDZm9vGgAiCE5vZGVQb3J0OgBCAFIAWgBgAGgAGgIKABoAIgA="""
# kubectl create service externalname foo --external-name=bar.com
EXTERNAL_NAME = """azhzAAoNCgJ2MRIHU2VydmljZRJWCh8KA2ZvbxIAGgAiACoAMgA4AEIAWgoKA2FwcBIDZm9vEi8SCgoDYXBwEgNmb28aACIMRXh0
ZXJuYWxOYW1lOgBCAFIHYmFyLmNvbVoAYABoABoCCgAaACIA"""
# kubectl create ns foo
NAMESPACE = "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhsKEwoDZm9vEgAaACIAKgAyADgAQgASABoCCgAaACIA"
# kubectl create cm foo --from-literal=a=b
CONFIG_MAP = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEh0KEwoDZm9vEgAaACIAKgAyADgAQgASBgoBYRIBYhoAIgA="

FOO = {"name": "foo", "labels": {"app": "foo"}}
APP = {"app": "app"}
LATER_THAN_1_33 = {"ResourceHealth.message"}  # its number is in no kubectl we could read


def decoded(text: str, resource: Resource) -> Object:
    return codec.decode(codec.PROTOBUF, base64.b64decode(text), resource, codec.STRICT).obj


@pytest.mark.parametrize(
    ("text", "resource", "expected"),
    [
        (
            DEPLOYMENT,
            DEPLOYMENTS,
            {
                "metadata": {"name": "app", "labels": APP},
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": APP},
                    "template": {
                        "metadata": {"labels": APP},
                        "spec": {
                            "containers": [
                                {
                                    "name": "echo",
                                    "image": "clusterip/echo",
                                    "command": ["sleep", "5"],
                                    "ports": [{"containerPort": 8080}],
                                    "resources": {},
                                }
                            ]
                        },
                    },
                    "strategy": {},
                },
                "status": {"replicas": 0},
            },
        ),
        (
            CLUSTER_IP,
            SERVICES,
            {
                "metadata": FOO,
                "spec": {
                    "type": "ClusterIP",
                    "selector": {"app": "foo"},
                    "ports": [{"name": "80-http", "protocol": "TCP", "port": 80, "targetPort": "http"}],
                },
                "status": {"loadBalancer": {}},
            },
        ),
        (
            NODE_PORT,
            SERVICES,
            {
                "metadata": FOO,
                "spec": {
                    "type": "NodePort",
                    "selector": {"app": "foo"},
                    "ports": [
                        {"name": "5678-8080", "protocol": "TCP", "port": 5678, "targetPort": 8080, "nodePort": 30080}
                    ],
                },
                "status": {"loadBalancer": {}},
            },
        ),
        (
            EXTERNAL_NAME,
            SERVICES,
            {
                "metadata": FOO,
                "spec": {"type": "ExternalName", "selector": {"app": "foo"}, "externalName": "bar.com"},
                "status": {"loadBalancer": {}},
            },
        ),
        (NAMESPACE, NAMESPACES, {"metadata": {"name": "foo"}, "spec": {}, "status": {}}),
        (CONFIG_MAP, CONFIG_MAPS, {"metadata": {"name": "foo"}, "data": {"a": "b"}}),
    ],
)
def test_what_kubectl_sends_is_read(text: str, resource: Resource, expected: Object) -> None:
    assert decoded(text, resource) == {"apiVersion": resource.api_version, "kind": resource.kind, **expected}


def test_another_kind_is_refused() -> None:
    with pytest.raises(ApiError, match="takes kind 'Service'"):
        decoded(CONFIG_MAP, SERVICES)


@given(cut=st.integers(0, 230), flip=st.integers(0, 255), at=st.integers(0, 230))
def test_a_damaged_body_is_a_document_or_a_bad_request(cut: int, flip: int, at: int) -> None:
    body = bytearray(base64.b64decode(DEPLOYMENT))
    body[at % len(body)] ^= flip
    for damaged in (bytes(body), bytes(body[:cut])):
        try:
            codec.decode(codec.PROTOBUF, damaged, DEPLOYMENTS)
        except ApiError as error:
            if error.code != 400:
                raise


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "does not begin with"),
        (b"k8s\0\x12\xff\xff\xff\xff\x0f", "claims"),
        (b"k8s\0\x12", "ends inside a number"),
        (b"k8s\0\x13", "wire type 3"),
        (b"k8s\0" + b"\xff" * 11, "longer than 64 bits"),
        (b"k8s\0\x10\x01", "a number where bytes belong"),
        (b"k8s\0\x0a\x03\x12\x01\xff", "not UTF-8"),
    ],
)
def test_a_malformed_envelope_says_what_is_wrong(raw: bytes, why: str) -> None:
    with pytest.raises(protobuf.Malformed, match=why):
        protobuf.open_envelope(raw)


def test_negative_numbers_times_and_quantities_are_understood() -> None:
    minus_one = b"\x08" + b"\xff" * 9 + b"\x01"  # replicas: -1
    obj = protobuf.decode(Struct("io.k8s.api.apps.v1.DeploymentSpec"), minus_one)
    assert obj == {"replicas": -1}
    seconds = b"\x08\x80\xb0\xd3\xca\x06"  # field 1 of Time
    meta = protobuf.decode(
        Struct(struct_of(SERVICES).name),
        b"\x0a" + bytes([len(seconds) + 2]) + b"\x42" + bytes([len(seconds)]) + seconds,
    )
    assert meta["metadata"]["creationTimestamp"].endswith("Z")


def reachable_structs() -> set[str]:
    found: set[str] = set()
    ahead: list[Type] = [struct_of(resource) for resource in RESOURCES]
    while ahead:
        match ahead.pop():
            case Struct(name) as struct if name not in found:
                found.add(name)
                ahead += [field.type for field in fields(struct).values()]
            case Sequence(inner) | Table(inner):
                ahead.append(inner)
    return found


def test_the_table_knows_every_field_of_every_message_of_kubernetes_1_33() -> None:
    """Fields that came later may lack a number; they are listed by name, so that none is forgotten silently."""
    newer = {"restartPolicyRules", "volumeStatus", "nodeAllocatableResourceClaimStatuses"}
    missing = set()
    for name in reachable_structs():
        numbers = set(protobuf.field_numbers(name).values())
        for inlined in [one for one in numbers if one.startswith("+")]:
            numbers |= set(protobuf.field_numbers(inlined).values())
        if not numbers:
            continue  # a message that is newer as a whole
        known = set(fields(Struct(name))) - {"apiVersion", "kind"}
        missing |= {f"{name.rpartition('.')[2]}.{field}" for field in known - numbers - newer}
    assert missing <= LATER_THAN_1_33


def test_zero_is_absent_only_for_fields_that_exist() -> None:
    named = {field for definition in definitions().values() for field in definition.get("properties", {})}
    assert named >= ZERO_IS_ABSENT
    assert len(ROWS.splitlines()) > 150


def test_the_json_and_the_protobuf_of_one_object_are_one_object() -> None:
    as_json = json.dumps(decoded(NODE_PORT, SERVICES)).encode()
    assert codec.decode("application/json", as_json, SERVICES, codec.STRICT).obj == decoded(NODE_PORT, SERVICES)
