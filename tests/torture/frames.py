"""Mutated requests of every API and version: each is answered or costs its own connection, and nothing else.

A request is drawn by its schema, with names that no client of the campaign uses. Then bytes are flipped, cut, repeated
or replaced. What is still valid may do what it says: to topics and groups of its own.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import types
import typing
import uuid
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

from kio.index import load_request_schema

from duralog.broker.handlers import load_apis
from duralog.broker.wire import messages
from tests.support.broker.raw_client import request_frame

_NAMES = ("mutant", "mutant-2", "", "\0", "x" * 300, "é")
_NUMBERS = (-(2**63), -(2**31), -1, 0, 0, 1, 1, 2, 3, 7, 100, 2**31 - 1, 2**63 - 1)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
_EXTREMES = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0" * 8, b"\xff\xff\xff\xff\x0f")
_ANSWER_SECONDS = 20
_MOST_FINDINGS = 5


def mutants(random: Random) -> Iterator[bytes]:
    """One frame for each version of each API, with its size in front."""
    apis = load_apis()
    for key, api in apis.items():
        for version in range(api.min_version, api.max_version + 1):
            body = messages.encode_request(key, version, _message(random, load_request_schema(key, version)))
            frame = request_frame(key, version, random.getrandbits(31), body, client_id="mutant")
            yield _mutated(random, frame)


def _mutated(random: Random, frame: bytes) -> bytes:
    """The header's API and version stay, so that every handler gets its share. Most keep a true size."""
    fixed = 8
    data = bytearray(frame[fixed:])
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        at = random.randrange(len(data) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = random.choice(_EXTREMES)
        elif kind == 3:
            data[at : at + 4] = random.choice(_EXTREMES)
        else:
            data[at:at] = data[: random.randrange(64)]
    size = fixed - 4 + len(data)
    if random.random() < 0.05:
        size = random.choice((0, 3, size + 7, 2**31 - 1, 104_857_601))
    return struct.pack(">I", size) + frame[4:fixed] + bytes(data)


def _message(random: Random, schema: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(schema)
    return {
        field.name: _value(random, hints[field.name], field.metadata.get("kafka_type"))
        for field in dataclasses.fields(schema)
    }


def _value(random: Random, hint: Any, kind: str | None) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in options and random.random() < 0.2:
        return None
    (hint,) = (option for option in options if option is not type(None))
    if typing.get_origin(hint) is tuple:
        return [_value(random, typing.get_args(hint)[0], kind) for _ in range(random.choice((0, 1, 1, 2)))]
    if dataclasses.is_dataclass(hint):
        return _message(random, hint)
    if kind == "uuid":
        return uuid.UUID(int=random.getrandbits(128))
    if kind == "bool":
        return random.random() < 0.5
    if kind == "string":
        return random.choice(_NAMES)
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 61, 200)))
    if kind == "float64":
        return random.choice((0.0, -1.0, 1e300))
    assert kind is not None
    if kind.startswith("timedelta"):
        return random.choice((-1, 0, 100))
    if kind == "error_code":
        return random.randrange(-1, 100)
    limit = 2 ** (_BITS[kind] - 1)
    return max(min(random.choice(_NUMBERS), limit - 1), 0 if kind.startswith("u") else -limit)


class Outcome(NamedTuple):
    """What became of frames that were sent."""

    sent: int
    answered: int
    closed: int
    """The broker closed the connection without an answer."""
    findings: list[str]
    """Neither answered nor closed, or answered in part. Not all frames were sent when there are too many of these."""


def send_frames(address: str, frames: Iterable[bytes], answer_seconds: float = _ANSWER_SECONDS) -> Outcome:
    """Send each frame over a connection of its own. REQUIRES: the broker runs."""
    host, _, port = address.rpartition(":")
    sent = answered = closed = 0
    findings: list[str] = []
    for frame in frames:
        key, version = struct.unpack_from(">hh", frame, 4)
        name = f"a mutated frame of API {key}, version {version},"
        try:
            connection = socket.create_connection((host, int(port)), timeout=answer_seconds)
        except OSError as error:
            findings.append(f"{name} found no broker: {error!r}")
        else:
            sent += 1
            with connection:
                try:
                    is_answered = _is_answered(connection, frame)
                    answered += is_answered
                    closed += not is_answered
                except TimeoutError:
                    findings.append(f"{name} was neither answered nor closed in {answer_seconds} s: {frame.hex()}")
                except (EOFError, ConnectionError) as error:
                    findings.append(f"{name} got a part of an answer, {error}: {frame.hex()}")
        if len(findings) >= _MOST_FINDINGS:
            break
    return Outcome(sent, answered, closed, findings)


def _is_answered(connection: socket.socket, frame: bytes) -> bool:
    """Whether a whole answer came, or else the end of the connection."""
    try:
        connection.sendall(frame)
        connection.shutdown(socket.SHUT_WR)
        first = connection.recv(1)
    except TimeoutError:
        raise
    except OSError:
        return False
    if first:
        (size,) = struct.unpack(">i", first + _read(connection, 3))
        _read(connection, size)
    return bool(first)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 65_536))
        if not piece:
            raise EOFError(f"{len(data)} of {size} bytes")
        data += piece
    return bytes(data)
