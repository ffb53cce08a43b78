"""The TLS context of a connection."""

import os
import ssl
import tempfile

from clusterip.client.kubeconfig import Connection
from clusterip.errors import BadInput


def context(connection: Connection) -> ssl.SSLContext:
    """Raises BadInput, naming the piece that cannot be used."""
    try:
        made = ssl.create_default_context(
            cafile=connection.ca_file or None,
            cadata=connection.ca_data.decode("ascii") or None,
        )
    except (OSError, UnicodeDecodeError) as error:  # SSLError is an OSError
        what = connection.ca_file or "certificate-authority-data"
        raise BadInput(f"API server {connection.server}: {what} is no certificate authority, {error}") from None
    if connection.insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if connection.client_cert_file or connection.client_cert_data:
        try:
            _load_client_certificate(made, connection)
        except OSError as error:
            raise BadInput(f"API server {connection.server}: the client certificate cannot be used, {error}") from None
    return made


def _load_client_certificate(made: ssl.SSLContext, connection: Connection) -> None:
    """`ssl` reads certificates from files only; data goes through a private one that lives for this call."""
    if connection.client_cert_file and connection.client_key_file:
        made.load_cert_chain(connection.client_cert_file, connection.client_key_file)
        return
    certificate, key = connection.client_cert_data, connection.client_key_data
    if not certificate:
        with open(connection.client_cert_file, "rb") as file:
            certificate = file.read()
    if not key:
        with open(connection.client_key_file, "rb") as file:
            key = file.read()
    descriptor, path = tempfile.mkstemp(prefix="clusterip-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate + b"\n" + key)
        made.load_cert_chain(path)
    finally:
        os.unlink(path)
