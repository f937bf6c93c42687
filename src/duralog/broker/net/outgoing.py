"""What a connection still has to send: bytes, and slices of files that the kernel sends.

Files go out by `sendfile`, right after the bytes before them (`MSG_MORE`), so that they share packets. They hold no
memory, only the open file. With TLS, files are read in pieces, one of which may be in memory. If a file has become
shorter than promised, the answer cannot be completed (`ShortFile`).
"""

from __future__ import annotations

import os
import socket
from collections import deque

from duralog.broker.net.tls_socket import Connected, TlsSocket
from duralog.broker.wire.request import FileSlice

_FILE_PIECE_BYTES = 48 << 10
"""What one `sendfile` is asked for. Asked for more, the kernel makes packets that are partly filled, and takes more of
the CPU for a byte."""


class ShortFile(Exception):
    """A file ends before all of its slice was sent."""


class Outgoing(deque[bytes | memoryview | FileSlice]):
    """The parts in their order."""

    __slots__ = ("_socket",)

    def __init__(self, connected: Connected) -> None:
        super().__init__()
        self._socket = connected

    @property
    def memory_bytes(self) -> int:
        """The size of the parts that are in memory: all but slices of files."""
        return sum(len(part) for part in self if not isinstance(part, FileSlice))

    def send(self, most_bytes: int) -> int:
        """As much as the socket takes, and not many more bytes than this. Returns how many it has taken."""
        total = 0
        while self and total < most_bytes:
            before = total
            try:
                if isinstance(self[0], FileSlice):
                    total += self._send_file(most_bytes - total)
                else:
                    total += self._send_bytes()
            except BlockingIOError:
                break
            if total == before:
                break
        return total

    def _send_bytes(self) -> int:
        run: list[bytes | memoryview] = []
        for part in self:
            if isinstance(part, FileSlice):
                break
            run.append(part)
        has_file_next = len(run) < len(self)
        data = run[0] if len(run) == 1 else b"".join(run)
        sent = self._socket.send(data, socket.MSG_MORE if has_file_next else 0)
        for _ in run:
            self.popleft()
        if sent < len(data):
            self.appendleft(memoryview(data)[sent:])
        return sent

    def _send_file(self, room: int) -> int:
        """Returns how many bytes of the first slice were sent, before the socket had enough."""
        if isinstance(self._socket, TlsSocket):
            return self._send_encrypted(self._socket, room)
        part = self.popleft()
        assert isinstance(part, FileSlice)
        to, source = self._socket.fileno(), part.file.fileno()
        position, end = part.position, part.position + part.size
        stop = min(end, position + room)
        try:
            while position < stop:
                sent = os.sendfile(to, source, position, min(_FILE_PIECE_BYTES, stop - position))
                if sent == 0:
                    raise ShortFile(f"a file ends before position {position}, {end - position} bytes were to be sent")
                position += sent
        except BlockingIOError:
            pass
        finally:
            if position < end:
                self.appendleft(FileSlice(part.file, position, end - position))
        return position - part.position

    def _send_encrypted(self, connected: TlsSocket, room: int) -> int:
        """The same with TLS, piece by piece. What was read and not sent becomes the first part."""
        part = self.popleft()
        assert isinstance(part, FileSlice)
        position, end = part.position, part.position + part.size
        stop = min(end, position + room)
        rest: memoryview | None = None
        try:
            while position < stop and rest is None:
                piece = connected.read_file(part.file.fileno(), position, end - position)
                if not piece:
                    raise ShortFile(f"a file ends before position {position}, {end - position} bytes were to be sent")
                position += len(piece)
                try:
                    sent = connected.send(piece)
                except BlockingIOError:
                    sent = 0
                if sent < len(piece):
                    rest = memoryview(piece)[sent:]
        finally:
            if position < end:
                self.appendleft(FileSlice(part.file, position, end - position))
            if rest is not None:
                self.appendleft(rest)
        return position - part.position - (0 if rest is None else len(rest))
