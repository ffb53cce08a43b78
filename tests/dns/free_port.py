"""A port nobody listens on just now, for servers that must be told one."""

import socket


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
        return number
