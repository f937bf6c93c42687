"""A TLS connection after its handshake, with the calls of a plain non-blocking socket.

OpenSSL works on records of up to 16 KiB: `recv_into` reads as many as there is room for. What OpenSSL has decrypted and
there was no room for is not seen by epoll: `pending` gives its size. Files are read into a buffer and sent from there,
as the kernel cannot encrypt them without its own TLS.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress

from duralog.errors import DuralogError

_RECORD_BYTES = 16 << 10
FILE_PIECE_BYTES = 64 << 10
"""What is read of a file at once. A multiple of a record."""


class InvalidTls(DuralogError):
    """What the client sends is not valid TLS."""


class TlsSocket:
    """REQUIRES: the handshake is done, and the socket does not block."""

    __slots__ = ("_socket", "fileno")

    def __init__(self, connected: ssl.SSLSocket) -> None:
        self._socket = connected
        self.fileno = connected.fileno

    def recv_into(self, buffer: memoryview) -> int:
        """Raises BlockingIOError if nothing is there. 0 is the end."""
        received, read, size = 0, self._socket.recv_into, len(buffer)
        try:
            while received < size:
                count = read(buffer[received:] if received else buffer, size - received)
                if count == 0:
                    break
                received += count
        except ssl.SSLError as error:
            if not isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError):
                raise _invalid(error) from None
            if not received:
                raise BlockingIOError from None
        return received

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        """Raises BlockingIOError if nothing was taken. The same bytes must come again then."""
        sent, write, size = 0, self._socket.send, len(data)
        view = memoryview(data)
        try:
            while sent < size:
                # Not more than a record: if the socket is full, the next call begins with the same one.
                sent += write(view[sent : sent + _RECORD_BYTES])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if not sent:
                raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _invalid(error) from None
        return sent

    def read_file(self, descriptor: int, position: int, size: int) -> bytes:
        """A piece of a file, to be sent."""
        return os.pread(descriptor, min(size, FILE_PIECE_BYTES), position)

    def pending(self) -> int:
        return self._socket.pending()

    def abandon(self) -> None:
        """Close this process's copy. To the client, nothing has happened."""
        self._socket.close()

    def close(self) -> None:
        """Say goodbye, if there is room for that, and close."""
        with suppress(OSError, ValueError):
            self._socket.unwrap()
        self._socket.close()


def _invalid(error: ssl.SSLError) -> Exception:
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ConnectionResetError("the client has closed the connection")
    return InvalidTls(f"TLS: {error.reason or type(error).__name__}")


Connected = socket.socket | TlsSocket
