"""The server behind the image clusterip/echo: who am I, who are you, and a health that can be made to fail.

    GET /hostname            the pod's name (also /)          GET  /env          its environment
    GET /clientip            address:port of the client       GET  /echo?msg=M   M
    GET /healthz /readyz     200, or 503 when told to fail    GET  /delay?ms=N   after N milliseconds
    POST /fail               make both fail; ?path=/readyz only that one; ?for=5 only for 5 seconds
    POST /ok                 and back; ?path= as above

HTTP/1.1 on TCP, and on UDP with the same number the words `hostname`, `clientip` and `echo TEXT`. With
--tcp-echo-port, a port that sends back what it gets. SIGTERM: goes on serving for --drain seconds, then ends.

Standard library only, and little of it: every pod starts one. The event loop is a selector: it starts in a third of the
time that importing asyncio takes. One thread, never blocked.
"""

from __future__ import annotations  # some types below exist for the checker alone

import heapq
import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 8080
HEALTH = ("/healthz", "/readyz")
FOR_EVER = float("inf")
BUFFER = 65536  # bytes read at once; also the most that a request may be long
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Answer:
    __slots__ = ("body", "code", "delay")

    def __init__(self, code: int, body: str, delay: float = 0.0) -> None:
        self.code = code
        self.body = body
        self.delay = delay  # seconds until it is sent


class Health:
    """Which paths fail, and until when (seconds of the monotonic clock)."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def fail(self, paths: tuple[str, ...], until: float) -> None:
        self._until.update(dict.fromkeys(paths, until))

    def mend(self, paths: tuple[str, ...]) -> None:
        for path in paths:
            self._until.pop(path, None)

    def ok(self, path: str, now: float) -> bool:
        return self._until.get(path, 0.0) <= now


def answer(method: str, target: str, client: str, health: Health, now: float) -> Answer:
    """`client`: "10.244.1.7:40312"."""
    path, _, query = target.partition("?")
    options = parse_query(query)
    if path in ("/fail", "/ok"):
        return told(method, path, options, health, now)
    if method not in ("GET", "HEAD"):
        return Answer(405, "use GET\n")
    match path:
        case "/" | "/hostname":
            return Answer(200, socket.gethostname() + "\n")
        case "/clientip":
            return Answer(200, client + "\n")
        case "/healthz" | "/readyz":
            return Answer(200, "ok\n") if health.ok(path, now) else Answer(503, "told to fail\n")
        case "/env":
            return Answer(200, "".join(f"{name}={value}\n" for name, value in sorted(os.environ.items())))
        case "/echo":
            return Answer(200, options.get("msg", "") + "\n")
        case "/delay" if options.get("ms", "0").isdecimal():
            return Answer(200, "ok\n", int(options.get("ms", "0")) / 1000)
    return Answer(400 if path == "/delay" else 404, f"{path}: not here\n")


def told(method: str, path: str, options: dict[str, str], health: Health, now: float) -> Answer:
    if method != "POST":
        return Answer(405, "use POST\n")
    try:
        until = now + float(options["for"]) if "for" in options else FOR_EVER
    except ValueError:
        return Answer(400, "for: not a number of seconds\n")
    paths = (options["path"],) if "path" in options else HEALTH
    if not set(paths) <= set(HEALTH):
        return Answer(404, f"path: one of {' '.join(HEALTH)}\n")
    if path == "/fail":
        health.fail(paths, until)
    else:
        health.mend(paths)
    return Answer(200, "".join(f"{one} {'ok' if health.ok(one, now) else 'fails'}\n" for one in HEALTH))


def parse_query(query: str) -> dict[str, str]:
    pairs = (piece.partition("=") for piece in query.split("&") if piece)
    return {unquote(name): unquote(value) for name, _, value in pairs}


def unquote(text: str) -> str:
    """As urllib.parse's, whose import would take longer than all of ours."""
    head, *pieces = text.replace("+", " ").split("%")
    out = head.encode()
    for piece in pieces:
        try:
            out += bytes.fromhex(piece[:2]) + piece[2:].encode()
        except ValueError:
            out += b"%" + piece.encode()
    return out.decode(errors="replace")


def datagram(message: bytes, client: str) -> bytes:
    """The answer to one UDP message."""
    word, _, rest = message.rstrip(b"\r\n").partition(b" ")
    match word:
        case b"hostname":
            return socket.gethostname().encode() + b"\n"
        case b"clientip":
            return client.encode() + b"\n"
        case b"echo":
            return rest + b"\n"
    return b"words: hostname, clientip, echo TEXT\n"


class Request:
    __slots__ = ("close", "method", "target")

    def __init__(self, method: str, target: str, close: bool) -> None:
        self.method = method
        self.target = target
        self.close = close


def parse(data: bytes) -> tuple[Request | None, bytes]:
    """One request and what follows it; None while it is not complete. Raises ValueError for what is not HTTP."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        if len(data) >= BUFFER:
            raise ValueError("too long")
        return None, data
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("not HTTP/1")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    if length < 0 or length > BUFFER or "transfer-encoding" in headers:
        raise ValueError("no such bodies here")
    if len(rest) < length:
        return None, data
    word = headers.get("connection", "").lower()
    close = word == "close" or (version == "HTTP/1.0" and word != "keep-alive")
    return Request(method, target, close), rest[length:]


def reply(request: Request, made: Answer) -> bytes:
    body = made.body.encode()
    head = (
        f"HTTP/1.1 {made.code} {REASONS[made.code]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {'close' if request.close else 'keep-alive'}\r\n\r\n"
    )
    return head.encode() + (b"" if request.method == "HEAD" else body)


class Loop:
    """Sockets that are ready and times that have come, one after the other."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._ended = False

    def at(self, when: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, call))

    def watch(self, what: socket.socket, call: Callable[[int], None], events: int = selectors.EVENT_READ) -> None:
        """`call` gets which of the events it is."""
        try:
            self._selector.modify(what, events, call)
        except KeyError:
            self._selector.register(what, events, call)

    def ignore(self, what: socket.socket) -> None:
        """Watch it no more, for now."""
        if what in self._selector.get_map():
            self._selector.unregister(what)

    def forget(self, what: socket.socket) -> None:
        self.ignore(what)
        what.close()

    def stop(self) -> None:
        self._ended = True

    def run(self) -> None:
        while not self._ended:
            timeout = max(self._timers[0][0] - time.monotonic(), 0) if self._timers else None
            for key, events in self._selector.select(timeout):
                key.data(events)
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()


class Connection:
    """A client's TCP connection. `http` is None where everything is just sent back."""

    def __init__(self, loop: Loop, sock: socket.socket, client: str, health: Health | None) -> None:
        self._loop = loop
        self._sock = sock
        self._client = client
        self._health = health
        self._in = b""
        self._out = b""
        self._closing = False  # once all is sent
        self._waiting = False  # for an answer that is delayed
        self._closed = False
        sock.setblocking(False)
        loop.watch(sock, self._ready)

    def _ready(self, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush()
            elif data := self._sock.recv(BUFFER):
                self._received(data)
            else:
                self._close()  # nothing is owed: while there is something to send, nothing is read
        except BlockingIOError:
            return
        except OSError:
            self._close()

    def _received(self, data: bytes) -> None:
        if self._health is None:
            self._out += data
            self._flush()
        else:
            self._in += data
            self._serve(self._health)

    def _serve(self, health: Health) -> None:
        """Answer what has come in, in order; a delayed answer holds up what is behind it."""
        while not (self._waiting or self._closing):
            try:
                request, self._in = parse(self._in)
            except ValueError:
                self._closing = True
                self._out += b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                break
            if request is None:
                break
            now = time.monotonic()
            made = answer(request.method, request.target, self._client, health, now)
            if made.delay:
                self._waiting = True
                self._loop.at(now + made.delay, self._later(request, made, health))
            else:
                self._out += reply(request, made)
                self._closing = request.close
        self._flush()

    def _later(self, request: Request, made: Answer, health: Health) -> Callable[[], None]:
        def send() -> None:
            if self._closed:
                return
            self._waiting = False
            self._out += reply(request, made)
            self._closing = request.close
            try:
                self._serve(health)
            except OSError:
                self._close()

        return send

    def _flush(self) -> None:
        if self._out:
            with suppress(BlockingIOError):
                self._out = self._out[self._sock.send(self._out) :]
        if self._out:
            self._loop.watch(self._sock, self._ready, selectors.EVENT_WRITE)  # reads no more until that is gone
        elif self._waiting:
            self._loop.ignore(self._sock)  # reads no more until that is sent
        elif self._closing:
            self._close()
        else:
            self._loop.watch(self._sock, self._ready)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.forget(self._sock)


def client_of(address: tuple[str, int, int, int]) -> str:
    """ "10.244.1.7:40312"; IPv6 in brackets."""
    host = address[0].removeprefix("::ffff:")
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


def listen_tcp(loop: Loop, port: int, health: Health | None) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listener = socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=4096)
    listener.setblocking(False)

    def accept(_: int) -> None:
        for _ in range(64):  # then the others' turn
            try:
                sock, address = listener.accept()
            except OSError:
                return  # nobody more, or somebody who left before we came
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Connection(loop, sock, client_of(address), health)

    loop.watch(listener, accept)
    return listener


def listen_udp(loop: Loop, port: int) -> None:
    both = socket.has_dualstack_ipv6()
    sock = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_DGRAM)
    if both:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("", port))
    sock.setblocking(False)

    def receive(_: int) -> None:
        for _ in range(64):
            try:
                message, address = sock.recvfrom(BUFFER)
                sock.sendto(datagram(message, client_of(address)), address)
            except BlockingIOError:
                return
            except OSError:
                continue  # the last answer found nobody

    loop.watch(sock, receive)


def serve(port: int, tcp_echo_port: int, drain: float) -> None:
    """Until SIGTERM or SIGINT. `tcp_echo_port` 0: none. A `port` of 0 is chosen by the system, and printed."""
    loop = Loop()
    listener = listen_tcp(loop, port, Health())
    listen_udp(loop, listener.getsockname()[1])
    if tcp_echo_port:
        listen_tcp(loop, tcp_echo_port, None)
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

    def drain_then_stop(_: int) -> None:
        woken.recv(16)
        loop.at(time.monotonic() + drain, loop.stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    loop.watch(woken, drain_then_stop)
    sys.stderr.write(f"node.echo.listening port={listener.getsockname()[1]} hostname={socket.gethostname()}\n")
    loop.run()


USAGE = "usage: echo [--port N] [--tcp-echo-port N] [--drain SECONDS]\n"


def main(argv: list[str]) -> None:
    options = {"--port": float(PORT), "--tcp-echo-port": 0.0, "--drain": 0.0}
    words = [piece for word in argv for piece in word.split("=", 1)]
    try:
        for name, value in zip(words[::2], words[1::2], strict=True):
            if name not in options:
                raise ValueError(name)
            options[name] = float(value)
    except ValueError:
        sys.stderr.write(USAGE)
        sys.exit(2)
    serve(int(options["--port"]), int(options["--tcp-echo-port"]), options["--drain"])


if __name__ == "__main__":
    main(sys.argv[1:])
