"""Dispatches frames to handlers, and encodes the handlers' answers.

Unserved requests are treated as in Kafka: an ApiVersions request of an unknown version is answered in version 0, so
that the client can choose another; every other unknown API or version, and a body that does not fit its version, ends
the connection (`InvalidFrame`, `InvalidMessage`).

An exception in a handler becomes the error answer of its API and one log line: if the connection just closed, the
client would reconnect at once and send the same request again.

A large request is decoded, and its answer encoded, on a worker thread (`duralog.broker.net.large_requests`): it may
name 100,000 topics, and other clients would wait most of a second. Its handler runs on the loop as any other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from duralog.broker.net.large_requests import LargeRequests
from duralog.broker.net.log_lines import LogLines, error_text
from duralog.broker.security.sasl import SaslSession
from duralog.broker.wire import messages
from duralog.broker.wire.error_codes import UNSUPPORTED_VERSION, code_of
from duralog.broker.wire.frames import InvalidFrame, decode_header, skip_tagged_fields
from duralog.broker.wire.principal import Principal
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, FileSlice, Node, RawAnswer, Request, Silence
from duralog.broker.wire.request_stats import ApiStats
from duralog.errors import DuralogError

API_VERSIONS = 18
Parts = list[bytes | FileSlice]

LARGE_BYTES = 16 << 10
"""Requests from this size on are large, if they are read by their schema."""
_NO_BODY = memoryview(b"")
_PLAIN_HEADER = struct.Struct(">ii")
_TAGGED_HEADER = struct.Struct(">iib")


Gate = Callable[[Api, Callable[[Request], Answer]], Callable[[Request], Answer]]


def _open_gate(_: Api, handle: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    return handle


class Peer(Protocol):
    """The sender of a request."""

    client_host: str
    node: Node
    principal: Principal
    login: SaslSession | None

    def deliver(self, parts: Parts | Silence) -> None:
        """Send a delayed answer."""

    def mute(self, milliseconds: int) -> None:
        """Handle no more requests for this time. Answers are sent."""

    def end_after_answer(self, kind: str, reason: str) -> None:
        """Close when the answer is sent."""


@dataclass(slots=True, eq=False)
class _Route:
    """One version of an API."""

    api: Api
    handle: Callable[[Request], Answer]
    version: int
    has_tagged_request_header: bool
    has_tagged_response_header: bool
    stats: ApiStats
    is_refused: bool = False


class Dispatcher:
    """All APIs by key and version."""

    def __init__(self, log_lines: LogLines) -> None:
        self.log_lines = log_lines
        self.throttle: Callable[[Request, float, int], int] | None = None
        """With quotas: counts a request, its seconds and its size, and returns how many ms its client has to wait."""
        self.large_requests: LargeRequests | None = None
        """Where they are decoded. Without it, they are as all others."""
        self._apis: Mapping[int, Api] = {}
        self._handlers: dict[int, Callable[[Request], Answer]] = {}
        self._routes: dict[tuple[int, int], _Route] = {}
        self.stats: dict[int, ApiStats] = {}

    def serve(self, apis: Mapping[int, Api], parts: object, gate: Gate = _open_gate) -> None:
        """From now on, these APIs are served. Their handlers get what they use from the attributes of `parts`.

        `gate` gets each handler once, and returns what is called in its place.
        """
        self._apis = apis
        self._handlers = {key: gate(api, api.bound_to(parts)) for key, api in apis.items()}
        self.stats = {key: ApiStats(api.name) for key, api in apis.items()}
        self._routes.clear()

    def dispatch(
        self, frame: memoryview, peer: Peer, refusal: tuple[int, str] | None = None
    ) -> Parts | DelayedAnswer | Silence:
        """Handle a request, or refuse it. A delayed answer is delivered to the peer when it is ready."""
        started = perf_counter()
        header = decode_header(frame)
        route = self._routes.get((header.api_key, header.version)) or self._find_route(header.api_key, header.version)
        position = header.body_position
        if route.has_tagged_request_header:
            position = skip_tagged_fields(frame, position)
        body = frame[position:]
        api = route.api
        request = Request(
            header.api_key,
            header.version,
            header.correlation_id,
            header.client_id,
            None,
            body,
            peer.client_host,
            peer.node,
            peer.principal,
            peer.login,
        )
        exchange = _Exchange(self, route, request, peer, started, len(frame))
        if route.is_refused:
            return exchange.finish(api.refuse(request, UNSUPPORTED_VERSION, None))
        if api.parse:
            # Larger than any request that is decoded: refused here, before its bytes are copied.
            is_large = LARGE_BYTES <= len(body) <= messages.LARGEST_REQUEST_BYTES
            if is_large and refusal is None and self.large_requests is not None:
                return _LargeRequest(exchange, self.large_requests, bytes(body)).begin()
            request.message = messages.decode_request(header.api_key, header.version, body)
        if refusal is not None:
            return exchange.finish(api.refuse(request, *refusal))
        try:
            handled = route.handle(request)
        except messages.InvalidMessage:
            raise
        except Exception as error:
            return exchange.fail(error)
        if isinstance(handled, DelayedAnswer):
            handled.deliver_to(exchange.deliver, exchange.refuse)
            if exchange.answered is not None:
                return exchange.answered
            exchange.is_waiting = True
            exchange.busy_seconds = perf_counter() - started
            # Do not keep the receive buffer as long as the request waits.
            request.body = _NO_BODY
            handled.request_bytes = len(frame) if api.parse else 0
            return handled
        return exchange.finish(handled)

    def _find_route(self, api_key: int, version: int) -> _Route:
        api = self._apis.get(api_key)
        if api is None:
            raise InvalidFrame(f"there is no API with key {api_key}")
        handle, stats = self._handlers[api_key], self.stats[api_key]
        if api.min_version <= version <= api.max_version:
            is_flexible = messages.is_flexible(api_key, version)
            route = _Route(api, handle, version, is_flexible, is_flexible and api_key != API_VERSIONS, stats)
            self._routes[api_key, version] = route
            return route
        if api_key == API_VERSIONS:
            return _Route(api, handle, 0, False, False, stats, is_refused=True)
        raise InvalidFrame(f"version {version} of {api.name} is not served")


class _Exchange:
    """One request and its answer."""

    __slots__ = (
        "_dispatcher",
        "_size",
        "_started",
        "answered",
        "busy_seconds",
        "is_waiting",
        "peer",
        "request",
        "route",
    )

    def __init__(
        self, dispatcher: Dispatcher, route: _Route, request: Request, peer: Peer, started: float, size: int
    ) -> None:
        self._dispatcher = dispatcher
        self.route = route
        self.request = request
        self.peer = peer
        self._started = started
        self._size = size
        self.is_waiting = False
        """The handler has returned, and the answer is delayed."""
        self.busy_seconds = 0.0
        """How long the handler took until then."""
        self.answered: Parts | Silence | None = None

    def deliver(self, answer: Fields | RawAnswer | Silence) -> None:
        """The answer of a `DelayedAnswer`. If the handler has not returned yet, dispatch takes it from here."""
        parts = self.finish(answer)
        if self.is_waiting:
            self.peer.deliver(parts)
        else:
            self.answered = parts

    def refuse(self, error_code: int, message: str | None) -> Fields:
        return self.route.api.refuse(self.request, error_code, message)

    def finish(self, answer: Fields | RawAnswer | Silence) -> Parts | Silence:
        """The parts to send, header first."""
        route = self.route
        seconds = perf_counter() - self._started
        if self._dispatcher.throttle is not None:
            answer = self.throttled(answer)
        if isinstance(answer, Silence):
            route.stats.add(seconds, self._size, 0)
            return answer
        if isinstance(answer, RawAnswer):
            size = 0
            has_file = False
            for part in answer.parts:
                if isinstance(part, FileSlice):
                    size += part.size
                    has_file = True
                else:
                    size += len(part)
            parts: Parts = [self._header(size), *answer.parts]
            if not has_file:
                # One piece, so that it can be sent together with other answers.
                parts = [b"".join(parts)]  # type: ignore[arg-type]
        else:
            try:
                body = messages.encode_response(route.api.key, route.version, answer)
            except Exception as error:
                return self.fail(error)
            return self.encoded(body)
        route.stats.add(seconds, self._size, size)
        return parts

    def encoded(self, body: bytes) -> Parts:
        """The parts of an answer with this body."""
        self.route.stats.add(perf_counter() - self._started, self._size, len(body))
        return [self._header(len(body)) + body]

    def throttled(self, answer: Fields | RawAnswer | Silence) -> Fields | RawAnswer | Silence:
        """Count the request against the quotas of its client. Above one, the answer says so and the client waits."""
        throttle, route = self._dispatcher.throttle, self.route
        if throttle is None:
            return answer
        busy_seconds = self.busy_seconds if self.is_waiting else perf_counter() - self._started
        delay_ms = throttle(self.request, busy_seconds, self._size)
        if isinstance(answer, RawAnswer):
            delay_ms = max(delay_ms, answer.throttle_ms)
        elif not isinstance(answer, Silence):
            delay_ms = max(delay_ms, answer.get("throttle_time", 0))
        if delay_ms <= 0 or answer is Silence.CLOSE:
            return answer
        self.peer.mute(delay_ms)
        if isinstance(answer, RawAnswer):
            return answer if route.api.throttled is None else route.api.throttled(answer, route.version, delay_ms)
        if isinstance(answer, Silence) or not messages.has_throttle_time(route.api.key, route.version):
            return answer
        return {**answer, "throttle_time": delay_ms}

    def fail(self, error: Exception) -> Parts | Silence:
        """The API's error answer for an unexpected exception in its handler."""
        route, request = self.route, self.request
        route.stats.errors += 1
        known = isinstance(error, DuralogError)
        self._dispatcher.log_lines.warn(
            f"failed {route.api.name}",
            f"{route.api.name} v{request.version} of client {request.client_id!r} at {request.client_host} failed: "
            + (str(error) if known else error_text(error)),
        )
        try:
            answer = route.api.refuse(request, code_of(error), str(error) if known else None)
            body = messages.encode_response(route.api.key, route.version, answer)
        except Exception as second:
            self._dispatcher.log_lines.warn(
                f"unanswered {route.api.name}", f"{route.api.name}: no error answer: {error_text(second)}"
            )
            return Silence.CLOSE
        return self.encoded(body)

    def _header(self, body_bytes: int) -> bytes:
        if self.route.has_tagged_response_header:
            return _TAGGED_HEADER.pack(body_bytes + 5, self.request.correlation_id, 0)
        return _PLAIN_HEADER.pack(body_bytes + 4, self.request.correlation_id)


class _LargeRequest:
    """From its bytes to its answer: by turns on a worker thread and on the loop."""

    def __init__(self, exchange: _Exchange, queue: LargeRequests, body: bytes) -> None:
        """REQUIRES: the body is a copy, as the receive buffer is used again."""
        self._exchange = exchange
        self._queue = queue
        self._body = body
        self._waiting = DelayedAnswer(on_disconnect=self._drop_body)

    def begin(self) -> DelayedAnswer:
        """What the connection waits for."""
        exchange = self._exchange
        exchange.is_waiting = True
        exchange.request.body = _NO_BODY
        self._waiting.request_bytes = len(self._body)
        self._waiting.is_at_work = True
        self._waiting.deliver_to(exchange.deliver, exchange.refuse)
        self._queue.decode(self._decode, self._handle, self._waiting)
        return self._waiting

    def _drop_body(self) -> None:
        """The client is gone, and its memory is no longer counted: the queue must not keep it."""
        self._body = b""

    def _decode(self) -> object:
        """On a worker thread."""
        request, body = self._exchange.request, self._body
        self._body = b""
        # The client may have left since: then it is not the whole body.
        return None if self._waiting.is_gone else messages.decode_request(request.api_key, request.version, body)

    def _handle(self, message: object, error: Exception | None) -> None:
        exchange, waiting = self._exchange, self._waiting
        if waiting.is_gone:
            return
        started = perf_counter()
        if error is None:
            exchange.request.message = message
            try:
                handled = exchange.route.handle(exchange.request)
            except Exception as raised:
                error = raised
        exchange.busy_seconds = perf_counter() - started
        if isinstance(error, messages.InvalidMessage):
            exchange.peer.end_after_answer(type(error).__name__, str(error))
            exchange.peer.deliver(Silence.CLOSE)
        elif error is not None:
            exchange.peer.deliver(exchange.fail(error))
        elif isinstance(handled, DelayedAnswer):
            waiting.on_disconnect = handled.leave
            waiting.is_at_work = False
            handled.deliver_to(self._encode, exchange.refuse)
        else:
            self._encode(handled)

    def _encode(self, answer: Fields | RawAnswer | Silence) -> None:
        exchange = self._exchange
        if self._waiting.is_gone:
            return
        if isinstance(answer, RawAnswer | Silence):
            exchange.deliver(answer)
            return
        self._waiting.is_at_work = True
        route, fields = exchange.route, exchange.throttled(answer)
        assert not isinstance(fields, RawAnswer | Silence)
        self._queue.encode(
            lambda: messages.encode_response(route.api.key, route.version, fields), self._deliver, self._waiting
        )

    def _deliver(self, body: bytes, error: Exception | None) -> None:
        if not self._waiting.is_gone:
            exchange = self._exchange
            exchange.peer.deliver(exchange.encoded(body) if error is None else exchange.fail(error))
