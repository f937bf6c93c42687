"""Errors as the interface numbers them: the status of HTTP, or a code of five digits that begins with it."""

from __future__ import annotations

from duralog.errors import DuralogError


class RegistryError(DuralogError):
    """A request that the registry refuses."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """Of HTTP: the first three digits of the code."""
        return self.code if self.code < 1000 else self.code // 100


SUBJECT_NOT_FOUND = 40401
VERSION_NOT_FOUND = 40402
SCHEMA_NOT_FOUND = 40403
SUBJECT_SOFT_DELETED = 40404
SUBJECT_NOT_SOFT_DELETED = 40405
VERSION_SOFT_DELETED = 40406
VERSION_NOT_SOFT_DELETED = 40407
COMPATIBILITY_NOT_CONFIGURED = 40408
MODE_NOT_CONFIGURED = 40409
INCOMPATIBLE_SCHEMA = 409
TOO_LARGE = 413
UNPROCESSABLE = 422
TOO_MANY_REQUESTS = 429
INVALID_SCHEMA = 42201
INVALID_VERSION = 42202
INVALID_COMPATIBILITY = 42203
INVALID_MODE = 42204
NOT_PERMITTED = 42205
REFERENCE_EXISTS = 42206
ID_DOES_NOT_MATCH = 42207
INVALID_SUBJECT = 42208
STORE_ERROR = 50001
NOT_INSTALLED = 501
