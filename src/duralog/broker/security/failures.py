"""Why a log-in fails. Neither text contains a secret, and what the client gets does not say whether a user exists."""

from __future__ import annotations

from duralog.errors import DuralogError


class LoginFailed(DuralogError):
    """The client gets this text. In Kafka: `SaslAuthenticationException`."""

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        """`reason` is for the log, if it says more than the client gets."""
        super().__init__(message)
        self.reason = message if reason is None else reason


class InvalidCredentials(DuralogError):
    """This text is for the log; the client gets the same for all of them. In Kafka: `SaslException`."""
