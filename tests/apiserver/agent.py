"""A node agent that keeps the contract of logs and exec, with no pods behind it: it tells what it was asked."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import WSMsgType, web

from clusterip.lab.certificates import Authority

TOKEN = "agents"


async def logs(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        raise web.HTTPUnauthorized
    if request.match_info["container"] == "waiting":
        raise web.HTTPBadRequest(text='container "waiting" in pod "a" is waiting to start')
    answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await answer.prepare(request)
    said = f"{request.path} {sorted(request.query.items())}\n".encode()
    for piece in (said, b"one\n", b"two\n"):
        await answer.write(piece)
    return answer


async def run(request: web.Request) -> web.WebSocketResponse:
    """Writes the command and every input back, in capitals, and ends with status 7 when the input ends."""
    socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"))
    await socket.prepare(request)
    await socket.send_bytes(b"\x01" + " ".join(request.query.getall("command")).encode() + b"\n")
    if "input" in request.query:
        async for message in socket:
            if message.type is not WSMsgType.BINARY or message.data[:2] == b"\xff\x00":
                break
            await socket.send_bytes(b"\x01" + message.data[1:].upper())
    cause = {"reason": "ExitCode", "message": "7"}
    status = {"status": "Failure", "reason": "NonZeroExitCode", "message": "x", "details": {"causes": [cause]}}
    await socket.send_bytes(b"\x03" + json.dumps({"metadata": {}, **status}).encode())
    await socket.close()
    return socket


@asynccontextmanager
async def agent(tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """Its port on 127.0.0.1, and the file of who signed its certificate."""
    authority = Authority("test")
    pair = authority.serving("node-1", ("127.0.0.1",))
    for name, content in (("ca", authority.certificate), ("crt", pair.certificate), ("key", pair.key)):
        (tmp_path / name).write_bytes(content)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    app.router.add_get("/exec/{namespace}/{pod}/{container}", run)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1], tmp_path / "ca"
    finally:
        await runner.cleanup()
