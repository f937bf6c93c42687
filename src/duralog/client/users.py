"""SCRAM credentials of users on a running broker."""

from __future__ import annotations

from typing import Any

from duralog.client.connection import ANSWER_SECONDS, admin_client, admin_module, errors_of


class UserClient:
    """Mechanisms are Kafka's numbers: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._admin = admin_client(address)

    def list(self) -> list[tuple[str, int, int]]:
        """User, mechanism and iterations."""
        with errors_of(self._address):
            found = self._admin.describe_user_scram_credentials(request_timeout=ANSWER_SECONDS).result()
        return [
            (user, int(info.mechanism.value), int(info.iterations))
            for user, described in found.items()
            for info in described.scram_credential_infos
        ]

    def set(self, user: str, mechanism: int, password: str, iterations: int) -> None:
        admin = admin_module()
        info = admin.ScramCredentialInfo(admin.ScramMechanism(mechanism), iterations)
        self._alter(user, admin.UserScramCredentialUpsertion(user, info, password.encode()))

    def delete(self, user: str, mechanism: int) -> None:
        admin = admin_module()
        self._alter(user, admin.UserScramCredentialDeletion(user, admin.ScramMechanism(mechanism)))

    def _alter(self, user: str, change: Any) -> None:
        with errors_of(self._address):
            self._admin.alter_user_scram_credentials([change], request_timeout=ANSWER_SECONDS)[user].result()
