"""The syntax of Java's properties files, which `meta.properties` and `server.properties` are written in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from duralog.errors import CorruptRecord
from duralog.format.varint import Bytes


@dataclass(frozen=True, slots=True)
class Properties:
    """A Java properties file: the comment lines before the first key, and the values in the file's order."""

    values: Mapping[str, str]
    comments: tuple[str, ...] = ()
    """Each with its `#` or `!`."""


_NATURAL_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_LEADING_SPACE = " \t\f"
_SIMPLE_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED_ON_WRITING = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def decode_properties(data: Bytes) -> Properties:
    r"""The keys and values, as `java.util.Properties.load` reads them.

    That is: bytes are Latin-1; `#` and `!` start comments; a key ends at an unescaped `=`, `:` or space; a line that
    ends in an odd number of backslashes continues in the next one; `\uXXXX` is a character; the last of two equal keys
    counts.
    """
    values: dict[str, str] = {}
    comments: list[str] = []
    for position, line, is_comment in _logical_lines(bytes(data).decode("latin-1")):
        if is_comment:
            if not values:
                comments.append(line)
            continue
        key_end, value_start = _divide(line)
        values[_unescape(line[:key_end], position)] = _unescape(line[value_start:], position)
    return Properties(values, tuple(comments))


def encode_properties(properties: Properties) -> bytes:
    """The file's bytes, as `java.util.Properties.store` writes them, with the comments as they are given."""
    lines = [*properties.comments]
    lines += [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}" for key, value in properties.values.items()]
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Where each line starts, the line with its continuations, whether it is a comment. Blank ones are left out."""
    position = 0
    while position < len(text):
        start = position
        line, position = _natural_line(text, position)
        if line == "":
            continue
        if line[0] in "#!":
            yield start, line, True
            continue
        parts = []
        while _goes_on(line):
            parts.append(line[:-1])
            line, position = _natural_line(text, position)
        yield start, "".join([*parts, line]), False


def _natural_line(text: str, position: int) -> tuple[str, int]:
    match = _NATURAL_LINE.match(text, position)
    assert match is not None
    return match[1].lstrip(_LEADING_SPACE), match.end()


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _divide(line: str) -> tuple[int, int]:
    """Where the key ends and where the value starts."""
    key_end = 0
    while key_end < len(line) and line[key_end] not in "=: \t\f":
        key_end += 2 if line[key_end] == "\\" else 1
    key_end = min(key_end, len(line))
    value_start = key_end
    separator_seen = False
    while value_start < len(line):
        character = line[value_start]
        if character in "=:" and not separator_seen:
            separator_seen = True
        elif character not in _LEADING_SPACE:
            break
        value_start += 1
    return key_end, value_start


def _unescape(text: str, line_position: int) -> str:
    if "\\" not in text:
        return text
    characters = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\":
            characters.append(character)
            continue
        escaped = text[at : at + 1]
        at += 1
        if escaped == "u":
            digits = text[at : at + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise CorruptRecord(
                    "a properties file has a malformed character escape",
                    position=line_position,
                    expected="\\u and four hexadecimal digits",
                    found=repr(f"\\u{digits}"),
                )
            characters.append(chr(int(digits, 16)))
            at += 4
        else:
            characters.append(_SIMPLE_ESCAPES.get(escaped, escaped))
    # Characters beyond the 16-bit ones are escaped as two surrogates.
    return "".join(characters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool) -> str:
    parts = []
    for index, character in enumerate(text):
        if character in _ESCAPED_ON_WRITING:
            parts.append(_ESCAPED_ON_WRITING[character])
        elif character == " ":
            parts.append("\\ " if is_key or index == 0 else " ")
        elif character in "=:#!":
            parts.append(f"\\{character}")
        elif " " < character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)]
    return "".join(parts)
