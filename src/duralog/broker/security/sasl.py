"""The log-in of one connection by SASL. In Kafka: `SaslServerAuthenticator`.

| state | what the client may send |
|---|---|
| VERSIONS | ApiVersions once, or SaslHandshake |
| HANDSHAKE | SaslHandshake |
| TOKENS | SaslAuthenticate; after a SaslHandshake of version 0, bare tokens with a size before each |
| DONE | everything; SaslHandshake begins another log-in, if the session ends by itself |
| FAILED | nothing more |

Until it is DONE, requests are small (`sasl.server.max.receive.size`), and the time for the first log-in is limited. A
log-in that fails is answered after `connection.failed.authentication.delay.ms`, then the connection is closed. A second
one must be by the same mechanism and user. All of it happens on the loop's thread; slow mechanisms evaluate on a worker
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from duralog.broker.security.failures import InvalidCredentials, LoginFailed
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.frames import decode_header
from duralog.broker.wire.principal import Principal
from duralog.broker.wire.request import CLOSE, DelayedAnswer, Fields, Silence

API_VERSIONS = 18
SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
_SIZE_BYTES = 4
_SHORTEST_BETWEEN_LOGINS_MS = 1000
"""A client may not log in again more often, as in Kafka."""
_HANDSHAKE_BYTES = SASL_HANDSHAKE.to_bytes(2, "big")
_LARGEST_REFUSED_BYTES = 2048
"""A larger request in place of a token ends the connection: decoding it, for an error answer, would hold up others."""


class Login(Protocol):
    """One exchange of a mechanism."""

    is_slow: bool
    """Whether `evaluate` runs on a worker thread."""
    user: str | None
    """The name of the user, when the exchange is complete."""
    expires_ms: int | None
    """When the credential itself ends, by the wall clock."""

    def evaluate(self, response: bytes) -> bytes:
        """The answer to a token of the client. Raises LoginFailed or InvalidCredentials."""


@dataclass(frozen=True, slots=True)
class SaslMechanism:
    name: str
    make: Callable[[], Login]
    max_reauth_ms: int


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Of a listener."""

    mechanisms: dict[str, SaslMechanism]
    """By name, in the order of `sasl.enabled.mechanisms`."""
    largest_token_bytes: int
    failure_delay_ms: int


class Client(Protocol):
    """The connection that logs in."""

    principal: Principal

    def deliver(self, parts: Any) -> None: ...

    def limit_requests(self, largest_bytes: int) -> None:
        """Until it is logged in, larger requests end the connection."""

    def logged_in(self) -> None:
        """Larger requests are allowed from now on, and there is no time limit any more."""

    def end_after_answer(self, kind: str, reason: str) -> None:
        """Close when the answer is sent."""


class Environment(Protocol):
    """What log-ins need of the broker."""

    def after(self, delay_ms: float, work: Callable[[], None]) -> object: ...

    def run(self, work: Callable[[], Any], then: Callable[[Any, Exception | None], None]) -> None:
        """On a worker thread."""

    def now_ms(self) -> float:
        """By a steady clock."""

    def wall_clock_ms(self) -> int: ...


class State(Enum):
    VERSIONS = "before the handshake"
    HANDSHAKE = "before the SASL handshake"
    TOKENS = "during the authentication"
    DONE = "after the authentication"
    FAILED = "after a failed authentication"


class SaslSession:
    """The log-ins of one connection."""

    def __init__(
        self,
        settings: Callable[[], SaslSettings],
        client: Client,
        dispatch: Callable[..., Any],
        environment: Environment,
    ) -> None:
        """`dispatch` handles requests, those of the log-in included: their handlers call `handshake` and so on."""
        self._current_settings = settings
        self._settings = settings()
        self._client = client
        self._dispatch = dispatch
        self._environment = environment
        self._state = State.VERSIONS
        self._mechanism: SaslMechanism | None = None
        self._login: Login | None = None
        self._has_bare_tokens = False
        self._is_again = False
        self._ends_at_ms: float | None = None
        """When the session ends, by the steady clock."""
        self._last_again_ms = float("-inf")
        self._bad_mechanism: str | None = None

    # Frames

    def dispatch(self, frame: memoryview, peer: Any) -> Any:
        """Handle a request, if the state allows it."""
        if self._state is State.DONE:
            if self._ends_at_ms is None:
                return self._dispatch(frame, peer)
            return self._dispatch_in_session(frame, peer)
        if self._bad_mechanism is not None:
            return self._ended_later(CLOSE, self._bad_mechanism)
        if self._has_bare_tokens and self._state is State.TOKENS:
            return self._bare_token(bytes(frame))
        api_key = decode_header(frame).api_key
        if self._state is State.TOKENS:
            if api_key == SASL_AUTHENTICATE:
                return self._dispatch(frame, peer)
            reason = f"Unexpected Kafka request of type {api_key} during SASL authentication."
            if len(frame) > _LARGEST_REFUSED_BYTES:
                return self._ended_later(CLOSE, reason)
            return self._ended_later(self._dispatch(frame, peer, (codes.ILLEGAL_SASL_STATE, reason)), reason)
        if api_key == SASL_HANDSHAKE or (api_key == API_VERSIONS and self._state is State.VERSIONS):
            return self._dispatch(frame, peer)
        return self._ended_later(CLOSE, f"Unexpected Kafka request of type {api_key} during SASL handshake.")

    def _dispatch_in_session(self, frame: memoryview, peer: Any) -> Any:
        assert self._ends_at_ms is not None
        now = self._environment.now_ms()
        is_handshake = frame[:2] == _HANDSHAKE_BYTES
        if is_handshake and now - self._last_again_ms >= _SHORTEST_BETWEEN_LOGINS_MS:
            self._last_again_ms = now
            self._is_again = True
            self._settings = self._current_settings()
            self._client.limit_requests(self._settings.largest_token_bytes)
            self._state = State.HANDSHAKE
        elif now >= self._ends_at_ms:
            self._client.end_after_answer("session", "its session has ended, and it has not logged in again")
            return CLOSE
        return self._dispatch(frame, peer)

    # What handlers call

    @property
    def is_open(self) -> bool:
        """Whether requests of the log-in are expected now."""
        return self._state in (State.HANDSHAKE, State.VERSIONS, State.TOKENS)

    def answered_versions(self) -> None:
        """ApiVersions was answered without an error."""
        if self._state is State.VERSIONS:
            self._state = State.HANDSHAKE

    def handshake(self, mechanism_name: str, version: int) -> Fields | DelayedAnswer:
        """The answer to SaslHandshake."""
        names = list(self._settings.mechanisms)
        mechanism = self._settings.mechanisms.get(mechanism_name)
        if mechanism is None:
            answer = {"error_code": codes.UNSUPPORTED_SASL_MECHANISM, "mechanisms": names}
            return self._failed_later(answer, "Unsupported SASL mechanism")
        self._has_bare_tokens = version == 0
        before, self._state = self._mechanism, State.TOKENS
        if self._is_again and before is not None and before.name != mechanism.name:
            self._bad_mechanism = (
                f"SASL mechanism '{mechanism.name}' requested by client is not supported for re-authentication of"
                f" mechanism '{before.name}'"
            )
        else:
            self._mechanism = mechanism
            self._login = mechanism.make()
        return {"error_code": codes.NONE, "mechanisms": names}

    def authenticate(self, token: bytes) -> Fields | DelayedAnswer:
        """The answer to SaslAuthenticate."""
        login = self._login
        assert login is not None
        if not login.is_slow:
            try:
                return self._evaluated(login.evaluate(token))
            except Exception as error:  # Also a defect: the client must not try again and again without a delay.
                return self._refused(error)
        later = DelayedAnswer()

        def then(response: bytes, error: Exception | None) -> None:
            if later.is_gone:
                return
            if error is None:
                try:
                    answer = self._evaluated(response)
                except Exception as raised:
                    error = raised
            if error is None:
                later.answer(answer)
            else:
                self._refused(error, later)

        self._environment.run(lambda: login.evaluate(token), then)
        return later

    # Tokens

    def _evaluated(self, response: bytes) -> Fields:
        lifetime_ms = self._complete()
        return {
            "error_code": codes.NONE,
            "error_message": "",  # As in Kafka, not null.
            "auth_bytes": response,
            "session_lifetime_ms": lifetime_ms,
        }

    def _complete(self) -> int:
        """If the exchange is complete, the user is known from now on. Returns how long the session lasts; 0: always."""
        login, mechanism = self._login, self._mechanism
        assert login is not None
        assert mechanism is not None
        if login.user is None:
            return 0
        principal = Principal(login.user)
        if self._is_again and principal != self._client.principal:
            raise LoginFailed(
                "Cannot change principals during re-authentication from"
                f" {self._client.principal.type}.{self._client.principal.name}:"
                f" {principal.type}.{principal.name}"
            )
        lifetimes = [mechanism.max_reauth_ms] if mechanism.max_reauth_ms > 0 else []
        if login.expires_ms is not None:
            lifetimes.append(login.expires_ms - self._environment.wall_clock_ms())
        lifetime_ms = max(min(lifetimes, default=0), 0)
        self._ends_at_ms = self._environment.now_ms() + lifetime_ms if lifetimes else None
        self._client.principal = principal
        self._state = State.DONE
        self._login = None
        self._client.logged_in()
        return lifetime_ms

    def _bare_token(self, token: bytes) -> Any:
        answer = self.authenticate(token)
        if isinstance(answer, DelayedAnswer):
            answer.deliver_to(lambda given: self._client.deliver(_bare(given)), lambda _, __: {})
            return answer
        return _bare(answer)

    # Failures

    def _refused(self, error: Exception, later: DelayedAnswer | None = None) -> DelayedAnswer:
        if isinstance(error, LoginFailed):
            message = str(error)
        else:
            name = "" if self._mechanism is None else self._mechanism.name
            kind = "re-authentication" if self._is_again else "authentication"
            message = f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {name}"
        if isinstance(error, LoginFailed):
            reason = error.reason
        else:
            reason = str(error) if isinstance(error, InvalidCredentials) else f"unexpected: {type(error).__name__}"
        answer = {
            "error_code": codes.SASL_AUTHENTICATION_FAILED,
            "error_message": message,
            "auth_bytes": b"",
            "session_lifetime_ms": 0,
        }
        return self._failed_later(answer, reason, later)

    def _failed_later(self, answer: Any, reason: str, later: DelayedAnswer | None = None) -> DelayedAnswer:
        self._state = State.FAILED
        delayed = later or DelayedAnswer()
        mechanism = f" by {self._mechanism.name}" if self._mechanism is not None else ""

        def fail() -> None:
            if not delayed.is_gone:
                self._client.end_after_answer("log-in", f"its log-in{mechanism} failed: {reason}")
                delayed.answer(answer)

        self._environment.after(self._settings.failure_delay_ms, fail)
        return delayed

    def _ended_later(self, parts: Any, reason: str) -> DelayedAnswer:
        """Send these parts of an answer, or nothing, and close."""
        delayed = self._failed_later(parts, reason)
        delayed.deliver_to(self._client.deliver, lambda _, __: {})
        return delayed


def _bare(answer: Any) -> Any:
    """After a handshake of version 0: the token alone, and none at all for an error."""
    if isinstance(answer, Silence) or answer["error_code"] != codes.NONE:
        return CLOSE
    token = answer["auth_bytes"]
    return [len(token).to_bytes(_SIZE_BYTES, "big") + token]
