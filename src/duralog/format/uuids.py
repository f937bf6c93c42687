"""Kafka's ids of topics, directories and clusters: 16 bytes, written as 22 characters of URL-safe base64."""

from __future__ import annotations

import re
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode

UUID_BYTES = 16
ZERO_UUID = "A" * 22
"""The id that means "no id". Of a directory: it is not known in which one a partition is (Kafka's `MIGRATING`)."""
UNASSIGNED_DIRECTORY = "A" * 21 + "Q"
"""In place of a directory's id: the broker chooses the directory of the partition, and has not said which."""
LOST_DIRECTORY = "A" * 21 + "g"
"""In place of a directory's id: the broker has said that the directory is offline, but not which one it is."""
RESERVED_DIRECTORIES = frozenset({ZERO_UUID, UNASSIGNED_DIRECTORY, LOST_DIRECTORY})

_RESERVED_UUIDS = tuple(number.to_bytes(UUID_BYTES, "big") for number in range(3))
"""Kafka gives these a meaning of their own: "no id", and the id of the metadata topic, for example."""
_UUID_TEXT = re.compile(r"([a-zA-Z0-9_-]{22})(==)?")


def uuid_text(raw: bytes) -> str:
    """The text form. REQUIRES: 16 bytes."""
    assert len(raw) == UUID_BYTES
    return urlsafe_b64encode(raw)[:22].decode("ascii")


def random_uuid() -> str:
    """A new id. As Kafka's, it never starts with a hyphen, which a command line would take for an option."""
    while True:
        raw = uuid.uuid4().bytes
        if raw not in _RESERVED_UUIDS and not uuid_text(raw).startswith("-"):
            return uuid_text(raw)


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of an id, written with or without base64's padding. Raises ValueError for anything else."""
    match = _UUID_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"an id is 22 characters of URL-safe base64, not {text[:60]!r}")
    return urlsafe_b64decode(match[1] + "==")
