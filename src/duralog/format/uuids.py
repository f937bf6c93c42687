"""Kafka's ids of topics, directories and clusters: 16 bytes, written as 22 characters of URL-safe base64."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

UUID_BYTES = 16
ZERO_UUID = "A" * 22
"""The id that means "no id"."""

_UUID_TEXT = re.compile(r"([a-zA-Z0-9_-]{22})(==)?")


def uuid_text(raw: bytes) -> str:
    """The text form. REQUIRES: 16 bytes."""
    assert len(raw) == UUID_BYTES
    return urlsafe_b64encode(raw)[:22].decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of an id, written with or without base64's padding. Raises ValueError for anything else."""
    match = _UUID_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"an id is 22 characters of URL-safe base64, not {text[:60]!r}")
    return urlsafe_b64decode(match[1] + "==")
