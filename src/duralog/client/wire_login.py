"""TLS and SASL for the plain connection of `wire`, by the settings of a profile.

| API | version | |
|---|---|---|
| SaslHandshake | 1 | names the mechanism |
| SaslAuthenticate | 0 | PLAIN in one message, SCRAM (RFC 5802) in two |
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from duralog.client.api import Api
from duralog.errors import DuralogError
from duralog.format.internal.message_schema import ArrayOf, Field, Message

_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_FEWEST_ITERATIONS, _MOST_ITERATIONS = 4096, 10_000_000


HANDSHAKE = Api(
    key=17,
    version=1,
    request=Message("SaslHandshakeRequest", (Field("mechanism", "string"),), last_version=1, flexible_since=None),
    response=Message(
        "SaslHandshakeResponse",
        (Field("error_code", "int16"), Field("mechanisms", ArrayOf("string"))),
        last_version=1,
        flexible_since=None,
    ),
)
AUTHENTICATE = Api(
    key=36,
    version=0,
    request=Message("SaslAuthenticateRequest", (Field("auth_bytes", "bytes"),), last_version=0, flexible_since=None),
    response=Message(
        "SaslAuthenticateResponse",
        (Field("error_code", "int16"), Field("error_message", "string", nullable=True), Field("auth_bytes", "bytes")),
        last_version=0,
        flexible_since=None,
    ),
)
Ask = Callable[[Api, Mapping[str, Any]], Mapping[str, Any]]


class LoginRefused(DuralogError):
    """The broker does not accept the user or the password, or is not the one that it should be."""


def secured(connection: socket.socket, host: str, profile: Mapping[str, str]) -> socket.socket:
    """The connection with TLS, if the profile has it."""
    if not profile.get("security.protocol", "").endswith("SSL"):
        return connection
    context = ssl.create_default_context(cafile=profile.get("ssl.ca.location"), cadata=profile.get("ssl.ca.pem"))
    context.check_hostname = profile.get("ssl.endpoint.identification.algorithm", "https") != "none"
    if profile.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "ssl.keystore.location" in profile or "ssl.certificate.pem" in profile:
        raise DuralogError("this command reads its own certificate from a PEM file: give ssl.certificate.location")
    if "ssl.certificate.location" in profile:
        context.load_cert_chain(
            profile["ssl.certificate.location"],
            profile.get("ssl.key.location"),
            # An empty one: otherwise OpenSSL asks for it at the terminal.
            password=profile.get("ssl.key.password", ""),
        )
    return context.wrap_socket(connection, server_hostname=host)


def log_in(ask: Ask, profile: Mapping[str, str]) -> None:
    """By SASL, if the profile has it. Raises `LoginRefused`."""
    if "SASL" not in profile.get("security.protocol", ""):
        return
    mechanism = profile["sasl.mechanisms"]
    if mechanism != "PLAIN" and mechanism not in _SCRAM:
        raise DuralogError(f"this command cannot log in by {mechanism}: use PLAIN or SCRAM")
    shaken = ask(HANDSHAKE, {"mechanism": mechanism})
    if shaken["error_code"]:
        raise LoginRefused(f"the broker refuses the log-in: it has no mechanism {mechanism}")
    user, password = profile["sasl.username"], profile["sasl.password"]
    if mechanism == "PLAIN":
        _authenticate(ask, f"\0{user}\0{password}".encode())
        return
    _log_in_by_scram(ask, _SCRAM[mechanism], user, password)


def _authenticate(ask: Ask, token: bytes) -> bytes:
    answer = ask(AUTHENTICATE, {"auth_bytes": token})
    if answer["error_code"]:
        raise LoginRefused(f"the broker refuses the log-in: {answer['error_message']}")
    return bytes(answer["auth_bytes"])


def _log_in_by_scram(ask: Ask, hash_name: str, user: str, password: str) -> None:
    nonce = secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    answer = _authenticate(ask, f"n,,{first}".encode()).decode("utf-8", "replace")
    parts = _parts(answer)
    salt, iterations = parts.get("s", ""), parts.get("i", "")
    if not parts.get("r", "").startswith(nonce) or not iterations.isdecimal() or len(iterations) > 10:
        raise LoginRefused("the broker's answer is not a SCRAM message")
    if not _FEWEST_ITERATIONS <= int(iterations) <= _MOST_ITERATIONS:
        raise LoginRefused(f"the broker asks for {iterations} iterations of SCRAM: not {_FEWEST_ITERATIONS:,} or more")
    try:
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), b64decode(salt), int(iterations))
    except ValueError:
        raise LoginRefused("the broker's answer is not a SCRAM message") from None
    last = f"c=biws,r={parts['r']}"
    signed = f"{first},{answer},{last}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    final = _authenticate(ask, f"{last},p={b64encode(proof).decode()}".encode()).decode("utf-8", "replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    if not hmac.compare_digest(_parts(final).get("v", "").encode(), b64encode(expected)):
        raise LoginRefused("the broker does not know the password either: it may be an impostor. Check the address")


def _parts(text: str) -> dict[str, str]:
    return {name: value for name, equals, value in (part.partition("=") for part in text.split(",")) if equals}
