"""Mutated requests to the schema registry and to `/metrics`: heads, framings and bodies that no client sends.

Each is answered whole, without a failure of the server's own, or closed. Meanwhile clients that never finish a request
hold as many connections as the server takes, and one with a right request is served. Users who may not change anything
leave the subjects as they are.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import NamedTuple

from tests.torture.frames import MOST_FINDINGS, Outcome, mutated
from tests.torture.guard import INTRUDER
from tests.torture.served import Served

_DECLINED = (501, 505)
"""A method or a version of HTTP that no server has."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PER_ROUND = 150
_SECONDS = 20
_HALF_SENT = 20
_LARGE = 1 << 20
_REGISTRY_PATHS = (
    ("GET", "/subjects"),
    ("GET", "/subjects?subjectPrefix=%00&deleted=true&limit=-1&offset=99999999999999999999"),
    ("GET", "/schemas/ids/99999999999999999999999"),
    ("GET", "/subjects/{}/versions/-1"),
    ("POST", "/subjects/{}"),
    ("POST", "/subjects/{}/versions"),
    ("POST", "/subjects/{}/versions?normalize=true"),
    ("POST", "/compatibility/subjects/{}/versions/latest"),
    ("PUT", "/config/{}"),
    ("PUT", "/mode/{}?force=true"),
    ("DELETE", "/subjects/{}?permanent=true"),
    ("DELETE", "/config/{}"),
    ("POST", "/contexts/:.{}:/subjects/{}/versions"),
    ("TRACE", "/%ff%00/../..//{}"),
)
_METRICS_PATHS = (("GET", "/metrics"), ("POST", "/metrics"), ("GET", "/metrics?name[]=" + "x" * 1000), ("GET", "/{}"))


class Page(NamedTuple):
    address: str
    path: str

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class _Sender(NamedTuple):
    authorization: str
    subject: str


def _bodies(random: Random) -> bytes:
    """One of the bodies: right, deep, large, or with numbers that fit nowhere."""
    deep = random.choice((900, 5000, 200_000))
    number = random.choice(("1e999999", "9" * 4000, "9" * 200_000, "-1e-999999", "1" + "0" * 30))
    schema = random.choice(
        (
            '"int"',
            "[" * deep,
            '{"type":"array","items":' * deep + '"int"' + "}" * deep,
            f'{{"type":"fixed","name":"f","size":{number}}}',
            '{"type":"record","name":"r","fields":[' + ",".join(['{"name":"f","type":"r"}'] * 2000) + "]}",
            "x" * _LARGE,
        )
    )
    return random.choice(
        (
            lambda: json.dumps({"schema": schema}).encode(),
            lambda: json.dumps({"schema": schema, "schemaType": random.choice(("JSON", "PROTOBUF", "x"))}).encode(),
            lambda: f'{{"schema": "\\"int\\"", "id": {number}, "version": {number}}}'.encode(),
            lambda: f'{{"compatibility": {number}, "mode": {number}}}'.encode(),
            lambda: b"[" * deep,
            lambda: b'{"a":' * deep + b"1" + b"}" * deep,
            lambda: b"[" + b"1," * _LARGE + b"1]",
            lambda: b'{"schema": "\\ud800", "references": [{"name": "x", "subject": "x", "version": 1}]}',
            lambda: b'{"compatibility": "NONE", "mode": "IMPORT"}',
            lambda: b"\xff\xfe\x00",
            lambda: b"",
        )
    )()


def _head(random: Random) -> list[bytes]:
    """Header lines besides those of a right request."""
    return random.choice(
        (
            list,
            list,
            list,
            lambda: [b"X: " + b"x" * random.choice((7000, 10_000, 100_000))],
            lambda: [b"X: x"] * random.choice((200, 5000)),
            lambda: [b" folded", b": no name", b"no colon", b"\0: \xff"],
            lambda: [b"Host: example.com"],
            lambda: [b"Origin: http://example.com"],
            lambda: [b"Expect: 100-continue"],
        )
    )()


def _framings(random: Random, body: bytes) -> tuple[list[bytes], bytes]:
    """The headers that say how long the body is, and what is sent."""
    size = len(body)
    return random.choice(
        (
            lambda: ([b"Content-Length: %d" % size], body),
            lambda: ([b"Content-Length: %d" % size], body),
            lambda: ([b"Content-Length: %d" % size], body[: random.randrange(size + 1)]),
            lambda: ([b"Content-Length: %d" % random.randrange(size + 1)], body),
            lambda: ([b"Content-Length: %d" % (size + random.choice((1, 2**31, 10**17)))], body),
            lambda: ([b"Content-Length: " + random.choice((b"-1", b"+1", b"x", b"1_0", b"9" * 30, b"\xb2"))], body),
            lambda: ([b"Content-Length: %d" % size, b"Content-Length: 0"], body),
            lambda: ([b"Transfer-Encoding: chunked"], b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)),
            lambda: ([b"Transfer-Encoding: chunked", b"Content-Length: %d" % size], b"f" * 20 + b"\r\n" + body),
            lambda: ([], body),
        )
    )()


def requests(
    random: Random, host: str, paths: tuple[tuple[str, str], ...], senders: tuple[_Sender, ...]
) -> Iterator[bytes]:
    while True:
        method, path = random.choice(paths)
        sender = random.choice(senders)
        framing, body = _framings(random, _bodies(random))
        target = path.replace("{}", sender.subject).encode()
        if random.random() < 0.05:
            target = b"/" + b"x" * 100_000
        first = b" ".join((method.encode(), target, random.choice((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b""))))
        lines = [first, b"Host: " + host.encode(), *framing, *_head(random)]
        if sender.authorization:
            lines.append(b"Authorization: " + sender.authorization.encode())
        head = b"\r\n".join(lines) + b"\r\n\r\n"
        yield (mutated(random, head) if random.random() < 0.3 else head) + body


def ask_badly(served: Served, random: Random, most: int | None) -> dict[str, Outcome]:
    """Send this number of requests to each of the two servers; by server. REQUIRES: the broker runs."""
    look, change = f"Bearer {served.tokens.look}", f"Bearer {served.tokens.change}"
    strangers = tuple(_Sender(given, INTRUDER) for given in ("", look, "Bearer x", "Basic " + "!" * 2000))
    count = _PER_ROUND if most is None else most
    outcomes = {}
    for name, address, paths, senders in (
        ("the registry", served.registry, _REGISTRY_PATHS, (*strangers, _Sender(change, "mutant"))),
        ("/metrics", served.metrics, _METRICS_PATHS, strangers),
    ):
        drawn = requests(random, address, paths, senders)
        outcomes[name] = send_requests(address, [next(drawn) for _ in range(count)])
    pages = [Page(served.registry, "/subjects"), Page(served.metrics, "/metrics")]
    outcomes["the registry"].findings.extend(others_are_served(pages, look, INTRUDER))
    return outcomes


def send_requests(address: str, sent: list[bytes], seconds: float = _SECONDS) -> Outcome:
    """Each over a connection of its own."""
    answered = closed = 0
    findings: list[str] = []
    for request in sent:
        name = f"the request {request[:200]!r}, {len(request)} bytes,"
        try:
            status = _status(address, request, seconds)
        except TimeoutError:
            findings.append(f"{name} was neither answered nor closed in {seconds} s")
        except HTTPException as error:
            findings.append(f"{name} was not answered completely: {error!r}")
        else:
            answered += status is not None
            closed += status is None
            if status is not None and status >= 500 and status not in _DECLINED:
                findings.append(f"{name} was answered with {status}")
        if len(findings) >= MOST_FINDINGS:
            break
    return Outcome(len(sent), answered, closed, findings)


def _status(address: str, request: bytes, seconds: float) -> int | None:
    """Of the answer, 0 for one of HTTP/0.9, without a status; None if the connection is closed without one."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + seconds
    received = bytearray()
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(_LARGE):
                received += part
                if time.monotonic() > deadline:
                    raise TimeoutError
        except TimeoutError:
            raise
        except OSError:
            pass  # Closed with bytes that it did not read.
    answer = bytes(received).removeprefix(_CONTINUE)
    if not answer.startswith(b"HTTP/"):
        return 0 if answer else None
    head, end, body = answer.partition(b"\r\n\r\n")
    announced = re.search(rb"\r\nContent-Length: (\d+)", head)
    if not end or (announced and len(body) != int(announced[1])):
        raise HTTPException(f"{len(answer)} bytes after {head[:200]!r}")
    return int(head.split()[1])


def others_are_served(pages: Sequence[Page], authorization: str, absent: str) -> list[str]:
    """Each page is answered while other requests are not finished, and does not name the absent subject."""
    with ExitStack() as slow:
        for page in pages:
            for _ in range(_HALF_SENT):
                half = slow.enter_context(socket.create_connection((page.host, page.port), timeout=_SECONDS))
                half.sendall(b"POST /subjects/x/versions HTTP/1.1\r\nContent-Length: 4000000\r\n")
        return [finding for page in pages for finding in _is_served(page, authorization, absent)]


def _is_served(page: Page, authorization: str, absent: str) -> list[str]:
    with closing(HTTPConnection(page.host, page.port, timeout=_SECONDS)) as client:
        try:
            client.request("GET", page.path, headers={"Authorization": authorization})
            response = client.getresponse()
            text = response.read().decode()
        except (OSError, HTTPException) as error:
            return [f"{page.path} was not answered while {_HALF_SENT} requests were not finished: {error!r}"]
    found = [] if response.status == 200 else [f"{page.path} was answered with {response.status}: {text[:200]}"]
    return found + [f"a user without the right made a subject: {text[:500]}"] * (absent in text)
