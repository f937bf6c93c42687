"""The state of the source, in a word and in a sentence, and its name as an argument of commands."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from duralog.config.times import now_ms
from duralog.console.drawing.words import age_text, counted
from duralog.console.facts.overview import Overview, SourceKind

_STALE_MS = 15_000
"""A refresh runs every two seconds: this long without one means that the machine is busy, or that the refresh hangs."""


class Standing(NamedTuple):
    tone: str
    """`good`, `warn` or `bad`."""
    sentence: str
    word: str


def standing_of(overview: Overview) -> Standing:
    """Notes do not make it worse: they only say what cannot be shown."""
    first_note = overview.notes[0] if overview.notes else ""
    if not overview.taken_ms:
        return Standing("warn", first_note or "Nothing was read yet.", "starting")
    if not overview.is_online:
        return Standing("bad", first_note or "The last refresh failed.", "offline")
    now = now_ms()
    if now - overview.taken_ms > _STALE_MS:
        return Standing("warn", f"Last refreshed {age_text(overview.taken_ms, now_ms=now)}.", "stale")
    troubled = [topic for topic in overview.topics if topic.trouble is not None]
    if troubled:
        sentence = f"{counted(len(troubled), 'topic')} in trouble: {troubled[0].name}, {troubled[0].trouble}"
        return Standing("bad", sentence, "trouble")
    return Standing("good", "No problems found.", "live")


def commands_place(overview: Overview) -> str:
    """The directory or broker as the argument of a command that a reader may copy."""
    place = overview.target.partition(", ")[0] if overview.kind == SourceKind.BOTH else overview.target
    return shlex.quote(place)
