"""The connections of the console: accepts them, counts them, and closes those whose clients keep it waiting.

uvicorn by itself never closes a connection that sends nothing. Clients without a log-in could hold all descriptors.

| a connection | is closed after |
|---|---|
| without a complete request yet: its TLS handshake, its head or its body is missing | 8 seconds |
| whose client does not read the answer, or begins another request and does not complete it | 30 seconds |
| whose request is at work, or that is the socket of a page | never |

If too many are open, in all or from one network, the one that has waited longest for its client makes room for the
next. So silent clients cannot lock out others, not even from the same address. If none waits, the new connection is
refused. Either is logged once a minute.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from duralog.console.access import Application, Message, Receive, Scope, Send, network_of

MOST_CONNECTIONS = 1_000
_FIRST_SECONDS = 8.0
_NEXT_SECONDS = 30.0
_LOOK_SECONDS = 1.0
_WARNING_SECONDS = 60.0
_WAITING_TO_BE_ACCEPTED = 1_024
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_logger = logging.getLogger(__name__)

_Ends = tuple[Any, Any]
"""The addresses of the client and of the console, as the scope of a request has them."""


class Connection:
    """One connection, and since when it waits for its client."""

    def __init__(self, connected: socket.socket, network: str, now: float) -> None:
        self.network = network
        self._socket = connected
        self._close: Callable[[], object] = connected.close
        self._waits_since: float | None = now
        self._patience = _FIRST_SECONDS
        self._unread_since: float | None = None

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    @property
    def waits_since(self) -> float | None:
        """None: the console is at work on its request."""
        return self._unread_since if self._waits_since is None else self._waits_since

    def is_late(self, now: float) -> bool:
        if self._unread_since is not None and now - self._unread_since > _NEXT_SECONDS:
            return True
        return self._waits_since is not None and now - self._waits_since > self._patience

    def close_with(self, close: Callable[[], object]) -> None:
        self._close = close

    def close(self) -> None:
        self._close()

    def wait(self, now: float, *, is_first: bool) -> None:
        self._waits_since, self._patience = now, _FIRST_SECONDS if is_first else _NEXT_SECONDS

    def work(self) -> None:
        self._waits_since = None

    def wait_for_reader(self, now: float | None) -> None:
        self._unread_since = now


class Connections:
    """An ASGI application around another one, and the listener that its requests come from. One event loop."""

    def __init__(
        self, application: Application, *, most: int = MOST_CONNECTIONS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Half of `most` may come from one network."""
        self._application = application
        self._most = most
        self._clock = clock
        self._open: dict[_Ends, Connection] = {}
        self._turned_away = 0
        self._why = ""
        self._warned_at: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._open.get((scope.get("client"), scope.get("server")))
        if connection is None:
            await self._application(scope, receive, send)
            return
        connection.work()
        try:
            if scope["type"] == "http":
                receive, send = self._timed(connection, receive, send)
            await self._application(scope, receive, send)
        finally:
            connection.wait(self._clock(), is_first=False)

    async def accept(
        self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        """Accept connections until cancelled. REQUIRES: the listener was given to `listen`."""
        loop = asyncio.get_running_loop()
        looking = loop.create_task(self._look())
        try:
            while True:
                try:
                    connected, address = await loop.sock_accept(listener)
                except OSError as error:
                    has_descriptors = error.errno not in _NO_DESCRIPTORS
                    if not has_descriptors:
                        self._turn_away(f"a connection cannot be accepted: {error.strerror}")
                    # Others get a turn, whatever error it is and however long it stays.
                    await asyncio.sleep(0 if has_descriptors else _LOOK_SECONDS)
                    continue
                with suppress(OSError):  # The client may be gone.
                    self._admit(connected, address, protocol, tls)
                # Others get a turn, however many connect.
                await asyncio.sleep(0)
        finally:
            looking.cancel()

    def close_late(self) -> None:
        """Close the connections that have waited too long for their clients."""
        now = self._clock()
        for ends, connection in tuple(self._open.items()):
            if not connection.is_open:
                del self._open[ends]
            elif connection.is_late(now):
                self._close(ends)
        self._warn()

    def make_room(self, network: str) -> bool:
        """Whether one more connection may come from there."""
        if self._has_room(network):
            return True
        self.close_late()
        if self._has_room(network):
            return True
        is_network_full = self._count(network) >= self._most // 2
        waiting = {
            ends: connection.waits_since
            for ends, connection in self._open.items()
            if connection.waits_since is not None and (connection.network == network or not is_network_full)
        }
        self._turn_away(
            f"{len(self._open)} connections are open, {self._count(network)} of them from {network}: the most are"
            f" {self._most}, and {self._most // 2} from one network"
        )
        if waiting:
            self._close(min(waiting, key=lambda ends: waiting[ends] or 0.0))
        return bool(waiting)

    def add(self, ends: _Ends, connected: socket.socket, network: str) -> Connection:
        connection = self._open[ends] = Connection(connected, network, self._clock())
        return connection

    def _has_room(self, network: str) -> bool:
        return len(self._open) < self._most and self._count(network) < self._most // 2

    def _count(self, network: str) -> int:
        return Counter(connection.network for connection in self._open.values())[network]

    def _close(self, ends: _Ends) -> None:
        self._open.pop(ends).close()

    def _admit(
        self,
        connected: socket.socket,
        address: Any,
        protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        network = network_of(address[0])
        if not self.make_room(network):
            connected.close()
            return
        connected.setblocking(False)
        connection = self.add((address[:2], connected.getsockname()[:2]), connected, network)

        async def serve() -> None:
            with suppress(OSError):
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    protocol, connected, ssl=tls, ssl_handshake_timeout=None if tls is None else _FIRST_SECONDS
                )
                connection.close_with(transport.abort)

        # Until the handshake is done, there is no transport.
        connection.close_with(asyncio.get_running_loop().create_task(serve()).cancel)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.close_late()

    def _timed(self, connection: Connection, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """The channels of a request, with the time that they wait for the client."""
        has_more = True

        async def receive_timed() -> Message:
            nonlocal has_more
            if not has_more:
                return await receive()
            connection.wait(self._clock(), is_first=True)
            try:
                message = await receive()
            finally:
                connection.work()
            has_more = bool(message.get("more_body", False))
            return message

        async def send_timed(message: Message) -> None:
            connection.wait_for_reader(self._clock())
            try:
                await send(message)
            finally:
                connection.wait_for_reader(None)

        return receive_timed, send_timed

    def _turn_away(self, why: str) -> None:
        self._turned_away += 1
        self._why = why
        self._warn()

    def _warn(self) -> None:
        now = self._clock()
        if self._turned_away and (self._warned_at is None or now - self._warned_at >= _WARNING_SECONDS):
            _logger.warning("%s; %d were closed or refused since the last warning", self._why, self._turned_away)
            self._turned_away, self._warned_at = 0, now


def listen(listener: socket.socket) -> None:
    """From now on, clients can connect."""
    listener.setblocking(False)
    listener.listen(_WAITING_TO_BE_ACCEPTED)


def most_connections(open_files: int) -> int:
    """How many connections leave enough of the process's descriptors for files."""
    return MOST_CONNECTIONS if open_files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, open_files // 2)
