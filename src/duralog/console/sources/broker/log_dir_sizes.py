"""How large the logs of a broker are, by Kafka's DescribeLogDirs, which the client of Confluent does not have.

One request of version 1, the oldest that Kafka 4 speaks, over a connection of its own, without encryption. The answer
is a broker's word: its length is checked before it is read, and every count before it is used.

    request   length:int32 | key:int16=35 version:int16=1 correlation:int32 client:string | topics:int32=-1 (all)
    answer    length:int32 | correlation:int32 throttle_ms:int32 | directories: error:int16 path:string topics:
              name:string partitions: partition:int32 size:int64 lag:int64 is_future:int8

A broker that refuses, or listens with TLS, gives no answer: then sizes are not known.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from duralog.errors import CorruptRecord, DuralogError

_API_KEY, _VERSION, _CORRELATION = 35, 1, 1
_CLIENT = b"duralog"
_ALL_TOPICS = -1
_PATIENCE_SECONDS = 3.0
_LARGEST_ANSWER = 64 << 20
_REQUEST = struct.Struct(f">ihhih{len(_CLIENT)}si")
_ENTRY = struct.Struct(">iqqb")


def log_dir_sizes(host: str, port: int) -> dict[tuple[str, int], int]:
    """The bytes of each partition that a broker has, by topic and number. Raises `DuralogError` if it does not tell."""
    body = _REQUEST.size - 4
    request = _REQUEST.pack(body, _API_KEY, _VERSION, _CORRELATION, len(_CLIENT), _CLIENT, _ALL_TOPICS)
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE_SECONDS) as connection:
            connection.sendall(request)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 0 <= size <= _LARGEST_ANSWER:
                raise DuralogError(f"{host}:{port}: an answer of {size} bytes to DescribeLogDirs")
            answer = _exactly(connection, size)
    except OSError as error:
        raise DuralogError(f"{host}:{port}: {error.strerror or error}") from error
    try:
        return dict(_sizes(_Answer(answer)))
    except CorruptRecord as error:
        raise DuralogError(f"{host}:{port}: DescribeLogDirs: {error}") from None


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise OSError(f"the connection was closed after {len(data)} of {size} bytes")
        data += part
    return bytes(data)


def _sizes(answer: _Answer) -> Iterator[tuple[tuple[str, int], int]]:
    answer.take(">ii")
    for _ in range(answer.count()):
        (error,) = answer.take(">h")
        answer.text()
        for _ in range(answer.count()):
            topic = answer.text()
            for _ in range(answer.count()):
                partition, size, _lag, is_future = answer.take(_ENTRY.format)
                if not error and not is_future:
                    yield (topic, partition), size


class _Answer:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, form: str) -> tuple[int, ...]:
        size = struct.calcsize(form)
        self._check(size)
        values = struct.unpack_from(form, self._data, self._position)
        self._position += size
        return values

    def count(self) -> int:
        (count,) = self.take(">i")
        self._check(max(count, 0))  # Each one has a byte at least.
        return max(count, 0)

    def text(self) -> str:
        (size,) = self.take(">h")
        self._check(max(size, 0))
        begin, self._position = self._position, self._position + max(size, 0)
        return self._data[begin : self._position].decode("utf-8", "replace")

    def _check(self, size: int) -> None:
        if self._position + size > len(self._data):
            raise CorruptRecord(
                "the answer ends too early",
                position=self._position,
                expected=f"{size} bytes more",
                found=f"{len(self._data) - self._position}",
            )
