"""JSON laid out for reading: one member per line, each token with its kind, so that it can be coloured.

Only white space changes. Numbers keep their notation (`1.10`, `1e400`, `12345678901234567890`), duplicate members are
kept, escapes stay escapes: the page shows exactly the content of the record. Text that is not a JSON object or list, or
is nested too deeply, gives None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum

_DEEPEST = 100
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_INDENT = "  "


class Kind(StrEnum):
    KEY = "key"
    STRING = "string"
    NUMBER = "number"
    WORD = "word"
    """true, false, null."""
    PLAIN = "plain"
    """Brackets, commas, colons and white space."""


Token = tuple[Kind, str]


def pretty_json(text: str) -> list[Token] | None:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text, parse_int=_unread, parse_float=_unread)
    except (ValueError, RecursionError):
        return None
    tokens = _TOKEN.findall(text)
    return list(_laid_out(tokens)) if _depth(tokens) <= _DEEPEST else None


def _unread(_text: str) -> int:
    """Numbers are not parsed: one with a million digits would take minutes."""
    return 0


def _depth(tokens: list[str]) -> int:
    depth = deepest = 0
    for token in tokens:
        if token in ("{", "["):
            depth += 1
            deepest = max(deepest, depth)
        elif token in ("}", "]"):
            depth -= 1
    return deepest


def _laid_out(tokens: list[str]) -> Iterator[Token]:
    depth = 0
    before = ""
    for place, token in enumerate(tokens):
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        if token in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                yield Kind.PLAIN, f"\n{_INDENT * depth}"
        elif before in ("{", "[", ","):
            yield Kind.PLAIN, f"\n{_INDENT * depth}"
        yield _kind(token, after), f"{token} " if token == ":" else token
        if token in ("{", "["):
            depth += 1
        before = token


def _kind(token: str, after: str) -> Kind:
    if token[0] == '"':
        return Kind.KEY if after == ":" else Kind.STRING
    if token in ("true", "false", "null", "NaN", "Infinity", "-Infinity"):
        return Kind.WORD
    return Kind.PLAIN if token in "{}[]:," else Kind.NUMBER
