"""The cluster's authority: what it signs is trusted for the names it was signed for, and for no others."""

import asyncio
import ssl
from pathlib import Path

import pytest

from clusterip.lab.certificates import Authority, Pair, token


async def handshake(authority: bytes, pair: Pair, name: str, tmp_path: Path) -> str:
    """The certificate's common name, as a client that asks for `name` sees it."""
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    trusting = ssl.create_default_context(cadata=authority.decode())

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving)
    try:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=name)
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return str(certificate["subject"][0][0][1])
    finally:
        server.close()


@pytest.mark.parametrize("name", ["kubernetes.default", "192.168.50.1"])
async def test_a_server_is_trusted_under_its_names_and_addresses(name: str, tmp_path: Path) -> None:
    authority = Authority("test")
    pair = authority.serving("apiserver", ("kubernetes.default", "192.168.50.1"))
    assert await handshake(authority.certificate, pair, name, tmp_path) == "apiserver"


async def test_a_server_is_not_trusted_under_another_name(tmp_path: Path) -> None:
    authority = Authority("test")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(authority.certificate, authority.serving("x", ("a.example",)), "b.example", tmp_path)


async def test_another_clusters_authority_is_not_trusted(tmp_path: Path) -> None:
    pair = Authority("one").serving("x", ("a.example",))
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(Authority("two").certificate, pair, "a.example", tmp_path)


def test_tokens_differ() -> None:
    assert len({token() for _ in range(100)}) == 100
