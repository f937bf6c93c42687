"""SASL/OAUTHBEARER (RFC 7628): a token in the form of a JWT, signed by a key of the issuer.

The claims must name a user (`sub`), when the token was issued and when it ends. Issuer and audience are checked if they
are configured; a token with an audience is refused if none is expected. Signatures are RSA or ECDSA: a token that is
unsigned, or signed with a shared secret, is never accepted here. `UnsecuredTokens` accepts unsigned tokens, for tests:
only if the owner asks for Kafka's unsecured validator, and only on loopback.

A refused token is answered with a status, as the RFC wants it; the client acknowledges that, and then its log-in fails.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jwt

from duralog.broker.security.failures import InvalidCredentials, LoginFailed
from duralog.broker.security.token_keys import TokenKeys

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
}
"""The signatures that are accepted, with the types of their keys."""
_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST = re.compile(rf"n,(?:a=({_SASL_NAME}))?,\x01({_PAIRS})\x01")
_AUTH = re.compile(r"(\w+) +([-_.A-Za-z0-9]+={0,2})")
_ACKNOWLEDGED = b"\x01"
_INVALID = '{"status":"invalid_token"}'
_LONGEST_NAME = 1000


class Verified(NamedTuple):
    user: str
    expires_ms: int


class TokenValidator(Protocol):
    def verify(self, token: str) -> Verified:
        """Raises LoginFailed, with the reason for the log."""


class OauthbearerLogin:
    """One log-in."""

    is_slow = True

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refused_for: str | None = None
        self.user: str | None = None
        self.expires_ms: int | None = None

    def evaluate(self, response: bytes) -> bytes:
        if self._refused_for is not None and response == _ACKNOWLEDGED:
            raise LoginFailed(_INVALID, reason=self._refused_for)
        self._refused_for = None
        match = _FIRST.fullmatch(response.decode("utf-8", "replace"))
        if match is None:
            raise InvalidCredentials("Invalid OAUTHBEARER client first message")
        authorization_id, pairs = match.groups()
        values = dict(pair.split("=", 1) for pair in pairs.split("\x01") if pair)
        auth = _AUTH.fullmatch(values.get("auth", ""))
        if auth is None or auth[1].lower() != "bearer":
            raise InvalidCredentials("Invalid OAUTHBEARER client first message: no bearer token in 'auth'")
        try:
            verified = self._validator.verify(auth[2])
        except LoginFailed as error:
            self._refused_for = error.reason
            return _INVALID.encode()
        if authorization_id and authorization_id != verified.user:
            raise LoginFailed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different"
                f" from the token's principal name ({verified.user})"
            )
        self.user, self.expires_ms = verified
        return b""


class SignedTokens:
    """Tokens of one issuer."""

    def __init__(
        self,
        keys: TokenKeys,
        *,
        issuer: str | None,
        audience: tuple[str, ...],
        skew_seconds: int,
        user_claim: str = "sub",
        scope_claim: str = "scope",
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = list(audience) or None
        self._skew_seconds = skew_seconds
        self._user_claim = user_claim
        self._scope_claim = scope_claim

    def verify(self, token: str) -> Verified:
        try:
            header = jwt.get_unverified_header(token)
            key_type = _ALGORITHMS.get(header.get("alg", ""))
            if key_type is None:
                raise LoginFailed("the token is not signed with RSA or ECDSA")
            key = self._keys.find(header.get("kid"))
            if key.key_type != key_type:
                raise LoginFailed("the key of the token is of another type than its signature")
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[*_ALGORITHMS],
                audience=self._audience,
                issuer=self._issuer,
                leeway=self._skew_seconds,
                options={"require": ["exp", "iat"], "verify_sub": self._user_claim == "sub"},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise LoginFailed(f"the token is not valid: {type(error).__name__}") from None
        return _verified(claims, self._user_claim, self._scope_claim)


class UnsecuredTokens:
    """Tokens without a signature. In Kafka: `OAuthBearerUnsecuredValidatorCallbackHandler`."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def verify(self, token: str) -> Verified:
        parts = token.split(".")
        try:
            header, claims = (json.loads(base64.urlsafe_b64decode(f"{part}==")) for part in parts[:2])
        except ValueError:
            raise LoginFailed("the token is not a JWT") from None
        if not isinstance(header, dict) or not isinstance(claims, dict):
            raise LoginFailed("the token is not a JWT")
        if len(parts) != 3 or parts[2] or header.get("alg") != "none":
            raise LoginFailed("the token is signed, but only unsecured ones are accepted here")
        verified = _verified(claims, "sub", "scope")
        if verified.expires_ms <= self._clock() * 1000:
            raise LoginFailed("the token has ended")
        return verified


def _verified(claims: dict[str, Any], user_claim: str, scope_claim: str) -> Verified:
    user, expires, scope = claims.get(user_claim), claims.get("exp"), claims.get(scope_claim, "")
    if not isinstance(scope, str) and not (isinstance(scope, list) and all(isinstance(each, str) for each in scope)):
        raise LoginFailed(f"the token has no scope in its claim {scope_claim}")
    if not isinstance(user, str) or not 0 < len(user) <= _LONGEST_NAME:
        raise LoginFailed(f"the token has no user in its claim {user_claim}")
    if not isinstance(expires, int | float) or isinstance(expires, bool) or not 0 <= expires < 1 << 40:
        raise LoginFailed("the token does not say when it ends")
    return Verified(user, int(expires * 1000))
