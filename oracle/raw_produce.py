"""A produce request made by hand: it carries exactly the bytes that it is given, which no client library lets one do.

Version 7, the last one whose answer has no lists of errors in it.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_PRODUCE, _VERSION, _CORRELATION_ID = 0, 7, 1
_ALL_REPLICAS = -1
_TIMEOUT_MS = 60_000


class Produced(NamedTuple):
    """What the broker answered."""

    error_code: int
    base_offset: int
    log_start_offset: int


def produce_batch(address: tuple[str, int], topic: str, partition: int, batch: bytes) -> Produced:
    request = struct.pack(">hhih", _PRODUCE, _VERSION, _CORRELATION_ID, -1)
    request += struct.pack(">hhi", -1, _ALL_REPLICAS, _TIMEOUT_MS)
    request += struct.pack(">ih", 1, len(topic)) + topic.encode("ascii")
    request += struct.pack(">iii", 1, partition, len(batch)) + batch
    with socket.create_connection(address, timeout=_TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
    correlation_id, topics, name_bytes = struct.unpack_from(">iih", answer)
    assert (correlation_id, topics) == (_CORRELATION_ID, 1)
    partitions, _, error_code, base_offset, _, log_start_offset = struct.unpack_from(">iihqqq", answer, 10 + name_bytes)
    assert partitions == 1
    return Produced(error_code, base_offset, log_start_offset)
