"""Sessions of the console, by cookie. They are in memory only, so a restart ends them.

A cookie is 256 random bits. Only its SHA-256 is kept, so that the time of a lookup reveals nothing about the cookies.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from duralog.broker.security.web_users import WebUser

LONGEST_SECONDS = 12 * 3600
_MOST_SESSIONS = 1_000
_TOKEN_BYTES = 32


class _Session(NamedTuple):
    user: WebUser
    ends_at: float


class Sessions:
    """REQUIRES: one thread, that of the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}

    def open(self, user: WebUser) -> str:
        """A new session; if there are too many, the oldest ends. Returns the value of its cookie."""
        now = self._clock()
        self._sessions = {key: each for key, each in self._sessions.items() if each.ends_at > now}
        while len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[_key(token)] = _Session(user, now + LONGEST_SECONDS)
        return token

    def user(self, token: str) -> WebUser | None:
        session = self._sessions.get(_key(token))
        return session.user if session is not None and session.ends_at > self._clock() else None

    def close(self, token: str) -> None:
        self._sessions.pop(_key(token), None)


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
