"""A number and what it counts, for a line that people read."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """`1 segment`, `2 segments`, `3 batches`, `4 entries`."""
    return f"{count:,} {noun if count == 1 else _several(noun)}"


def _several(noun: str) -> str:
    if noun.endswith("ch"):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
