"""SASL/SCRAM (RFC 5802) on the side of the broker: two messages of the client, with a proof in the second.

The expensive part, the iterations over the password, is the client's: here are a few hashes. For a user that does not
exist, the exchange continues with a made-up salt, and fails at the proof, as an authorization id of someone else does:
the steps do not show which users exist. The client gets the same error as from Kafka.

The made-up salt of a name is always the same, by a key of the directory (`duralog.broker.security.salt_key`). Its
length and iterations are those of most stored credentials: a user with others is seen to exist. So is one that is added
or removed, by a client that asks before and after it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping

from duralog.broker.security.failures import InvalidCredentials, LoginFailed
from duralog.errors import DuralogError
from duralog.storage.metadata.scram import (
    LEAST_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    ScramUser,
)

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_VALUE = r"[\x01-\x2b\x2d-\x7f\u0080-\U0010ffff]"
_SAFE = r"[\x01-\x2b\x2d-\x3c\x3e-\x7f\u0080-\U0010ffff]"
_NAME = rf"(?:{_SAFE}|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]={_VALUE}+)*"
_RESERVED = rf"(?:m={_VALUE}+,)?"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,({_RESERVED}n=({_NAME}),r=({_PRINTABLE}){_EXTENSIONS})")
_FINAL = re.compile(rf"(c=({_BASE64}),r=({_PRINTABLE}){_EXTENSIONS}),p=({_BASE64})")
_NONCE_BYTES = 24


class MadeUpCredentials:
    """For users that do not exist, with what most credentials of the mechanism have in common."""

    def __init__(self, mechanism: ScramMechanism, key: Callable[[], bytes]) -> None:
        self._mechanism = mechanism
        self._key = key
        self._counted: Mapping[ScramUser, ScramCredential] = {}
        self._found = LEAST_ITERATIONS, SALT_BYTES

    def of(self, name: str, credentials: Mapping[ScramUser, ScramCredential]) -> ScramCredential:
        iterations, salt_bytes = self._usual(credentials)
        hash_name = self._mechanism.hash_name
        # A hash of any length: Kafka's tools make longer salts than `duralog user`.
        salt = hashlib.shake_256(self._key() + f"{hash_name} {name}".encode()).digest(salt_bytes)
        key = secrets.token_bytes(hashlib.new(hash_name).digest_size)
        return ScramCredential(salt, key, key, iterations)

    def _usual(self, credentials: Mapping[ScramUser, ScramCredential]) -> tuple[int, int]:
        """The iterations, and the length of the salt. The store replaces the credentials, and does not change them."""
        if credentials is not self._counted:
            counts = Counter(
                (each.iterations, len(each.salt))
                for (_, mechanism), each in credentials.items()
                if mechanism is self._mechanism and each.iterations >= LEAST_ITERATIONS
            )
            ((self._found, _),) = counts.most_common(1) or [((LEAST_ITERATIONS, SALT_BYTES), 0)]
            self._counted = credentials
        return self._found


class ScramLogin:
    """One log-in."""

    is_slow = False
    expires_ms: int | None = None

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Mapping[ScramUser, ScramCredential],
        made_up: MadeUpCredentials,
    ) -> None:
        self._mechanism = mechanism
        self._hash = mechanism.hash_name
        self._credentials = credentials
        self._made_up = made_up
        self._first = ""
        """Both first messages, which the proof covers."""
        self._nonce = ""
        self._header = b""
        self._credential: ScramCredential | None = None
        self._name = ""
        self._fault: DuralogError | None = None
        """Why the log-in fails even with the right proof."""
        self.user: str | None = None

    def evaluate(self, response: bytes) -> bytes:
        text = response.decode("utf-8", "replace")
        return self._evaluate_first(text) if self._credential is None else self._evaluate_final(text)

    def _evaluate_first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise InvalidCredentials("Invalid SCRAM client first message format")
        authorization_id, bare, name, nonce = match.groups()
        self._name = _decoded(name)
        found = self._credentials.get((self._name, self._mechanism))
        made_up = self._made_up.of(self._name, self._credentials)
        if found is None:
            self._fault = _wrong()
        elif found.iterations < LEAST_ITERATIONS:
            found = None
            self._fault = InvalidCredentials(f"the credential has fewer iterations than {LEAST_ITERATIONS}")
        elif authorization_id is not None and _decoded(authorization_id) != self._name:
            self._fault = LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._credential = credential = found or made_up
        self._nonce = nonce + secrets.token_urlsafe(_NONCE_BYTES)
        self._header = f"n,{'' if authorization_id is None else f'a={authorization_id}'},".encode()
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def _evaluate_final(self, text: str) -> bytes:
        credential = self._credential
        assert credential is not None
        match = _FINAL.fullmatch(text)
        if match is None:
            raise InvalidCredentials("Invalid SCRAM client final message format")
        without_proof, header, nonce, proof = match.groups()
        if not hmac.compare_digest(nonce, self._nonce):
            raise InvalidCredentials("Invalid client nonce in the final client message.")
        if b64decode(header) != self._header:
            raise InvalidCredentials("the channel binding of the final message is not that of the first")
        signed = f"{self._first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        client_key = bytes(a ^ b for a, b in zip(signature, b64decode(proof), strict=False))
        stored_key = hashlib.new(self._hash, client_key).digest()
        is_right = hmac.compare_digest(stored_key, credential.stored_key) and len(b64decode(proof)) == len(signature)
        if not is_right:
            # The log may say more than the client gets.
            raise self._fault if isinstance(self._fault, InvalidCredentials) else _wrong()
        if self._fault is not None:
            raise self._fault
        self.user = self._name
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, self._hash))


def _wrong() -> InvalidCredentials:
    return InvalidCredentials("Invalid client credentials")


def _decoded(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
