"""The width of the terminal that a command writes to, and whether it shows colours.

| environment | means |
|---|---|
| `NO_COLOR` | no colours, if it is not empty |
| `FORCE_COLOR` | colours in a pipe too, if it is neither empty nor 0 |
| `TERM=dumb` | no colours, and nothing that moves the cursor |
| `COLUMNS` | the width, in place of the terminal's own |

A pipe or a file has no width: nothing is shortened there.
"""

from __future__ import annotations

import os
import unicodedata
from typing import Protocol

_NARROWEST = 20
"""A smaller width is ignored as a mistake."""
_DEFAULT_WIDTH = 80


class Stream(Protocol):
    def isatty(self) -> bool: ...
    def fileno(self) -> int: ...


def shows_colours(stream: Stream) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and not is_dumb()


def can_redraw(stream: Stream) -> bool:
    """Whether a line can be redrawn, as progress bars are."""
    return stream.isatty() and not is_dumb()


def is_dumb() -> bool:
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def width_of(stream: Stream) -> int | None:
    """The characters of a line; None for a pipe or a file."""
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    try:
        columns = int(given) if given.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(columns or _DEFAULT_WIDTH, _NARROWEST)


def cells(text: str) -> int:
    """The columns that a text takes: East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, places: int) -> str:
    """The text in at most `places` columns, with an ellipsis in the middle: names often differ at their ends."""
    if cells(text) <= places:
        return text
    if places <= 1:
        return "…"[:places]
    tail = (places - 1) // 2
    return f"{_fitting(text, places - 1 - tail)}…{_fitting(text[::-1], tail)[::-1]}"


def _fitting(text: str, places: int) -> str:
    """The longest prefix that fits."""
    taken = 0
    for index, character in enumerate(text):
        taken += _cells_of(character)
        if taken > places:
            return text[:index]
    return text
