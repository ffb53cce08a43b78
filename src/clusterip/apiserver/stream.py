"""An answer that is sent piece by piece."""

from collections.abc import Sequence

from starlette.types import Send


class Stream:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        self.code = 0

    async def begin(self, code: int, headers: Sequence[tuple[str, str]]) -> None:
        self.begun, self.code = True, code
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": code, "headers": encoded})
        # An empty piece brings the headers out: a client that watches a quiet collection learns that it was heard.
        await self.write(b"")

    async def write(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        """The last chunk: without it clients take the stream for broken."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
