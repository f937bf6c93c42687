"""The listening sockets and all connections: admission, idle timeouts, backpressure.

A client above a limit is closed at once with one log line; other clients are not affected. When too many requests are
in progress on worker threads, no further request starts until there is room: clients wait in their sockets, not in
memory.
"""

from __future__ import annotations

import errno
import resource
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from duralog.broker.net.connection import Connection, TlsConnection
from duralog.broker.net.dispatch import Dispatcher
from duralog.broker.net.event_loop import READABLE, EventLoop
from duralog.broker.net.handshake import Handshake
from duralog.broker.net.limits import ConnectionLimits
from duralog.broker.net.log_lines import LogLines, error_text
from duralog.broker.net.request_memory import RequestMemory
from duralog.broker.net.tls_socket import TlsSocket
from duralog.broker.net.workers import Workers
from duralog.broker.security.listener_security import ListenerSecurity
from duralog.broker.security.sasl import SaslSession
from duralog.broker.wire.frames import SHARED_BUFFER_BYTES
from duralog.broker.wire.principal import ANONYMOUS, Principal
from duralog.broker.wire.request import Node
from duralog.config import BrokerConfig
from duralog.storage.disk.background import Clock, wall_clock_ms

_ACCEPTED_PER_TURN = 64
_LET_ON_PER_TURN = 16
"""How many waiting connections continue in one turn. Each may take some milliseconds, and other clients wait too."""
_SHORTEST_IDLE_CHECK_MS = 50
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_MS = 100
_MOST_HELD = 100
"""Connections above a quota that are held. Those beyond it are closed at once."""
_LOGIN_THREADS = 2
_RELOAD_MS = 5_000
"""How often the files of certificates are checked for changes."""
_KEPT_DESCRIPTORS = 256
"""Descriptors reserved for the files of the store, or an eighth of all if that is less."""
_LOGIN_FAILURES = {"log-in": "SASL_AUTHENTICATION_FAILED", "TLS handshake": "SSL_HANDSHAKE_FAILED"}
"""The result of a failed log-in, by the reason why the connection is closed."""
_IPV4_IN_IPV6 = "::ffff:"
"""The prefix of an IPv4 address on a dual-stack socket."""


class _WayIn(NamedTuple):
    """The settings of a listener for its connections."""

    node: Node
    security: ListenerSecurity | None
    listener: str
    """Its name."""


class Server:
    """Everything with a socket. Only the loop's thread uses it."""

    def __init__(
        self,
        loop: EventLoop,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        log_lines: LogLines,
        config: Callable[[], BrokerConfig],
        *,
        clock: Clock = wall_clock_ms,
    ) -> None:
        self.loop = loop
        self.dispatcher = dispatcher
        self.limits = limits
        self.receive_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.spare_buffers: list[memoryview] = []
        self.memory = RequestMemory(
            loop,
            limits.most_request_bytes,
            limits.largest_request_bytes,
            holders=lambda: list(self._connections.values()),
        )
        self.login_workers = Workers(loop.call_soon, _LOGIN_THREADS)
        """For TLS handshakes."""
        self._token_workers = Workers(loop.call_soon, _LOGIN_THREADS)
        """For tokens: they may have to wait for the keys of the issuer."""
        self._clock = clock
        self._handshakes: set[Handshake] = set()
        self._securities: list[ListenerSecurity] = []
        self._followed: BrokerConfig | None = None
        self._is_reloading = False
        self.background_requests = 0
        self.refused = 0
        """Connections refused because of a limit."""
        self.closed: Counter[str] = Counter()
        """Connections closed by the broker, by reason."""
        self.throttle_connection: Callable[[str], float] | None = None
        """With a quota: counts a new connection from an address, and returns how many ms it is held unserved."""
        self._held: set[socket.socket] = set()
        self._log_lines = log_lines
        self._config = config
        self._connections: dict[int, Connection] = {}
        self._last_number = 0
        self._waiting_for_room: dict[int, Connection] = {}
        self._listeners: list[socket.socket] = []
        self.on_login_failure: Callable[[str, Node | None, str, str], None] | None = None
        """Called with the host, this node by its listener, if it is known, the result and the reason."""
        self._is_stopping = False

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections.values())

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # Accepting

    def listen(self, listener: socket.socket, node: Node, name: str, security: ListenerSecurity | None) -> None:
        """Accept clients, which know this broker as that node. REQUIRES: the socket is bound.

        Without `security`, they are neither encrypted nor authenticated.
        """
        listener.setblocking(False)
        try:
            listener.listen(self._config().socket_listen_backlog_size)
        except OSError as error:
            # Two processes may bind one address, but only one may listen there: the other was first.
            host, port = listener.getsockname()[:2]
            raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from error
        if not self._listeners and self.limits.idle_ms >= 0:
            self._check_idle()
        self._listeners.append(listener)
        way_in = _WayIn(node, security, name)
        if security is not None:
            if not self._securities:
                self._followed = self._config()
                self._reload()
            self._securities.append(security)
        self.loop.watch(listener.fileno(), READABLE, partial(self._accept, listener, way_in))

    def _accept(self, listener: socket.socket, way_in: _WayIn, _: int) -> None:
        for _turn in range(_ACCEPTED_PER_TURN):
            try:
                connected, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                # New clients stay in the kernel's queue. Without a pause, the loop would do nothing but fail here.
                self._log_lines.warn("accept", f"no new connections for now: {error.strerror}")
                self.loop.change(listener.fileno(), 0)
                self.loop.timers.after(_PAUSE_MS, partial(self._accept_again, listener))
                return
            self._admit(connected, str(address[0]).removeprefix(_IPV4_IN_IPV6), way_in)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self.loop.change(listener.fileno(), READABLE)

    def _admit(self, connected: socket.socket, host: str, way_in: _WayIn) -> None:
        config = self._config()
        self.limits.follow(config)
        if self._securities and config is not self._followed:
            self._follow_securities()
        refusal = self.limits.refusal(host, way_in.listener)
        if refusal is None and not _is_for_clients(connected.fileno()):
            refusal = "the descriptors that are left are for files (ulimit -n)"
        if refusal is not None:
            self.refused += 1
            self._log_lines.warn("refused", f"a connection from {host} is refused: {refusal}")
            connected.close()
            return
        delay_ms = 0.0 if self.throttle_connection is None else self.throttle_connection(host)
        if delay_ms > 0:
            self._hold(connected, delay_ms)
            return
        tls = None if way_in.security is None else way_in.security.tls
        try:
            _prepare(connected, config)
            if tls is None:
                self._connect(connected, host, way_in, ANONYMOUS)
            else:
                self._handshakes.add(Handshake(self, connected, host, tls, way_in))
        except OSError as error:
            self._log_lines.warn("refused", f"a connection from {host} cannot be served: {error}")
            connected.close()
            return
        self.limits.add(host, way_in.listener)

    def _connect(self, connected: socket.socket | TlsSocket, host: str, way_in: _WayIn, principal: Principal) -> None:
        self._last_number += 1
        number, node, security = self._last_number, way_in.node, way_in.security
        connection = (
            TlsConnection(self, connected, host, number, node)
            if isinstance(connected, TlsSocket)
            else Connection(self, connected, host, number, node)
        )
        connection.principal = principal
        connection.listener = way_in.listener
        self._connections[number] = connection
        if security is not None and security.has_sasl:
            session = SaslSession(security.sasl, connection, self.dispatcher.dispatch, self)
            connection.begin_login(session, security.sasl().largest_token_bytes)

    # Log-ins

    def handshake_done(self, handshake: Handshake, connected: TlsSocket, principal: Principal) -> None:
        self._handshakes.discard(handshake)
        self._connect(connected, handshake.client_host, handshake.admit, principal)

    def handshake_closed(self, handshake: Handshake) -> None:
        self._handshakes.discard(handshake)

    def handshake_failed(self, handshake: Handshake, reason: str) -> None:
        self.limits.remove(handshake.client_host, handshake.admit.listener)
        self.report_closed("TLS handshake", handshake.client_host, reason, handshake.admit.node)

    def after(self, delay_ms: float, work: Callable[[], None]) -> object:
        return self.loop.timers.after(delay_ms, work)

    def run(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        self._token_workers.submit(work, then)

    def now_ms(self) -> float:
        return self.loop.now_ms

    def wall_clock_ms(self) -> int:
        return self._clock()

    def _reload(self) -> None:
        """Check the files of certificates from time to time."""
        if not self._is_stopping:
            self.loop.timers.after(_RELOAD_MS, self._reload)
            if self._securities:
                self._follow_securities()

    def _follow_securities(self) -> None:
        if self._is_reloading:
            return
        self._is_reloading = True
        self._followed = config = self._config()

        def follow() -> None:
            for security in list(self._securities):
                security.follow(config)

        self.login_workers.submit(follow, self._after_reload)

    def _after_reload(self, _: Any, error: Exception | None) -> None:
        self._is_reloading = False
        if error is not None:
            self._log_lines.fail("reload", f"certificates could not be loaded again: {error_text(error)}")

    def _hold(self, connected: socket.socket, milliseconds: float) -> None:
        """Keep a connection above its quota for a while, so that its client cannot try again at once. Then close it."""
        self.refused += 1
        if len(self._held) >= _MOST_HELD:
            connected.close()
            return
        self._held.add(connected)
        self.loop.timers.after(milliseconds, partial(self._let_go, connected))

    def _let_go(self, connected: socket.socket) -> None:
        self._held.discard(connected)
        connected.close()

    # Backpressure

    def has_room(self) -> bool:
        """Whether another request may start."""
        return self.background_requests < self.limits.most_requests and not self._is_stopping

    def wait_for_room(self, connection: Connection) -> None:
        connection.waits_for_room = True
        self._waiting_for_room[connection.number] = connection

    def background_began(self) -> None:
        self.background_requests += 1

    def background_ended(self) -> None:
        self.background_requests -= 1
        self._pass_room_on()

    def _pass_room_on(self) -> None:
        for _ in range(_LET_ON_PER_TURN):
            if not self._waiting_for_room or not self.has_room():
                return
            number = next(iter(self._waiting_for_room))
            self._waiting_for_room.pop(number).go_on()
        self.loop.call_soon(self._pass_room_on)

    # Closing

    def _check_idle(self) -> None:
        idle_ms = self.limits.idle_ms
        # First: the next check must happen even if one of them fails.
        self.loop.timers.after(max(idle_ms / 4, _SHORTEST_IDLE_CHECK_MS), self._check_idle)
        since = self.loop.now_ms - idle_ms
        for connection in self.connections:
            if connection.last_active_ms >= since or connection.waits_for_memory or connection.is_muted:
                continue
            if connection.is_waiting and not connection.has_ended:
                continue
            if connection.is_owed:
                connection.close("unread answer", f"it has read nothing for {idle_ms} ms")
            elif connection.held_bytes:
                held = f"it has sent {connection.held_bytes} bytes of a request"
                connection.close("half request", f"{held}, and nothing for {idle_ms} ms")
            else:
                connection.close("idle", f"nothing was heard from it for {idle_ms} ms")

    def report_closed(self, kind: str, host: str, reason: str, node: Node | None = None) -> None:
        self.closed[kind] += 1
        if kind in _LOGIN_FAILURES and self.on_login_failure is not None:
            self.on_login_failure(host, node, _LOGIN_FAILURES[kind], reason)
        self._log_lines.warn(f"closed {kind}", f"the connection from {host} is closed: {reason}")

    def forget(self, connection: Connection) -> None:
        """Called by a connection that is closed."""
        self._waiting_for_room.pop(connection.number, None)
        self.memory.forget(connection)
        if self._connections.pop(connection.number, None) is not None:
            self.limits.remove(connection.client_host, connection.listener)

    # The end

    def stop_accepting(self) -> None:
        """No new connection and no new request. Requests in progress continue."""
        self._is_stopping = True
        for listener in self._listeners:
            self.loop.forget(listener)
        self._listeners = []

    @property
    def is_quiet(self) -> bool:
        """Whether no request is in progress on a worker thread, and every answer has been sent."""
        return self.background_requests == 0 and not any(
            connection.is_owed for connection in self._connections.values()
        )

    def on_fork(self) -> None:
        """In a forked child: close its copies of the sockets. The clients stay with the parent."""
        for opened in (*self._listeners, *self._held):
            opened.close()
        for connection in self.connections:
            connection.on_fork()
        for handshake in self._handshakes:
            handshake.abandon()

    def close(self) -> None:
        """Close all connections."""
        self.stop_accepting()
        for handshake in list(self._handshakes):
            handshake.close()
        for workers in (self.login_workers, self._token_workers):
            workers.close()
        for handshake in self._handshakes:
            handshake.abandon()
        for connection in self.connections:
            connection.close()
        for held in list(self._held):
            self._let_go(held)


def _prepare(connected: socket.socket, config: BrokerConfig) -> None:
    connected.setblocking(False)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Kafka's default would only switch off the kernel's own tuning of the size.
    for name, option in (("send", socket.SO_SNDBUF), ("receive", socket.SO_RCVBUF)):
        size = config.get(f"socket.{name}.buffer.bytes")
        if f"socket.{name}.buffer.bytes" in config.given and size > 0:
            connected.setsockopt(socket.SOL_SOCKET, option, size)


def _is_for_clients(descriptor: int) -> bool:
    """Whether enough descriptors are left above this one: the kernel always takes the lowest free one."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most == resource.RLIM_INFINITY or descriptor < most - min(_KEPT_DESCRIPTORS, most // 8)
