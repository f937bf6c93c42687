"""TLS for web pages: a certificate and its key in PEM, which are read again when a file changes.

A connection gets the newest certificate at its handshake. One that cannot be loaded is logged, and the old one stays.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable

from duralog.errors import InvalidConfig

_logger = logging.getLogger(__name__)

_CHECK_SECONDS = 5.0
_State = tuple[tuple[int, int, int] | None, ...]


class WebTls:
    """`context` is for the server's socket. Any thread may do handshakes with it."""

    def __init__(self, certificate: str, key: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`key` is None if it is in the file of the certificate."""
        self._certificate = certificate
        self._key = key
        self._clock = clock
        self._lock = threading.Lock()
        self._state = self._files()
        self._checked_at = clock()
        self._newest = self._load()
        self.context = self._newest
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        """At each handshake, whether or not the client names a host."""
        with self._lock:
            if self._clock() - self._checked_at >= _CHECK_SECONDS:
                self._checked_at = self._clock()
                self._reload()
            newest = self._newest
        if newest is not self.context:
            connection.context = newest

    def _reload(self) -> None:
        state = self._files()
        if state == self._state:
            return
        self._state = state
        try:
            self._newest = self._load()
        except InvalidConfig as error:
            _logger.error("%s; the certificate stays as it was", error)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        for path in (self._certificate, self._key):
            if path is not None and not os.access(path, os.R_OK):
                raise InvalidConfig(f"{path}: it cannot be read: give the certificate and its key as PEM files")
        try:
            context.load_cert_chain(self._certificate, self._key, _no_password)
        except (ssl.SSLError, ValueError) as error:
            raise InvalidConfig(
                f"{self._certificate}: expected a certificate and its key in PEM, without a password; {_reason(error)}"
            ) from None
        return context

    def _files(self) -> _State:
        return tuple(file_state(path) for path in (self._certificate, self._key) if path is not None)


def _no_password() -> str:
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()


def file_state(path: str) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
