"""The part of a log that a page of records shows, and its address, which can be shared and kept in the history.

`?offset=120`, `?offset=120&back=1` (the records before), `?time=-1h`, `?key=user-17&offset=500` (search from there),
`?follow=1`, nothing for the newest ones; `&open=123` for the record that is opened. A key that is not text is
`key=0x00ff`. Everything in an address is untrusted: if it is invalid, the page shows a message and the newest records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from duralog.console.drawing.reader_zone import IN_UTC, NotATime

_INT64_MAX = 2**63 - 1
_DIGITS = re.compile(r"[0-9]{1,19}")
_LONGEST_KEY = 4_096


class NotAPlace(ValueError):
    """The input, or an address, does not name a place in a log. The message says what is valid."""


@dataclass(frozen=True, slots=True)
class Place:
    offset: int | None = None
    is_backwards: bool = False
    """The records below the offset."""
    time: str | None = None
    """A moment in UTC, or an age, which is relative to when a link is opened."""
    key: str | None = None
    is_followed: bool = False
    opened: int | None = None

    @property
    def is_newest_first(self) -> bool:
        """From the end of the log backwards; from an offset or a time on, records come in their order."""
        is_newest = self.offset is None and self.time is None and self.key is None
        return is_newest or self.is_backwards

    def query(self) -> str:
        """With its question mark; empty for the newest records."""
        fields: list[tuple[str, str]] = []
        if self.key is not None:
            fields.append(("key", self.key))
        if self.time is not None:
            fields.append(("time", self.time))
        if self.offset is not None:
            fields.append(("offset", str(self.offset)))
        if self.is_backwards:
            fields.append(("back", "1"))
        if self.is_followed:
            fields.append(("follow", "1"))
        if self.opened is not None:
            fields.append(("open", str(self.opened)))
        return f"?{urlencode(fields)}" if fields else ""

    def opening(self, offset: int | None) -> Place:
        return replace(self, opened=offset)


def place_of(query: Mapping[str, str]) -> Place:
    """Raises `NotAPlace`."""
    opened = query.get("open", "").strip()
    place = Place(opened=parse_offset(opened) if opened else None)
    if query.get("follow") == "1":
        return replace(place, is_followed=True)
    if query.get("time", "").strip():
        parse_when(query["time"], now_ms=0)
        return replace(place, time=query["time"].strip())
    offset = parse_offset(query["offset"]) if query.get("offset", "").strip() else None
    if query.get("key"):
        parse_key(query["key"])
        return replace(place, key=query["key"], offset=offset)
    return replace(place, offset=offset, is_backwards=offset is not None and query.get("back") == "1")


def parse_offset(text: str) -> int:
    """Digits, grouped or not."""
    digits = re.sub(r"[\s_,.'\u202f\u00a0]", "", text)
    if not _DIGITS.fullmatch(digits) or int(digits) > _INT64_MAX:
        raise NotAPlace(f"“{_short(text)}” is not an offset: give a number from 0 on")
    return int(digits)


def parse_when(text: str, *, now_ms: int) -> int:
    """Milliseconds since 1970 of the time in an address, which is UTC unless it names a zone."""
    try:
        return IN_UTC.parse(text, now_ms=now_ms)
    except NotATime as error:
        raise NotAPlace(str(error)) from None


def parse_key(text: str) -> bytes:
    if len(text) > _LONGEST_KEY:
        raise NotAPlace(f"a key of {len(text)} characters is too long to search for: at most {_LONGEST_KEY}")
    if text.startswith("0x") and len(text) > 2:
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            # A text key that begins with 0x.
            return text.encode("utf-8", "surrogatepass")
    return text.encode("utf-8", "surrogatepass")


def key_query(key: bytes) -> str:
    """The text that `parse_key` reads as this key."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text and parse_key(text) == key and text.isprintable() else f"0x{key.hex()}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
