"""Bodies in: whatever arrives, a document of the kind or an ApiError with a 4xx code."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.model import codec
from clusterip.model.resources import (
    CONFIG_MAPS,
    DELETE_OPTIONS,
    DEPLOYMENTS,
    NODES,
    PODS,
    RESOURCES,
    SCALES,
    SERVICES,
    Resource,
)
from clusterip.model.status import ApiError, Object


def read(document: object, resource: Resource = SERVICES, validation: str = codec.STRICT) -> codec.Decoded:
    return codec.decode("application/json", json.dumps(document).encode(), resource, validation)


def refused(body: bytes, resource: Resource = SERVICES, media: str = "application/json") -> ApiError:
    with pytest.raises(ApiError) as caught:
        codec.decode(media, body, resource, codec.STRICT)
    return caught.value


def test_a_required_scalar_that_is_missing_is_its_types_zero() -> None:
    node = read({"status": {"conditions": [{"status": "True"}]}}, NODES)
    assert node.obj["status"]["conditions"] == [{"type": "", "status": "True"}]
    service = read({"spec": {"ports": [{"nodePort": 30080}]}})
    assert service.obj["spec"]["ports"] == [{"port": 0, "nodePort": 30080}]


@pytest.mark.parametrize(
    ("resource", "document", "fragment"),
    [
        (
            SERVICES,
            {"spec": {"ports": [{"port": "80"}]}},
            "json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32",
        ),
        (SERVICES, {"spec": {"ports": [{"port": 80.5}]}}, "cannot unmarshal number 80.5"),
        (SERVICES, {"spec": {"ports": [{"port": 1 << 40}]}}, "cannot unmarshal number 1099511627776"),
        (SERVICES, {"spec": {"ports": [{"port": True}]}}, "cannot unmarshal bool"),
        (SERVICES, {"spec": []}, "cannot unmarshal array into Go struct field Service.spec of type v1.ServiceSpec"),
        (SERVICES, {"spec": {"ports": {}}}, "of type []v1.ServicePort"),
        (SERVICES, {"spec": {"selector": {"a": 1}}}, "ServiceSpec.spec.selector.a of type string"),
        (SERVICES, {"spec": {"ports": [{"port": 1, "targetPort": 1.5}]}}, "targetPort of type int-or-string"),
        (SERVICES, {"metadata": {"creationTimestamp": "yesterday"}}, "not RFC 3339"),
        (SERVICES, {"metadata": {"creationTimestamp": "2026-13-01T00:00:00Z"}}, "not RFC 3339"),
        (CONFIG_MAPS, {"binaryData": {"a": "not base64!"}}, "illegal base64 data"),
        (NODES, {"status": {"capacity": {"cpu": "two"}}}, "is not a quantity"),
        (NODES, {"status": {"capacity": {"cpu": True}}}, "is not a quantity"),
    ],
)
def test_a_wrong_type_is_refused_and_named(resource: Resource, document: Object, fragment: str) -> None:
    error = refused(json.dumps(document).encode(), resource)
    assert (error.code, error.reason) == (400, "BadRequest")
    assert fragment in error.message


def test_strict_reading_names_all_unknown_and_duplicate_fields() -> None:
    body = b'{"spec":{"foo":1,"type":"ClusterIP","type":"NodePort","ports":[{"port":80,"portt":81}]},"spek":{}}'
    assert 'strict decoding error: duplicate field "spec.type", unknown field "spec.foo", unknown field' in (
        message := refused(body).message
    )
    assert 'unknown field "spec.ports[0].portt"' in message
    assert 'unknown field "spek"' in message


def test_warn_accepts_the_same_and_says_so_and_ignore_is_silent() -> None:
    body = b'{"spec":{"foo":1,"type":"ClusterIP","type":"NodePort"}}'
    warned = codec.decode("application/json", body, SERVICES, codec.WARN)
    assert warned.warnings == ('duplicate field "spec.type"', 'unknown field "spec.foo"')
    silent = codec.decode("application/json", body, SERVICES, codec.IGNORE)
    assert silent.warnings == ()
    assert silent.obj == warned.obj
    assert silent.obj["spec"] == {"type": "NodePort"}


def test_null_is_absence_except_where_something_must_stand() -> None:
    read_back = read(
        {
            "metadata": {"name": "a", "creationTimestamp": None, "labels": {"a": None}},
            "spec": {"clusterIP": None, "ports": [None], "externalIPs": [None], "selector": {}},
        }
    )
    assert read_back.obj == {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "a", "labels": {"a": ""}},
        "spec": {"ports": [{"port": 0}], "externalIPs": [""]},
    }


def test_a_required_list_stays_though_empty() -> None:
    assert read({"spec": {"containers": [], "volumes": []}}, PODS).obj["spec"] == {"containers": []}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00Z"),
        ("2026-11-30T13:30:00+01:30", "2026-11-30T12:00:00Z"),
        ("2026-11-30T12:00:00.987654321Z", "2026-11-30T12:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    ],
)
def test_times_are_kept_in_utc_to_the_second(written: str, kept: str) -> None:
    assert read({"metadata": {"creationTimestamp": written}}).obj["metadata"]["creationTimestamp"] == kept


def test_quantities_may_be_numbers_and_are_kept_as_text() -> None:
    obj = read({"status": {"capacity": {"cpu": 2, "memory": "1.5Gi"}}}, NODES).obj
    assert obj["status"]["capacity"] == {"cpu": "2", "memory": "1.5Gi"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"spec":',
        b"\xff\xfe",
        b'"text"',
        b"[]",
        b"null",
        b"{}{}",
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b"1" * 5000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"kind":"Pod"}',
        b'{"kind":7}',
        b'{"kind":"Service","apiVersion":"v2"}',
        b'{"kind":"Service","apiVersion":["v1"]}',
        b'{"metadata":NaN}',
    ],
)
def test_bytes_that_are_no_service_are_a_bad_request(body: bytes) -> None:
    assert refused(body).code == 400


def deep(levels: int, core: str) -> bytes:
    return ('{"a":' * levels + core + "}" * levels).encode()


def test_depth_is_no_way_in() -> None:
    assert refused(deep(900, '{"b":1,"b":2}')).code == 400
    fields = b'{"metadata":{"managedFields":[{"fieldsV1":' + deep(200, "{}") + b"}]}}"
    assert "nested more than 100 levels" in refused(fields).message
    assert read({"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {"f:type": {}}}}]}})


@pytest.mark.parametrize("media", ["application/cbor", "text/html", "nonsense", "application/apply-patch+yaml"])
def test_an_unknown_media_type_is_415_and_says_which_are_known(media: str) -> None:
    error = refused(b"{}", media=media)
    assert error.code == 415
    assert "application/json, application/yaml, application/vnd.kubernetes.protobuf" in error.message


def test_the_media_type_may_carry_parameters_and_capitals_or_be_missing() -> None:
    for media in ("Application/JSON; charset=utf-8", ""):
        assert codec.decode(media, b"{}", SERVICES).obj["kind"] == "Service"


def test_delete_options_come_with_any_api_version() -> None:
    body = b'{"kind":"DeleteOptions","apiVersion":"apps/v1","gracePeriodSeconds":0,"propagationPolicy":"Background"}'
    obj = codec.decode("application/json", body, DELETE_OPTIONS, codec.STRICT).obj
    assert obj["gracePeriodSeconds"] == 0
    assert obj["propagationPolicy"] == "Background"


def test_yaml_is_read_as_kubectl_reads_it() -> None:
    body = b"spec:\n  ports:\n  - port: 0x50\n    targetPort: 1e3\n  selector: {on: 'yes'}\n"
    obj = codec.decode("application/yaml", body, SERVICES, codec.STRICT).obj
    assert obj["spec"] == {"ports": [{"port": 80, "targetPort": 1000}], "selector": {"true": "yes"}}


@pytest.mark.parametrize("body", [b"a: [", b"a: 1\n---\nb: 2\n", b"", b"- a", b"a: &a [*a]", b"? [a]\n: b", b"\x00"])
def test_yaml_that_is_no_service_is_a_bad_request(body: bytes) -> None:
    assert refused(body, media="application/yaml").code == 400


MEDIA = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELD_NAMES = ("metadata", "spec", "status", "ports", "selector", "name", "labels", "containers", "template", "data")
PLAUSIBLE = st.recursive(
    JSON_VALUES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELD_NAMES), inner, max_size=4),
    max_leaves=20,
)


@given(media=st.sampled_from(MEDIA), body=st.binary(max_size=200), resource=st.sampled_from(RESOURCES))
def test_random_bytes_give_a_document_or_a_client_error(media: str, body: bytes, resource: Resource) -> None:
    _document_or_client_error(media, body, resource)


@given(document=PLAUSIBLE, resource=st.sampled_from((*RESOURCES, SCALES, DELETE_OPTIONS)))
def test_random_documents_give_a_document_or_a_client_error(document: object, resource: Resource) -> None:
    _document_or_client_error("application/json", json.dumps(document).encode(), resource)


@given(text=st.text(alphabet="ab:-[]{}&*!<>|?,'\"\n #%@0x1e.~", max_size=60))
def test_random_yaml_gives_a_document_or_a_client_error(text: str) -> None:
    _document_or_client_error("application/yaml", text.encode(), PODS)


def _document_or_client_error(media: str, body: bytes, resource: Resource) -> None:
    try:
        obj = codec.decode(media, body, resource, codec.WARN).obj
    except ApiError as error:
        if error.code not in (400, 415):
            raise
        return
    assert obj["kind"] == resource.kind
    # what was accepted once is accepted again, unchanged
    again = codec.decode("application/json", json.dumps(obj).encode(), resource, codec.STRICT)
    assert again.obj == obj


def test_deep_templates_are_read_to_the_last_field() -> None:
    document = {
        "spec": {
            "template": {"spec": {"containers": [{"name": "a", "readinessProbe": {"httpGet": {"port": "web"}}}]}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
        }
    }
    assert read(document, DEPLOYMENTS).obj["spec"] == document["spec"]
