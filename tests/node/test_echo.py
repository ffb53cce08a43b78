import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.node import echo
from clusterip.node.echo import Answer, Health, answer, datagram, parse, parse_query
from clusterip.node.images import ECHO

CLIENT = "10.244.1.7:40312"


@dataclass(frozen=True, slots=True)
class Server:
    process: subprocess.Popen[str]
    port: int

    def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@pytest.fixture
def options() -> tuple[str, ...]:
    return ()


@pytest.fixture
def server(options: tuple[str, ...]) -> Iterator[Server]:
    argv = [sys.executable, "-I", "-S", str(ECHO), "--port", "0", *options]
    with subprocess.Popen(
        argv, stderr=subprocess.PIPE, text=True, env={"PATH": "/usr/bin", "GREETING": "hi"}
    ) as process:
        assert process.stderr is not None
        try:
            words = process.stderr.readline().split()
            yield Server(process, int(words[1].partition("=")[2]))
        finally:
            process.kill()


def asked(target: str, method: str = "GET", health: Health | None = None, now: float = 100.0) -> tuple[int, str]:
    made = answer(method, target, CLIENT, health or Health(), now)
    return made.code, made.body.strip()


@pytest.mark.parametrize(
    ("target", "method", "expected"),
    [
        ("/hostname", "GET", (200, socket.gethostname())),
        ("/", "GET", (200, socket.gethostname())),
        ("/clientip", "GET", (200, CLIENT)),
        ("/healthz", "GET", (200, "ok")),
        ("/echo?msg=a%20b+c%C3%A4%zz", "GET", (200, "a b cä%zz")),
        ("/nothing", "GET", (404, "/nothing: not here")),
        ("/hostname", "PUT", (405, "use GET")),
        ("/fail", "GET", (405, "use POST")),
        ("/fail?path=/nothing", "POST", (404, "path: one of /healthz /readyz")),
        ("/fail?for=long", "POST", (400, "for: not a number of seconds")),
        ("/delay?ms=x", "GET", (400, "/delay: not here")),
    ],
)
def test_each_path_answers(target: str, method: str, expected: tuple[int, str]) -> None:
    assert asked(target, method) == expected


def test_a_delay_is_told_in_seconds() -> None:
    assert isinstance(answer("GET", "/delay?ms=250", CLIENT, Health(), 0.0), Answer)
    assert answer("GET", "/delay?ms=250", CLIENT, Health(), 0.0).delay == 0.25


def test_health_fails_when_told_and_mends_when_told() -> None:
    health = Health()
    asked("/fail", "POST", health)
    assert (asked("/healthz", health=health)[0], asked("/readyz", health=health)[0]) == (503, 503)
    asked("/ok?path=/readyz", "POST", health)
    assert (asked("/healthz", health=health)[0], asked("/readyz", health=health)[0]) == (503, 200)
    asked("/ok", "POST", health)
    assert asked("/healthz", health=health)[0] == 200


def test_one_path_fails_for_some_seconds() -> None:
    health = Health()
    assert asked("/fail?path=/readyz&for=5", "POST", health, now=10.0) == (200, "/healthz ok\n/readyz fails")
    assert [asked("/readyz", health=health, now=now)[0] for now in (10.0, 14.9, 15.0)] == [503, 503, 200]


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        (b"hostname", socket.gethostname().encode()),
        (b"hostname\n", socket.gethostname().encode()),
        (b"clientip", CLIENT.encode()),
        (b"echo a b", b"a b"),
        (b"what", b"words: hostname, clientip, echo TEXT"),
        (b"", b"words: hostname, clientip, echo TEXT"),
    ],
)
def test_each_datagram_is_answered(message: bytes, reply: bytes) -> None:
    assert datagram(message, CLIENT) == reply + b"\n"


@given(st.binary(max_size=200))
def test_whatever_comes_in_is_a_request_or_incomplete_or_refused(data: bytes) -> None:
    try:
        request, rest = parse(data)
    except ValueError:
        return
    assert request is not None or rest == data


@given(st.text(max_size=40))
def test_any_query_is_read(query: str) -> None:
    parse_query(query)


def test_requests_of_one_connection_are_answered_in_their_order(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(b"GET /delay?ms=50 HTTP/1.1\r\n\r\nGET /echo?msg=second HTTP/1.1\r\n\r\nGET /echo?msg=third HT")
        client.sendall(b"TP/1.1\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        said = b"".join(iter(lambda: client.recv(4096), b""))
    assert said.index(b"ok\n") < said.index(b"second") < said.index(b"third")


def test_http_1_0_and_connection_close_end_the_connection(server: Server) -> None:
    for request in (b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"nonsense\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
            client.sendall(request)
            assert b"".join(iter(lambda: client.recv(4096), b"")).startswith(b"HTTP/1.1 ")


def test_the_environment_and_the_client_are_told(server: Server) -> None:
    assert {"GREETING=hi", "PATH=/usr/bin"} <= set(server.ask("/env")[1].split("\n"))
    code, text = server.ask("/clientip")
    assert (code, text.rpartition(":")[0]) == (200, "127.0.0.1")


def test_udp_on_the_same_port_answers(server: Server) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", server.port))
        client.send(b"clientip")
        assert client.recv(100).decode().strip() == f"127.0.0.1:{client.getsockname()[1]}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


ECHO_PORT = free_port()


@pytest.mark.parametrize("options", [("--tcp-echo-port", str(ECHO_PORT))])
def test_the_echo_port_sends_back_all_it_gets(server: Server) -> None:
    sent = os.urandom(1_000_000)
    with socket.create_connection(("127.0.0.1", ECHO_PORT), timeout=5) as client:
        pid = os.fork()
        if pid == 0:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            os._exit(0)
        back = b"".join(iter(lambda: client.recv(65536), b""))
        os.waitpid(pid, 0)
    assert back == sent


@pytest.mark.parametrize("options", [("--drain", "0.5")])
def test_sigterm_lets_it_serve_until_drained_and_end_with_0(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert server.ask("/hostname")[0] == 200
    assert server.process.wait(5) == 0
    assert time.monotonic() - began >= 0.4


def test_unknown_options_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    for argv in (["--nothing", "1"], ["--port"], ["--port", "x"]):
        with pytest.raises(SystemExit) as caught:
            echo.main(argv)
        assert caught.value.code == 2
    assert "usage" in capfd.readouterr().err
