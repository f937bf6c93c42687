"""The key of fake SCRAM salts (`duralog.broker.security.scram`), in a file of the log directory.

It is kept, so that the salt of an unknown user is the same after a restart, as that of a user is. Only the owner can
read the file. Kafka leaves files alone that it does not know. If the file is lost, a new one is created, and the fake
salts change.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress

from duralog.format.filenames import HALF_WRITTEN_SUFFIX, SCRAM_SALT_KEY

_logger = logging.getLogger("duralog.broker")

_KEY_BYTES = 32


def salt_key(directory: str) -> bytes:
    """REQUIRES: this process has locked the directory. Reads or makes the file."""
    path = os.path.join(directory, SCRAM_SALT_KEY)
    try:
        with suppress(FileNotFoundError), open(path, "rb") as file:
            key = file.read(_KEY_BYTES + 1)
            if len(key) == _KEY_BYTES:
                return key
        key = secrets.token_bytes(_KEY_BYTES)
        _replace(path, key)
    except OSError as error:
        _logger.warning(
            "%s cannot be used (%s): after a restart, clients can find out which SCRAM users exist",
            path,
            error.strerror,
        )
        return secrets.token_bytes(_KEY_BYTES)
    return key


def _replace(path: str, key: bytes) -> None:
    """A crash leaves no file, or a complete one."""
    half_written = f"{path}{HALF_WRITTEN_SUFFIX}"
    with suppress(FileNotFoundError):
        os.unlink(half_written)
    descriptor = os.open(half_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(descriptor)
    os.replace(half_written, path)
