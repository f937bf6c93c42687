"""Parses and formats byte sizes for people."""

from __future__ import annotations

import re

_INT64_MAX = 2**63 - 1
_SIZE = re.compile(r"(\d+)\s*(|[kmgt](?:i?b)?|b)", re.IGNORECASE)
_SIZE_SHIFT = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_bytes(text: str) -> int:
    """A size: `1048576`, `64k`, `512MiB`, `2g`. The units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size: give bytes, or a number with k, m, g or t")
    size = int(match[1]) << _SIZE_SHIFT[match[2][:1].lower()]
    if not 0 < size <= _INT64_MAX:
        raise ValueError(f"{text!r}: a size is at least 1 and less than 2^63")
    return size


def size_text(size_bytes: int) -> str:
    """`1.5 GiB`: three digits, for a line that people read."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"
