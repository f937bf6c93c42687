"""One client connection: its requests, its pending answers, and when it is closed.

One request at a time is in progress, as in Kafka, so that answers keep the order of the requests. While a request
waits for its answer, or an answer waits for the client to read, nothing more is read from this client: the network
slows it down, and it uses no more memory than it has sent already.

| what the client does | what happens |
|---|---|
| sends something that is not a request | closed, one log line |
| sends half a request, or nothing, or does not read | closed when it has been idle for `connections.max.idle.ms` |
| does so while memory is short | closed after some seconds (`duralog.broker.net.request_memory`) |
| breaks the connection while its request waits | `DelayedAnswer.leave`: the handler may drop what it holds |
| ends its own side while its request waits | answered, as in Kafka: it may still read, and if not, sending shows it |
| is sent a file that has become shorter | closed, one log line: its answer cannot be completed |
| sends much at once | requests are handled for a few milliseconds, one buffer at most, then other clients are served |
| ends its own side while others are served | what it has sent is handled: it may have asked for no answers |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from duralog.broker.net.dispatch import Dispatcher, Parts
from duralog.broker.net.event_loop import BROKEN, HANGUP, PEER_CLOSED, READABLE, WRITABLE, EventLoop
from duralog.broker.net.limits import ConnectionLimits
from duralog.broker.net.log_lines import error_text
from duralog.broker.net.outgoing import Outgoing, ShortFile
from duralog.broker.net.request_memory import RequestMemory
from duralog.broker.net.timers import Timer
from duralog.broker.net.tls_socket import Connected, TlsSocket
from duralog.broker.security.sasl import SaslSession
from duralog.broker.wire.frames import FrameReader
from duralog.broker.wire.principal import ANONYMOUS
from duralog.broker.wire.request import DelayedAnswer, Node, Silence
from duralog.errors import DuralogError

_SENT_AT_ONCE_BYTES = 64 << 10
"""Answers up to this size are sent together."""
_SENT_PER_TURN_BYTES = 4 << 20
LOGIN_MS = 30_000
"""A client that needs longer for its log-in is closed."""
_NO_ANSWER = ("refused", "a request that has no answer failed")
_TURN_SECONDS = 0.005
"""How long requests of one client are started before other clients are served."""


class ConnectionOwner(Protocol):
    """What all connections share: the server."""

    loop: EventLoop
    dispatcher: Dispatcher
    limits: ConnectionLimits
    memory: RequestMemory
    receive_buffer: memoryview
    spare_buffers: list[memoryview]

    def has_room(self) -> bool:
        """Whether another request may begin."""

    def wait_for_room(self, connection: Connection) -> None: ...

    def report_closed(self, kind: str, host: str, reason: str, node: Node | None = None) -> None: ...

    def forget(self, connection: Connection) -> None: ...


class Connection:
    """A connected client. All of it happens on the loop's thread."""

    __slots__ = (
        "_dispatch",
        "_ending",
        "_events",
        "_later",
        "_login_deadline",
        "_outgoing",
        "_reader",
        "_server",
        "_socket",
        "_unmuting",
        "client_host",
        "has_ended",
        "is_closed",
        "is_muted",
        "last_active_ms",
        "listener",
        "login",
        "memory_bytes",
        "moved_bytes",
        "node",
        "number",
        "pace",
        "principal",
        "reserved_bytes",
        "waits_for_memory",
        "waits_for_room",
        "waits_for_turn",
    )

    def __init__(
        self, server: ConnectionOwner, connected: Connected, client_host: str, number: int, node: Node
    ) -> None:
        self.client_host = client_host
        self.number = number
        self.node = node
        self.listener = ""
        """The name of the listener that it came by."""
        self.principal = ANONYMOUS
        self.login: SaslSession | None = None
        """By SASL, of a listener with SASL."""
        self.has_ended = False
        """It sends no more. It may still read its answer, or be gone: sending shows which."""
        self.is_closed = False
        self.is_muted = False
        """The client has exceeded a quota: its next request waits."""
        self.last_active_ms = server.loop.now_ms
        self.waits_for_room = False
        """Too many requests of all clients are in progress: the next request of this one waits."""
        self.waits_for_turn = False
        """This client has used its share of the loop's time: its next request waits until others were served."""
        self.waits_for_memory = False
        """All connections together hold much memory: nothing is read from this one."""
        self.memory_bytes = 0
        """What it holds of that."""
        self.moved_bytes = 0
        self.reserved_bytes = 0
        self.pace: tuple[float, int] | None = None
        self._server = server
        self._socket = connected
        self._reader = FrameReader(server.limits.largest_request_bytes, server.spare_buffers)
        self._dispatch: Callable[[memoryview, Any], Parts | DelayedAnswer | Silence] = server.dispatcher.dispatch
        self._later: DelayedAnswer | None = None
        self._ending: tuple[str, str] | None = None
        """Why it is closed once its answer is sent."""
        self._login_deadline: Timer | None = None
        self._unmuting: Timer | None = None
        self._outgoing = Outgoing(connected)
        self._events = READABLE | PEER_CLOSED
        server.loop.watch(connected.fileno(), self._events, self._on_event)

    @property
    def is_waiting(self) -> bool:
        """Whether a request is in progress."""
        return self._later is not None

    @property
    def is_owed(self) -> bool:
        """Whether there is something left to send."""
        return bool(self._outgoing)

    @property
    def held_bytes(self) -> int:
        return self._reader.held_bytes

    @property
    def is_held_up(self) -> bool:
        """Whether it waits for this broker, not for its client."""
        if self._later is not None:
            return self._later.is_at_work or self._later.request_bytes == 0
        return self.waits_for_memory or self.waits_for_room or self.waits_for_turn or self.is_muted

    @property
    def wanted_bytes(self) -> int:
        """The memory that it needs to receive its request completely; 0 if it holds nothing yet."""
        return self._reader.missing_bytes

    # Log-in

    def begin_login(self, login: SaslSession, largest_token_bytes: int) -> None:
        """Before anything else, the client has to log in, within some seconds."""
        self.login = login
        self._dispatch = login.dispatch
        self.limit_requests(largest_token_bytes)
        reason = f"it has not logged in within {LOGIN_MS // 1000} seconds"
        self._login_deadline = self._server.loop.timers.after(LOGIN_MS, partial(self.close, "log-in", reason))

    def limit_requests(self, largest_bytes: int) -> None:
        self._reader.largest_frame_bytes = min(largest_bytes, self._server.limits.largest_request_bytes)

    def logged_in(self) -> None:
        self._reader.largest_frame_bytes = self._server.limits.largest_request_bytes
        if self._login_deadline is not None:
            self._login_deadline.cancel()

    def end_after_answer(self, kind: str, reason: str) -> None:
        self._ending = kind, reason

    # Events

    def _on_event(self, events: int) -> None:
        self._guarded(self._serve, events)

    def go_on(self) -> None:
        """There is room for the next request of this connection, or its answer has been sent."""
        self._guarded(self._go_on)

    def _guarded(self, work: Callable[..., None], *arguments: int) -> None:
        """An error ends the connection of this client, and nothing else."""
        try:
            work(*arguments)
        except ConnectionError:
            self.close()
        except DuralogError as error:
            self.close(type(error).__name__, str(error))
        except ShortFile as error:
            self.close("short file", str(error))
        except Exception as error:
            self.close("unexpected", error_text(error))

    def _serve(self, events: int) -> None:
        if events & WRITABLE and self._outgoing:
            self._send_and_go_on()
        elif self._is_busy():
            if events & BROKEN:
                self.close()
            elif self.waits_for_turn or events & PEER_CLOSED:
                # A client that has only ended its own side still gets its answer. Do not watch for the end now.
                self.has_ended = bool(events & PEER_CLOSED)
                self._listen_for(0)
            else:
                self._listen_for(PEER_CLOSED)
        elif events & READABLE:
            self._receive()
        elif events & HANGUP:
            self.close()

    def _is_busy(self) -> bool:
        return (
            self._later is not None
            or bool(self._outgoing)
            or self.waits_for_room
            or self.waits_for_turn
            or self.waits_for_memory
            or self.is_muted
        )

    def _receive(self) -> None:
        reader, memory = self._reader, self._server.memory
        # Most connections hold nothing, and nearly always there is memory.
        if (self.memory_bytes or memory.is_short) and not memory.admits(self, reader):
            self.waits_for_memory = True
            memory.wait(self)
            self._listen_for(PEER_CLOSED)
            return
        try:
            count = self._socket.recv_into(reader.space(self._server.receive_buffer))
        except BlockingIOError:
            reader.keep()
            self._count_memory()
            return
        if count == 0:
            self.close()
            return
        self.last_active_ms = self._server.loop.now_ms
        self.moved_bytes += count
        reader.received(count)
        self._handle_frames()

    def _go_on(self) -> None:
        """Continue with received data, otherwise wait for more."""
        if self.is_closed or self._later is not None or self._outgoing or self.waits_for_memory or self.is_muted:
            return
        self.waits_for_room = self.waits_for_turn = False
        if self._reader.held_bytes:
            self._handle_frames()
        if not self.is_closed and not self._is_busy():
            self._listen_for(READABLE | PEER_CLOSED)

    def _handle_frames(self) -> None:
        """Handle every complete request, until one has to wait. Answers are collected and sent together."""
        server, reader = self._server, self._reader
        answers: Parts = []
        size = 0
        until = perf_counter() + _TURN_SECONDS
        try:
            while not self.is_closed:
                if not server.has_room():
                    server.wait_for_room(self)
                    break
                frame = reader.next_frame()
                if frame is None:
                    break
                answer = self._dispatch(frame, self)
                if type(answer) is list:
                    answers += answer
                    first = answer[0]
                    size += len(first) if isinstance(first, bytes) else first.size
                    if len(answer) > 1 or size > _SENT_AT_ONCE_BYTES:
                        self._send_parts(answers)
                        answers = []
                        size = 0
                        if self._outgoing:
                            break
                elif isinstance(answer, DelayedAnswer):
                    self._later = answer
                    break
                elif answer is Silence.CLOSE:
                    if answers:
                        self._send_parts(answers)
                    self.close(*(self._ending or _NO_ANSWER))
                    return
                if self.is_muted:
                    break
                if perf_counter() > until:
                    self.waits_for_turn = True
                    server.loop.call_soon(self.go_on)
                    break
        except DuralogError:
            # Earlier requests still get their answers.
            if answers and not self.is_closed:
                self._send_parts(answers)
            raise
        if self.is_closed:
            return
        reader.keep()
        if answers:
            self._send_parts(answers)
        if self._later is not None or self._outgoing or reader.owned_bytes or self.memory_bytes:
            self._count_memory()

    def mute(self, milliseconds: int) -> None:
        """Handle no requests of this client for a while: it has exceeded a quota."""
        if self.is_closed:
            return
        self.is_muted = True
        self._unmuting = self._server.loop.timers.after(milliseconds, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        self.is_muted = False
        self.go_on()

    # Memory

    def take_memory(self) -> bool:
        """Continue to read, if there is memory now."""
        if not self._server.memory.admits(self, self._reader):
            return False
        self.waits_for_memory = False
        self._count_memory()
        self.go_on()
        return True

    def _count_memory(self) -> None:
        """Update the memory that is counted for this connection."""
        held = self._reader.owned_bytes
        if self.reserved_bytes and not held:
            self._server.memory.give_back(self)
        if self._later is not None:
            held += self._later.request_bytes
        if self._outgoing:
            held += self._outgoing.memory_bytes
        if held != self.memory_bytes:
            self._server.memory.change(held - self.memory_bytes)
            self.memory_bytes = held
            if not held:
                self.pace = None

    def close_as_slow(self, why: str) -> None:
        """Close it for the memory that it holds."""
        if self._outgoing:
            what = f"it has not read {self._outgoing.memory_bytes} bytes of its answer"
        elif self._later is not None:
            what = f"its request of {self._later.request_bytes} bytes waits"
        else:
            what = f"it has sent {self.held_bytes} bytes of a request"
        self.close("slow", f"{what}, and {why}")

    # Sending

    def deliver(self, parts: Parts | Silence) -> None:
        """Send the answer of a request that waited: in this turn, after what is being handled now."""
        self._later = None
        if self.is_closed:
            return
        if isinstance(parts, Silence):
            if parts is Silence.CLOSE:
                self.close(*(self._ending or _NO_ANSWER))
            else:
                # Data that has already arrived is handled before anything else is read.
                self.waits_for_turn = True
                self._count_memory()
                self._server.loop.call_soon(self.go_on)
            return
        self._outgoing.extend(parts)
        self._count_memory()
        self._server.loop.call_soon(partial(self._guarded, self._send_and_go_on))

    def _send_and_go_on(self) -> None:
        if not self.is_closed:
            self._send()
            self._count_memory()
            if self._ending is None:
                self._go_on()
            elif not self._outgoing:
                self.close(*self._ending)

    def _send_parts(self, parts: Parts) -> None:
        if len(parts) == 1 and not self._outgoing and type(parts[0]) is bytes:
            data = parts[0]
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self._outgoing.append(memoryview(data)[sent:])
                self._listen_for(WRITABLE)
            return
        self._outgoing.extend(parts)
        self._send()

    def _send(self) -> None:
        """Send as much as the socket takes, up to the limit of one client in a turn."""
        self.moved_bytes += self._outgoing.send(_SENT_PER_TURN_BYTES)
        self.last_active_ms = self._server.loop.now_ms
        if self._outgoing:
            self._listen_for(WRITABLE)

    def _listen_for(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._server.loop.change(self._socket.fileno(), events)

    # The end

    def on_fork(self) -> None:
        """In a forked child: close its copy of the socket, or the client would not notice when the parent closes it."""
        self._socket.close()

    def close(self, kind: str | None = None, reason: str = "") -> None:
        """Close the connection. A reason is logged in one line."""
        if self.is_closed:
            return
        self.is_closed = True
        if kind is not None:
            self._server.report_closed(kind, self.client_host, reason, self.node)
        for timer in (self._login_deadline, self._unmuting):
            if timer is not None:
                timer.cancel()
        self._server.forget(self)
        self._server.loop.forget(self._socket)
        self._outgoing.clear()
        self._reader = FrameReader(0)
        later, self._later = self._later, None
        self._count_memory()
        if later is not None:
            later.leave()


class TlsConnection(Connection):
    """A client with TLS. What OpenSSL holds already, epoll does not report: it is read in the next turn."""

    __slots__ = ("_tls", "_will_read")

    def __init__(
        self, server: ConnectionOwner, connected: TlsSocket, client_host: str, number: int, node: Node
    ) -> None:
        self._tls = connected
        self._will_read = False
        super().__init__(server, connected, client_host, number, node)

    def _serve(self, events: int) -> None:
        super()._serve(events)
        self._read_pending()

    def _go_on(self) -> None:
        super()._go_on()
        self._read_pending()

    def on_fork(self) -> None:
        # Not `close`, which says goodbye to the client of the parent.
        self._tls.abandon()

    def _read_pending(self) -> None:
        if not self._will_read and not self.is_closed and not self._is_busy() and self._tls.pending():
            self._will_read = True
            self._server.loop.call_soon(self._receive_pending)

    def _receive_pending(self) -> None:
        self._will_read = False
        # An event of the socket may have come first, and its answer may not be sent yet: `_go_on` follows then.
        if not self.is_closed and not self._is_busy():
            self._on_event(READABLE)
