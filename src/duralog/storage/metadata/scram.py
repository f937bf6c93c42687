"""SCRAM credentials of users, as the cluster metadata holds them. In Kafka: `ScramImage` and `ScramControlManager`.

A credential holds no password: a salt, a number of iterations, and two keys that are derived from the password (RFC
5802). Someone who has it can answer a client as this broker would, but cannot log in with it. No `repr` shows it.

As in Kafka, names and passwords are used as they are, in UTF-8: they are not normalized by SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from duralog.errors import CorruptRecord, InvalidConfig
from duralog.format.internal.metadata_records import METADATA_TYPES, MetadataRecord

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384
"""Kafka's limits."""
SALT_BYTES = 20
_logger = logging.getLogger(__name__)
_TYPE_IDS = {message.name: type_id for type_id, message in METADATA_TYPES.items()}


class ScramMechanism(Enum):
    """By its number in the metadata."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name that clients use."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @classmethod
    def of(cls, name: str) -> ScramMechanism:
        for mechanism in cls:
            if mechanism.mechanism_name == name.upper():
                return mechanism
        names = " or ".join(mechanism.mechanism_name for mechanism in cls)
        raise InvalidConfig(f"{name!r} is not a SCRAM mechanism: use {names}")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """From what AlterUserScramCredentials carries: the password after all iterations."""
        name = mechanism.hash_name
        client_key = hmac.digest(salted_password, b"Client Key", name)
        server_key = hmac.digest(salted_password, b"Server Key", name)
        return cls(salt, hashlib.new(name, client_key).digest(), server_key, iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, *, iterations: int = LEAST_ITERATIONS, salt: bytes | None = None
    ) -> ScramCredential:
        """With a random salt unless one is given. It takes some milliseconds."""
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise InvalidConfig(
                f"{iterations} iterations are not allowed: from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)


ScramUser = tuple[str, ScramMechanism]
ScramCredentials = dict[ScramUser, ScramCredential]
ScramChanges = Mapping[ScramUser, ScramCredential | None]
"""None removes one."""


def apply_credential(credentials: ScramCredentials, fields: Mapping[str, Any]) -> None:
    credentials[fields["name"], _mechanism(fields)] = ScramCredential(
        fields["salt"], fields["stored_key"], fields["server_key"], fields["iterations"]
    )


def apply_removal(credentials: ScramCredentials, fields: Mapping[str, Any]) -> None:
    user = (fields["name"], _mechanism(fields))
    if credentials.pop(user, None) is None:
        # As Kafka's brokers do. Its controller fails, so such a record must not be written.
        _logger.warning(
            "the metadata log removes a %s credential of the user %r, who has none: the record is skipped",
            user[1].mechanism_name,
            user[0],
        )


def scram_records(changes: ScramChanges) -> Iterable[MetadataRecord]:
    """The records of changed and removed credentials."""
    for (name, mechanism), credential in changes.items():
        fields: dict[str, Any] = {"name": name, "mechanism": mechanism.value}
        if credential is None:
            type_name = "REMOVE_USER_SCRAM_CREDENTIAL_RECORD"
        else:
            type_name = "USER_SCRAM_CREDENTIAL_RECORD"
            fields |= {
                "salt": credential.salt,
                "stored_key": credential.stored_key,
                "server_key": credential.server_key,
                "iterations": credential.iterations,
            }
        yield MetadataRecord(type_id=_TYPE_IDS[type_name], type_name=type_name, version=0, fields=fields)


def _mechanism(fields: Mapping[str, Any]) -> ScramMechanism:
    try:
        return ScramMechanism(fields["mechanism"])
    except ValueError:
        raise CorruptRecord(
            "a SCRAM credential is for a mechanism of a later Kafka", expected="1 or 2", found=fields["mechanism"]
        ) from None
