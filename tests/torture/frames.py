"""Mutated requests of every API and version: each is answered or costs its own connection, and nothing else.

A request is drawn by its schema, with names that no client of the campaign uses. Then bytes are flipped, cut, repeated
or replaced. What is still valid may do what it says: to topics and groups of its own.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import time
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from kio.index import load_request_schema

from duralog.broker.handlers import load_apis
from duralog.broker.wire import messages
from tests.support.broker.raw_client import RawClient, request_frame

_NUMBERS = (-(2**63), -(2**31), -1, 0, 0, 1, 1, 2, 3, 7, 100, 2**31 - 1, 2**63 - 1)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
_EXTREMES = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0" * 8, b"\xff\xff\xff\xff\x0f")
_ANSWER_SECONDS = 20
MOST_FINDINGS = 5


class Pool(NamedTuple):
    """What the fields of a request are drawn from."""

    names: Sequence[str]
    values: Sequence[bytes] = ()
    """For fields of bytes; without them, any bytes."""


STRANGER = Pool(("mutant", "mutant-2", "", "\0", "x" * 300, "é"))


def mutants(random: Random, pool: Pool = STRANGER) -> list[bytes]:
    """One frame for each version of each API, with its size in front."""
    return [
        _mutated_frame(random, request_frame(key, version, random.getrandbits(31), body, client_id="mutant"))
        for key, api in load_apis().items()
        for version in range(api.min_version, api.max_version + 1)
        for body in [messages.encode_request(key, version, _message(random, pool, load_request_schema(key, version)))]
    ]


def _mutated_frame(random: Random, frame: bytes) -> bytes:
    """The header's API and version stay, so that every handler gets its share. Most keep a true size."""
    fixed = 8
    data = mutated(random, frame[fixed:])
    size = fixed - 4 + len(data)
    if random.random() < 0.05:
        size = random.choice((0, 3, size + 7, 2**31 - 1, 104_857_601))
    return struct.pack(">I", size) + frame[4:fixed] + data


def mutated(random: Random, data: bytes) -> bytes:
    """With none to five changes."""
    changed = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = random.choice(_EXTREMES)
        elif kind == 3:
            changed[at : at + 4] = random.choice(_EXTREMES)
        else:
            changed[at:at] = changed[: random.randrange(64)]
    return bytes(changed)


def _message(random: Random, pool: Pool, schema: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(schema)
    return {
        field.name: _value(random, pool, hints[field.name], field.metadata.get("kafka_type"))
        for field in dataclasses.fields(schema)
    }


def _value(random: Random, pool: Pool, hint: Any, kind: str | None) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in options and random.random() < 0.2:
        return None
    (hint,) = (option for option in options if option is not type(None))
    if typing.get_origin(hint) is tuple:
        return [_value(random, pool, typing.get_args(hint)[0], kind) for _ in range(random.choice((0, 1, 1, 2)))]
    if dataclasses.is_dataclass(hint):
        return _message(random, pool, hint)
    if kind == "uuid":
        return uuid.UUID(int=random.getrandbits(128))
    if kind == "bool":
        return random.random() < 0.5
    if kind == "string":
        return random.choice(pool.names)
    if kind in ("bytes", "records"):
        if pool.values:
            return random.choice(pool.values)
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


class Way(NamedTuple):
    """How a frame gets to the broker."""

    enter: Callable[[RawClient], None] = lambda _: None
    """What is said before it."""
    after: bytes = b""
    """Requests that follow it."""
    secret: bytes = b""
    """What no answer may have in it."""


_PLAIN = Way()


class Outcome(NamedTuple):
    """What became of frames that were sent."""

    sent: int
    answered: int
    closed: int
    """The broker closed the connection without an answer."""
    findings: list[str]
    """Neither answered nor closed, or answered in part. Not all frames were sent when there are too many of these."""


def send_frames(
    address: str, frames: Iterable[bytes], way: Way = _PLAIN, answer_seconds: float = _ANSWER_SECONDS
) -> Outcome:
    """Send each frame over a connection of its own. REQUIRES: the broker runs."""
    host, _, port = address.rpartition(":")
    sent = answered = closed = 0
    findings: list[str] = []
    for frame in frames:
        key, version = struct.unpack_from(">hh", frame, 4)
        name = f"a mutated frame of API {key}, version {version},"
        try:
            client = RawClient(host, int(port), answer_seconds)
        except OSError as error:
            findings.append(f"{name} found no broker: {error!r}")
        else:
            with client:
                try:
                    way.enter(client)
                    sent += 1
                    answers = _answers(client.socket, frame + way.after, answer_seconds)
                    answered += bool(answers)
                    closed += not answers
                    if way.secret and any(way.secret in each for each in answers):
                        findings.append(f"{name} got an answer with what its client may not see: {frame.hex()}")
                except TimeoutError:
                    findings.append(f"{name} was neither answered nor closed in {answer_seconds} s: {frame.hex()}")
                except (EOFError, ConnectionError) as error:
                    findings.append(f"{name} got a part of an answer, {error}: {frame.hex()}")
        if len(findings) >= MOST_FINDINGS:
            break
    return Outcome(sent, answered, closed, findings)


def _answers(connection: socket.socket, sent: bytes, seconds: float) -> list[bytes]:
    """All that comes until the broker closes the connection, which it must."""
    deadline = time.monotonic() + seconds
    received = bytearray()
    try:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65_536):
            received += part
            if time.monotonic() > deadline:
                raise TimeoutError
    except TimeoutError:
        raise
    except OSError:
        pass  # Closed with bytes that it did not read.
    answers = []
    at = 0
    while at < len(received):
        size = int.from_bytes(received[at : at + 4], "big")
        if len(received) < at + 4 + size:
            raise EOFError(f"{len(received) - at - 4} of {size} bytes")
        answers.append(bytes(received[at + 4 : at + 4 + size]))
        at += 4 + size
    return answers
