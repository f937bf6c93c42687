"""SASL/PLAIN (RFC 4616): a name and a password. Users are in the JAAS configuration of the listener, as in Kafka."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from duralog.broker.security.failures import LoginFailed

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USER = "user_"
_TOKENS = 3


def plain_users(options: Mapping[str, str]) -> Mapping[str, bytes]:
    """The passwords by user, from the options `user_NAME="PASSWORD"`."""
    return {name.removeprefix(_USER): value.encode() for name, value in options.items() if name.startswith(_USER)}


class PlainLogin:
    """One log-in. A wrong name takes as long as a wrong password."""

    is_slow = False
    expires_ms: int | None = None

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        self.user: str | None = None

    def evaluate(self, response: bytes) -> bytes:
        tokens = response.decode("utf-8", "replace").split("\0", _TOKENS)
        if len(tokens) != _TOKENS:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}")
        authorization_id, name, password = tokens
        if not name:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified")
        expected = self._users.get(name)
        is_right = hmac.compare_digest(_digest(expected or b""), _digest(password.encode()))
        if expected is None or not is_right:
            raise LoginFailed("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != name:
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""


def _digest(password: bytes) -> bytes:
    """Of one length, so that the comparison does not show that of the password."""
    return hmac.digest(b"duralog", password, "sha256")
