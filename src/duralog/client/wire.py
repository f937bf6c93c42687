"""Requests that `confluent-kafka` does not have, over one plain connection of Kafka's protocol.

Messages are declared with `format.internal.message_schema`: a response is untrusted, so its length is checked before it
is read, and every length and count in it before it is used. Responses are read one at a time, in order.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from duralog.client.api import Api
from duralog.client.connection import MOST_PORT, NO_ANSWER, not_an_address
from duralog.client.profiles import profile_of
from duralog.client.wire_login import LoginRefused, log_in, secured
from duralog.errors import CorruptRecord, DuralogError
from duralog.format.internal.message_schema import decode_message, encode_message

_CLIENT_ID = b"duralog"
_LARGEST_RESPONSE_BYTES = 64 << 20
_READ_BYTES = 1 << 20


class WireConnection:
    """A connection to the first broker of HOST:PORT[,HOST:PORT] that answers. Raises `DuralogError` if none does."""

    def __init__(self, addresses: str, *, connect_seconds: float = 5.0, response_seconds: float = 30.0) -> None:
        self.addresses = addresses
        self._correlation_id = 0
        profile = profile_of(addresses)
        self._socket = self._connect(addresses.split(","), profile, connect_seconds)
        try:
            self._socket.settimeout(response_seconds)
            log_in(self.ask, profile)
        except BaseException as error:
            self._socket.close()
            raise (self.error(str(error)) if isinstance(error, LoginRefused) else error) from None

    def _connect(self, addresses: Iterable[str], profile: Mapping[str, str], timeout_seconds: float) -> socket.socket:
        reason = ""
        for address in addresses:
            host, port = _host_and_port(address)
            try:
                plain = socket.create_connection((host, port), timeout=timeout_seconds)
            except OSError as error:
                reason = error.strerror or str(error)
                continue
            try:
                return secured(plain, host, profile)
            except ssl.SSLError as error:
                plain.close()
                raise self.error(f"TLS cannot be set up: {error.strerror or error}: check the --config-file") from None
            except OSError as error:
                plain.close()
                reason = error.strerror or str(error)
        raise self.error(NO_ANSWER.format(reason=f" ({reason})"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def error(self, reason: str) -> DuralogError:
        return DuralogError(f"{self.addresses}: {reason}")

    def ask(self, api: Api, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the response."""
        self._correlation_id += 1
        header = struct.pack(">hhih", api.key, api.version, self._correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
        request = header + encode_message(api.request, api.version, fields)
        try:
            self._socket.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", self._read(4))
            if not 4 <= size <= _LARGEST_RESPONSE_BYTES:
                raise self.error(f"a response of {size} bytes: this is not a broker of Kafka's protocol")
            response = self._read(size)
        except ConnectionError:  # A reset or a broken pipe: the broker closed it before it had read the request.
            raise self._closed_by_broker() from None
        except OSError as error:
            raise self.error(error.strerror or str(error)) from error
        try:
            return decode_message(api.response, api.version, response, 4)
        except CorruptRecord as error:
            raise self.error(f"a response that cannot be read: {error}") from None

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), _READ_BYTES))
            if not part:
                raise self._closed_by_broker()
            data += part
        return bytes(data)

    def _closed_by_broker(self) -> DuralogError:
        return self.error(
            "the broker closed the connection: if a limit such as max.connections refuses it,"
            " stop the broker and change its directory, or start it with --override"
        )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > MOST_PORT:
        raise not_an_address(address)
    return host.strip("[]"), int(port)
