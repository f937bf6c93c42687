"""The TLS handshake of a new client. A `Connection` is made only when it is done.

A handshake costs about a millisecond, most of it for the signature, so its steps run on worker threads; the loop waits
for the socket between them. While a worker has the socket, the loop does not watch it, and does not close it. A
handshake has a deadline; OpenSSL limits the size of its messages. After a failure the socket is open for a moment: if
it were closed while data of the client is unread, the client would not see the alert that says why.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any, Protocol

from duralog.broker.net.event_loop import READABLE, WRITABLE, EventLoop
from duralog.broker.net.tls_socket import TlsSocket
from duralog.broker.net.workers import Workers
from duralog.broker.security.principal_mapping import subject_of
from duralog.broker.security.tls import TlsSettings
from duralog.broker.wire.principal import ANONYMOUS, Principal
from duralog.errors import DuralogError

HANDSHAKE_MS = 10_000
"""A slower client is closed."""
_ALERT_MS = 100
"""The time for a client to read why its handshake failed."""


class HandshakeOwner(Protocol):
    loop: EventLoop
    login_workers: Workers

    def handshake_done(self, handshake: Handshake, connected: TlsSocket, principal: Principal) -> None: ...

    def handshake_failed(self, handshake: Handshake, reason: str) -> None: ...

    def handshake_closed(self, handshake: Handshake) -> None: ...


class Handshake:
    """One client that is not connected yet. All of it happens on the loop's thread, but `_step`."""

    def __init__(
        self, owner: HandshakeOwner, connected: socket.socket, client_host: str, settings: TlsSettings, admit: Any
    ) -> None:
        """`admit` is kept for the owner."""
        self.client_host = client_host
        self.admit = admit
        self._owner = owner
        self._mapping = settings.mapping
        self._is_with_worker = False
        self._is_over = False
        self._socket = settings.context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
        self._watch(READABLE)
        self._deadline = owner.loop.timers.after(
            HANDSHAKE_MS, lambda: self._fail(f"its TLS handshake took more than {HANDSHAKE_MS // 1000} seconds")
        )

    def close(self) -> None:
        """The broker stops, or the client had its time to read the alert."""
        if not self._is_over:
            self._finish()
        if not self._is_with_worker:
            self._socket.close()
            self._owner.handshake_closed(self)

    def abandon(self) -> None:
        """Close this process's copy of the socket: in a forked child, or when no worker will return it."""
        self._socket.close()

    def _on_event(self, _: int) -> None:
        # Not `change` to no events: epoll reports a broken connection even then, in every turn.
        self._owner.loop.unwatch(self._socket.fileno())
        self._owner.login_workers.submit(self._step, self._stepped)
        self._is_with_worker = True

    def _step(self) -> Principal | int:
        """On a worker thread: as far as what has arrived goes. Returns the principal, or what to wait for."""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return int(READABLE)
        except ssl.SSLWantWriteError:
            return int(WRITABLE)
        certificate = self._socket.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        return Principal(self._mapping.user(subject_of(certificate)))

    def _stepped(self, result: Principal | int, error: Exception | None) -> None:
        self._is_with_worker = False
        if self._is_over:
            self.close()
        elif error is not None:
            self._fail(_reason(error))
        elif isinstance(result, int):
            self._watch(result)
        else:
            self._finish()
            self._owner.handshake_done(self, TlsSocket(self._socket), result)

    def _fail(self, reason: str) -> None:
        if self._is_over:
            return
        self._finish()
        self._owner.handshake_failed(self, reason)
        if not self._is_with_worker:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            self._owner.loop.timers.after(_ALERT_MS, self.close)

    def _finish(self) -> None:
        self._is_over = True
        self._deadline.cancel()
        self._owner.loop.unwatch(self._socket.fileno())

    def _watch(self, events: int) -> None:
        self._owner.loop.watch(self._socket.fileno(), events, self._on_event)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or type(error).__name__
        if reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL"):
            return f"it does not speak TLS ({reason}): set security.protocol of the client to SSL or SASL_SSL"
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "it has no certificate, and ssl.client.auth=required"
        return f"its TLS handshake failed: {reason}"
    if isinstance(error, DuralogError):
        return str(error)
    return f"its TLS handshake failed: {type(error).__name__}"
