"""Bad requests: a clear Status each, never a traceback, a 500, or something half done."""

import asyncio
import io
import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.apiserver.serving import CONFIG_MAPS, NAMESPACE, PODS, SERVICES, SETTINGS, Api, config_map, running, service

from clusterip.apiserver.app import MOST_BYTES

# A Service "s" with one TCP port, as kubectl sends it.
PROTOBUF = b"k8s\0\n\r\n\x02v1\x12\x07Service\x12\x10\n\x03\n\x01s\x12\x09\n\x07\x12\x03TCP\x18\x50"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api/v2",
        "/api/v1/nothing",
        "/apis/apps/v2/deployments",
        "/apis/nothing.example.com",
        f"{CONFIG_MAPS}/none",
        f"{CONFIG_MAPS}/none/status",
        f"{NAMESPACE}/nothing/x",
        "/api/v1/pods/some",
        f"{SERVICES}/kubernetes/log",
        f"{SERVICES}/kubernetes/status/more",
        "/openapi/v3/apis/nothing/v1",
        "/%2e%2e/%2e%2e/etc/passwd",
    ],
)
async def test_what_is_not_there_is_404(api: Api, path: str) -> None:
    status = await api.refused("GET", path)
    assert (status["code"], status["reason"]) == (404, "NotFound")
    assert status["details"].get("name", "") in path  # kubectl debug crashes on a 404 without details


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{SERVICES}/kubernetes"),
        ("PUT", SERVICES),
        ("PATCH", SERVICES),
        ("POST", "/api/v1/services"),
        ("DELETE", "/api/v1/services"),
        ("DELETE", "/api/v1/namespaces"),
        ("DELETE", f"{SERVICES}/kubernetes/status"),
        ("OPTIONS", SERVICES),
        ("GET", f"{PODS}/some/binding"),
    ],
)
async def test_a_method_that_a_path_does_not_have_is_405(api: Api, method: str, path: str) -> None:
    status = await api.refused(method, path, service("a") if method in ("POST", "PUT", "PATCH") else None)
    assert (status["code"], status["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff\xfe\x00", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b'{"kind":"Pod","apiVersion":"v1"}', "application/json", 400),
        (b'{"kind":"ConfigMap","apiVersion":"v7"}', "application/json", 400),
        (b'{"metadata":[]}', "application/json", 400),
        (b'{"metadata":{"name":7}}', "application/json", 400),
        (b'{"metadata":{"name":"A B"}}', "application/json", 422),
        (b'{"metadata":{"name":"../x"}}', "application/json", 422),
        (b'{"metadata":{"name":"a/b"}}', "application/json", 422),
        (b"[" * 100_000, "application/json", 400),
        (b"a: [", "application/yaml", 400),
        (b"k8s\0\xff\xff\xff", "application/vnd.kubernetes.protobuf", 400),
        (b"k8s", "application/vnd.kubernetes.protobuf", 400),
        (b"{}", "text/plain", 415),
        (b"{}", "application/xml; charset=utf-8", 415),
    ],
)
async def test_a_body_that_is_no_such_object_is_a_client_error(
    api: Api, body: bytes, content_type: str, code: int
) -> None:
    revision = api.parts.registry.store.revision
    status = await api.refused("POST", CONFIG_MAPS, body, content_type=content_type)
    assert status["code"] == code
    assert status["message"]
    assert api.parts.registry.store.revision == revision


@pytest.mark.parametrize(
    ("patch", "content_type", "code"),
    [
        (b"{", "application/merge-patch+json", 400),
        (b"[]", "application/merge-patch+json", 422),
        (b"7", "application/strategic-merge-patch+json", 400),
        (b"{}", "application/json-patch+json", 400),
        (b'[{"op":"nothing","path":"/"}]', "application/json-patch+json", 422),
        (b'[{"op":"remove","path":"/data/none"}]', "application/json-patch+json", 422),
        (b'{"data":7}', "application/merge-patch+json", 400),
        (b'{"kind":"Pod"}', "application/merge-patch+json", 400),
        (b'{"metadata":{"name":"b"}}', "application/merge-patch+json", 400),
        (b'{"metadata":null}', "application/merge-patch+json", 400),
        (b"{}", "application/apply-patch+yaml", 415),
        (b"{}", "application/json", 415),
    ],
)
async def test_a_patch_that_does_not_fit_is_a_client_error(
    api: Api, patch: bytes, content_type: str, code: int
) -> None:
    made = await api.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
    reply = await api("PATCH", f"{CONFIG_MAPS}/a", patch, content_type=content_type)
    assert 400 <= reply.code < 500
    assert reply.code == code, reply.body
    assert await api.ok("GET", f"{CONFIG_MAPS}/a") == made


async def test_what_is_too_large_is_413_however_it_comes(api: Api) -> None:
    body = b'{"data":"' + b"x" * MOST_BYTES + b'"}'
    async with api.session.post(f"{api.url}{CONFIG_MAPS}", data=io.BytesIO(body)) as answer:
        assert answer.status == 413
        assert (await answer.json())["reason"] == "RequestEntityTooLarge"

    async def pieces() -> object:
        for start in range(0, len(body), 1 << 16):
            yield body[start : start + (1 << 16)]

    async with api.session.post(f"{api.url}{CONFIG_MAPS}", data=pieces()) as answer:
        assert answer.status == 413
    assert (await api("GET", NAMESPACE)).code == 200


async def test_a_request_that_breaks_off_leaves_nothing(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    for cut in (30, 60, 100, 120):
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n"
        writer.write((head + '{"metadata":{"name":"half"}')[:cut].encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    await asyncio.sleep(0.1)
    assert (await api("GET", f"{CONFIG_MAPS}/half")).code == 404
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_random_bodies_are_client_errors_or_objects(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """Valid requests with bytes flipped, cut out and doubled: to every kind of body there is."""
    chance = random.Random(7)
    seeds = [
        (b'{"kind":"Service","metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":80}]}}', "json"),
        (b'{"metadata":{"name":"s"},"spec":{"clusterIP":"10.96.0.9","ports":[{"port":80,"nodePort":30000}]}}', "json"),
        (b"metadata: {name: s}\nspec:\n  ports:\n  - port: 80\n    targetPort: http\n", "yaml"),
        (PROTOBUF, "vnd.kubernetes.protobuf"),
    ]
    for _ in range(400):
        seed, kind = chance.choice(seeds)
        body = bytearray(seed)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(body) + 1)
            match chance.randrange(3):
                case 0:
                    body[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    del body[at : at + chance.randint(1, 8)]
                case _:
                    body[at:at] = body[at : at + 8] or b"\0"
        reply = await api("POST", SERVICES, bytes(body), content_type=f"application/{kind}")
        assert reply.code < 500, (bytes(body), reply.body)
        if reply.code < 300:
            await api.ok("DELETE", f"{SERVICES}/{reply.json['metadata']['name']}")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_without_a_token_only_health_and_version_are_answered(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('# who\nsecret,admin,"system:masters"\nother,node-1,system:nodes,more\n')
    async with running(replace(SETTINGS, tokens=tokens)) as api:
        for path in ("/healthz", "/livez", "/readyz", "/version", "/version/"):
            assert (await api("GET", path)).code == 200
        for path in ("/api", SERVICES, "/metrics", "/openapi/v3", "/nothing"):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
                status = await api.refused("GET", path, None, **headers)
                assert (status["code"], status["reason"]) == (401, "Unauthorized")
        assert (await api("GET", SERVICES, authorization="Bearer secret")).code == 200
        who = await api.ok(
            "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, authorization="Bearer other"
        )
        assert who["status"]["userInfo"]["username"] == "node-1"
        assert who["status"]["userInfo"]["groups"] == ["system:nodes", "more", "system:authenticated"]
