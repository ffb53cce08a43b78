import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusterip.client.api import Api
from clusterip.client.kubeconfig import Connection
from clusterip.errors import BadInput, Unavailable
from clusterip.model.objects import Service
from clusterip.model.resources import SERVICES
from clusterip.model.status import ApiError


def certificate(name: str) -> tuple[bytes, bytes]:
    """A self-signed certificate for 127.0.0.1 and `name`, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName(name)]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """To a server that wants a client certificate or the token `good`, and has no Services."""
    ours, key = certificate("server")
    theirs, their_key = certificate("client")
    (tmp_path / "server.crt").write_bytes(ours + theirs)
    (tmp_path / "server.pem").write_bytes(ours + key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=theirs.decode())
    tls.load_cert_chain(tmp_path / "server.pem")
    tls.verify_mode = ssl.CERT_OPTIONAL

    async def answer(request: web.Request) -> web.Response:
        shown = request.get_extra_info("peercert")
        if not shown and request.headers.get("Authorization") != "Bearer good":
            status = ApiError(401, "Unauthorized", "Unauthorized").status()
            return web.json_response(status, status=401)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    (tmp_path / "client.crt").write_bytes(theirs)
    (tmp_path / "client.key").write_bytes(their_key)
    yield Connection(f"https://127.0.0.1:{runner.addresses[0][1]}", token="good", ca_data=ours)
    await runner.cleanup()


async def lists(connection: Connection) -> bool:
    async with Api(connection) as api:
        return (await api.list(SERVICES, Service)).items == ()


async def test_a_server_signed_by_the_authority_is_trusted(connection: Connection) -> None:
    assert await lists(connection)


async def test_a_server_signed_by_another_is_not_unless_told_so(connection: Connection) -> None:
    stranger = replace(connection, ca_data=certificate("other")[0])
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await lists(stranger)
    assert await lists(replace(stranger, insecure=True))


async def test_the_name_of_the_certificate_may_be_another_than_the_one_dialled(connection: Connection) -> None:
    assert await lists(replace(connection, tls_server_name="server"))
    with pytest.raises(Unavailable, match="cannot be reached"):
        await lists(replace(connection, tls_server_name="elsewhere"))


@pytest.mark.parametrize("certificate_from_file", [True, False])
@pytest.mark.parametrize("key_from_file", [True, False])
async def test_a_client_certificate_from_files_or_data(
    connection: Connection, tmp_path: Path, certificate_from_file: bool, key_from_file: bool
) -> None:
    crt, key = tmp_path / "client.crt", tmp_path / "client.key"
    shown = replace(
        connection,
        token="",
        client_cert_file=str(crt) if certificate_from_file else "",
        client_cert_data=b"" if certificate_from_file else crt.read_bytes(),
        client_key_file=str(key) if key_from_file else "",
        client_key_data=b"" if key_from_file else key.read_bytes(),
    )
    assert await lists(shown)


async def test_a_token_that_was_replaced_is_read_again_after_a_refusal(connection: Connection, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    async with Api(replace(connection, token="", token_file=str(file))) as api:
        file.write_text("good\n")
        with pytest.raises(ApiError) as caught:
            await api.list(SERVICES, Service)
        assert caught.value.code == 401
        assert (await api.list(SERVICES, Service)).items == ()


async def test_what_is_no_certificate_is_said(connection: Connection, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="certificate-authority-data is no certificate authority"):
        await lists(replace(connection, ca_data=b"nonsense"))
    with pytest.raises(BadInput, match=r"none\.crt is no certificate authority"):
        await lists(replace(connection, ca_data=b"", ca_file=str(tmp_path / "none.crt")))
    with pytest.raises(BadInput, match="the client certificate cannot be used"):
        await lists(replace(connection, client_cert_data=b"x", client_key_data=b"y"))
