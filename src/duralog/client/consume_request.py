"""What `duralog consume` was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from duralog.errors import OffsetOutOfRange

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    topic: str
    partition: int | None
    """All if None."""
    offset: int | None
    timestamp_ms: int | None
    tail: int | None
    """How many offsets before the end to begin at."""
    group: str | None
    committed: bool
    follow: bool


def check_offset(topic: str, offset: int, ends: Mapping[int, int], say_note: Callable[[str], None]) -> None:
    """Refuse an offset that no partition has or is about to have. If only some end before it, say so.

    `ends` are the end offsets by partition.
    """
    beyond = {number: end for number, end in sorted(ends.items()) if offset > end}
    if not beyond:
        return
    if len(beyond) == 1:
        listed = "".join(f"{topic}-{number}, which is {end}" for number, end in beyond.items())
    else:
        listed = ", ".join(f"{topic}-{number} ({end})" for number, end in list(beyond.items())[:_MOST_NAMED])
        listed += f" and {len(beyond) - _MOST_NAMED:,} more" if len(beyond) > _MOST_NAMED else ""
    sentence = f"offset {offset} is past the end of {listed}"
    if len(beyond) == len(ends):
        raise OffsetOutOfRange(f"{sentence}: give a smaller one, or --tail N for the last N offsets")
    say_note(sentence)
