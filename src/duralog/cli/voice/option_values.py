"""Parses the values of options: offset ranges and start positions.

Each parser raises `ValueError` with a sentence for the user.
"""

from __future__ import annotations

from dataclasses import dataclass

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets from `start` up to, not including, `end`."""

    start: int = 0
    end: int = _INT64_MAX

    @property
    def is_everything(self) -> bool:
        return self.start <= 0 and self.end == _INT64_MAX


ALL_OFFSETS = OffsetRange()


def parse_offsets(text: str) -> OffsetRange:
    """`A:B`, `A:`, `:B`, or a single offset."""
    first, colon, last = text.strip().partition(":")
    try:
        start = int(first) if first else 0
        if not colon:
            if not first:
                raise ValueError
            end = start + 1
        else:
            end = int(last) if last else _INT64_MAX
    except ValueError:
        raise ValueError(
            f"{text!r} is not a range of offsets: give A:B (without B itself), A:, :B or one offset"
        ) from None
    if not 0 <= start <= _INT64_MAX or not 0 <= end <= _INT64_MAX:
        raise ValueError(f"{text!r}: offsets run from 0 to {_INT64_MAX}")
    if end < start:
        raise ValueError(f"{text!r} ends before it starts")
    return OffsetRange(start, end)


def parse_start(text: str) -> tuple[int | None, int | None]:
    """Where to start reading: an offset, or how many offsets before the end. Both None for the beginning."""
    word = text.strip()
    if word == "beginning":
        return None, None
    if word == "end":
        return None, 0
    try:
        offset = int(word)
    except ValueError:
        raise ValueError(f"{text!r} is not an offset: give a number, -N, beginning or end") from None
    if not -_INT64_MAX <= offset <= _INT64_MAX:
        raise ValueError(f"{text!r}: offsets run from 0 to {_INT64_MAX}")
    return (offset, None) if offset >= 0 and not word.startswith("-") else (None, -offset)
