"""A client that sends exactly what a test says, by kio's schemas or byte by byte."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from duralog.broker.wire import messages
from duralog.broker.wire.request import Fields

API_VERSIONS = 18
_SECONDS = 60.0


class RawClient:
    """One connection. `ask` is a request and its answer; `send` and `receive` are the halves."""

    def __init__(self, host: str, port: int, seconds: float = _SECONDS) -> None:
        self.socket = socket.create_connection((host, port), timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def ask(self, api_key: int, version: int, fields: Fields | None = None, *, client_id: str | None = "test") -> Any:
        """The answer as a value: kio's names, times in ms, error codes as integers."""
        self.send(api_key, version, fields, client_id=client_id)
        return self.receive(api_key, version)

    def send(
        self,
        api_key: int,
        version: int,
        fields: Fields | None = None,
        *,
        client_id: str | None = "test",
        body: bytes | None = None,
    ) -> int:
        """Send a request, its body by the schema or as given. Returns its correlation id."""
        self._correlation_id += 1
        if body is None:
            body = messages.encode_request(api_key, version, fields or {})
        self.send_bytes(request_frame(api_key, version, self._correlation_id, body, client_id=client_id))
        return self._correlation_id

    def receive(self, api_key: int, version: int) -> Any:
        """The next answer, as an answer to a request of this API and version."""
        return messages.decode_response(api_key, version, self.receive_body(api_key, version))

    def receive_body(self, api_key: int, version: int) -> bytes:
        frame = self.receive_frame()
        header = 4
        if api_key != API_VERSIONS and messages.is_flexible(api_key, version):
            assert frame[4] == 0
            header = 5
        return frame[header:]

    def receive_frame(self) -> bytes:
        """The next answer with its header, without its size."""
        (size,) = struct.unpack(">i", self.receive_exactly(4))
        return self.receive_exactly(size)

    def receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            if not part:
                raise ConnectionError(f"closed after {len(received)} of {size} bytes")
            received += part
        return bytes(received)

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def is_closed_by_peer(self) -> bool:
        """Whether the other side closes the connection. Waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def break_off(self) -> None:
        """Close with a reset instead of an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def request_frame(
    api_key: int, version: int, correlation_id: int, body: bytes, *, client_id: str | None = "test", tags: bytes = b"\0"
) -> bytes:
    """A request with its size and header."""
    name = None if client_id is None else client_id.encode()
    header = struct.pack(">hhih", api_key, version, correlation_id, -1 if name is None else len(name)) + (name or b"")
    if messages.is_flexible(api_key, version):
        header += tags
    return struct.pack(">i", len(header) + len(body)) + header + body
