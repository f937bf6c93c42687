"""The client's side of a log-in by SASL, step by step."""

from __future__ import annotations

import hashlib
import hmac
import ssl
from base64 import b64decode, b64encode
from typing import Any

from tests.support.broker.raw_client import RawClient

SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36
SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}
_NONCE = "rOprNGfwEbeRWgbNEkqO"


def secured(client: RawClient, authority: str, **chain: Any) -> RawClient:
    """The same connection with TLS. `chain` is that of `load_cert_chain`."""
    context = ssl.create_default_context(cadata=authority)
    if chain:
        context.load_cert_chain(**chain)
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def handshake(client: RawClient, mechanism: str, version: int = 1) -> Any:
    return client.ask(SASL_HANDSHAKE, version, {"mechanism": mechanism})


def authenticate(client: RawClient, token: bytes, version: int = 2) -> Any:
    return client.ask(SASL_AUTHENTICATE, version, {"auth_bytes": token})


def plain_token(user: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


class ScramClient:
    """RFC 5802, with every part for a test to change."""

    def __init__(self, mechanism: str, user: str, password: str, *, authorization_id: str = "") -> None:
        self.hash = "sha256" if mechanism.endswith("256") else "sha512"
        self.password = password
        self.bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={_NONCE}"
        self.header = f"n,{authorization_id and f'a={authorization_id}'},"
        self.server_signature = b""

    def first(self) -> bytes:
        return f"{self.header}{self.bare}".encode()

    def final(self, answer: bytes, *, nonce_suffix: str = "") -> bytes:
        parts = dict(part.split("=", 1) for part in answer.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), b64decode(parts["s"]), int(parts["i"]))
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        without_proof = f"c={b64encode(self.header.encode()).decode()},r={parts['r']}{nonce_suffix}"
        signed = f"{self.bare},{answer.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(self.hash, client_key).digest(), signed, self.hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self.hash), signed, self.hash)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


def scram_log_in(
    client: RawClient, mechanism: str, user: str, password: str, version: int = 2, *, authorization_id: str = ""
) -> Any:
    """The last answer. The signature of the broker is checked."""
    assert handshake(client, mechanism).error_code == 0
    scram = ScramClient(mechanism, user, password, authorization_id=authorization_id)
    answer = authenticate(client, scram.first(), version)
    if answer.error_code:
        return answer
    answer = authenticate(client, scram.final(answer.auth_bytes), version)
    if not answer.error_code:
        assert answer.auth_bytes == b"v=" + b64encode(scram.server_signature)
    return answer
