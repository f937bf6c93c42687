"""The public keys that tokens are signed with: a JWK set (RFC 7517) from a file or an https address.

They are fetched by the worker thread that needs them, never by the loop: at the first log-in, when they are older than
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and when a token names a key that is not among them, but then not more than
once in ten seconds. If they cannot be fetched, those that are there are used on. While one thread fetches, others use
the keys that are there: an issuer that answers slowly holds up the tokens with unknown keys only.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import jwt

from duralog.broker.security.failures import LoginFailed
from duralog.config.redirects import NoRedirects
from duralog.errors import InvalidConfig

_logger = logging.getLogger("duralog.broker")

_SECONDS = 10.0
_LEAST_SECONDS_BETWEEN = 10.0
_LARGEST_BYTES = 1 << 20
_KEY_TYPES = ("RSA", "EC")
_MOST_NAMED = 5
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class TokenKeys:
    """The keys at one URL. Any thread may use it."""

    def __init__(self, url: str, refresh_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        parts = urlsplit(url)
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if parts.scheme not in ("https", "file") and not is_local:
            raise InvalidConfig(
                f"sasl.oauthbearer.jwks.endpoint.url: {url} is not an https or file URL: others could be forged"
            )
        self.url = url
        self._refresh_seconds = refresh_ms / 1000
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        if parts.scheme == "file":
            self._keys = _fetched(url)
            self._fetched_at = self._tried_at = clock()

    def find(self, key_id: str | None) -> jwt.PyJWK:
        """A key by its id; without one, the only key. It may fetch, so it may block."""
        if self._clock() - self._fetched_at > self._refresh_seconds or self._known(key_id) is None:
            self._refresh()
        key = self._known(key_id)
        if key is None:
            raise LoginFailed("the token is signed with a key that is not known")
        return key

    def _known(self, key_id: str | None) -> jwt.PyJWK | None:
        keys = self._keys
        if key_id is None:
            return next(iter(keys.values())) if len(keys) == 1 else None
        return keys.get(key_id)

    def _refresh(self) -> None:
        if not self._lock.acquire(blocking=not self._keys):
            return
        try:
            if self._clock() - self._tried_at < _LEAST_SECONDS_BETWEEN:
                return
            try:
                self._keys = _fetched(self.url)
                self._fetched_at = self._clock()
            except InvalidConfig as error:
                _logger.error("%s", error)
            finally:
                self._tried_at = self._clock()
        finally:
            self._lock.release()


def _fetched(url: str) -> Mapping[str | None, jwt.PyJWK]:
    opener = urllib.request.build_opener(NoRedirects)
    try:
        with opener.open(url, timeout=_SECONDS) as answer:
            data = _received(answer)
        entries = json.loads(data)["keys"]
        wanted = [entry for entry in entries if entry.get("kty") in _KEY_TYPES and entry.get("use", "sig") == "sig"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise InvalidConfig(f"sasl.oauthbearer.jwks.endpoint.url: no keys from {url}: {reason}") from None
    keys: list[jwt.PyJWK] = []
    reasons: list[str] = []
    for entry in wanted:
        try:
            keys.append(jwt.PyJWK.from_dict(entry))
        except (ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError) as error:
            reasons.append(f"{str(entry.get('kid'))[:50]!r} ({type(error).__name__}: {error})"[:200])
    if reasons:
        _logger.warning("%d keys of %s cannot be used: %s", len(reasons), url, ", ".join(reasons[:_MOST_NAMED]))
    if not keys:
        raise InvalidConfig(f"sasl.oauthbearer.jwks.endpoint.url: {url} holds no RSA or EC key for signatures")
    return {key.key_id: key for key in keys}


def _received(answer: Any) -> bytes:
    """The body, within a time limit for all of it: the timeout of a socket is one for each piece."""
    until = time.monotonic() + _SECONDS
    data = b""
    while len(data) <= _LARGEST_BYTES and (piece := answer.read1(_LARGEST_BYTES)):
        data += piece
        if time.monotonic() > until:
            raise TimeoutError(f"the answer took more than {_SECONDS:.0f} seconds")
    if len(data) > _LARGEST_BYTES:
        raise ValueError(f"the answer has more than {_LARGEST_BYTES} bytes")
    return data
