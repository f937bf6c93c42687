"""Keys, values and headers in readable form: JSON laid out, text, or hexadecimal for other bytes.

The bytes are not trusted. Control characters and those that change the direction of text are shown as escapes. The
results are text, to be shown as text, and bounded: longer values are truncated, with a note.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from duralog.console.drawing.json_text import Kind, Token, pretty_json

LONGEST_PREVIEW = 160
"""Characters, in a row of a list."""
LONGEST_JSON_BYTES = 1 << 19
LONGEST_SHOWN_CHARACTERS = 1 << 18
"""Of a laid out value: a browser can draw this much without a pause."""
_MOST_COLOURED = 12_000
"""Tokens: a larger document is shown without colours."""
_HEX_BYTES = 8
"""On a line: it fits a phone."""
_LONGEST_HEX_BYTES = 1 << 14
_LINE_BREAKS = "\n\t"
_CONTROLS = bytes(set(range(32)) - set(b"\n\r\t\x1b"))


class Form(StrEnum):
    DECODED = "decoded"
    """By a schema, or as a number: JSON that stands for the bytes."""
    NULL = "null"
    EMPTY = "empty"
    JSON = "JSON"
    TEXT = "text"
    HEX = "bytes"


@dataclass(frozen=True, slots=True)
class Shown:
    form: Form
    tokens: tuple[Token, ...]
    is_cut: bool
    """There are more bytes than are given here."""

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.tokens)


def preview(data: bytes | None, longest: int = LONGEST_PREVIEW) -> str:
    """One line, truncated to the width of a row."""
    if data is None:
        return "null"
    text = text_of(data[: 4 * longest], is_cut=len(data) > 4 * longest)
    if text is None:
        cut = data[: longest // 3]
        return "0x" + cut.hex() + ("…" if len(cut) < len(data) else "")
    line = visible(" ".join(text.split("\n")) if "\n" in text else text)
    return line[:longest] + "…" if len(line) > longest or len(data) > 4 * longest else line


def shown(data: bytes | None, form: Form | None = None) -> Shown:
    """In the given form, if possible; otherwise in the first possible one of JSON, text, hexadecimal."""
    if data is None:
        return Shown(Form.NULL, ((Kind.WORD, "null"),), is_cut=False)
    if not data:
        return Shown(Form.EMPTY, (), is_cut=False)
    text = None if form is Form.HEX else text_of(data)
    if text is None:
        return Shown(Form.HEX, ((Kind.PLAIN, hex_lines(data)),), is_cut=len(data) > _LONGEST_HEX_BYTES)
    tokens = pretty_json(text) if form is not Form.TEXT and len(data) <= LONGEST_JSON_BYTES else None
    if tokens is None:
        return _bounded(Form.TEXT, [(Kind.PLAIN, text)])
    if len(tokens) > _MOST_COLOURED:
        tokens = [(Kind.PLAIN, "".join(part for _, part in tokens))]
    return _bounded(Form.JSON, tokens)


def shown_json(text: str) -> Shown:
    """What was decoded, laid out; it may also be a number or a text alone."""
    found = shown(text.encode("utf-8", "surrogatepass"), Form.JSON)
    tokens = found.tokens if found.form is Form.JSON else ((Kind.PLAIN, visible(text[:LONGEST_SHOWN_CHARACTERS])),)
    return Shown(Form.DECODED, tokens, is_cut=found.is_cut)


def forms_of(first: Form) -> tuple[Form, ...]:
    """The forms in which bytes can be shown, the most readable first, which `shown` takes by default."""
    return {Form.JSON: (Form.JSON, Form.TEXT, Form.HEX), Form.TEXT: (Form.TEXT, Form.HEX), Form.HEX: (Form.HEX,)}.get(
        first, ()
    )


def text_of(data: bytes, *, is_cut: bool = False) -> str | None:
    """The text if the bytes are UTF-8 without control characters of binary data; None otherwise. `is_cut`: it may end
    within a character.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3 or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode()
    # Text has no NUL, and few controls: what has more is a number, a packed structure or a cipher. All controls are
    # single bytes, and a byte below them is nothing else: counting bytes is a hundred times faster than characters.
    controls = len(data) - len(data.translate(None, delete=_CONTROLS))
    return None if b"\0" in data or controls > len(text) * 0.1 else text


def visible(text: str, keep: str = "") -> str:
    """Characters that cannot be seen, or that move others, as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escaped(char) for char in text)


def hex_lines(data: bytes) -> str:
    """`00000010  48 65 6c 6c 6f 00 01 02  Hello...`, one line for eight bytes."""
    lines = []
    for at in range(0, min(len(data), _LONGEST_HEX_BYTES), _HEX_BYTES):
        row = data[at : at + _HEX_BYTES]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<{3 * _HEX_BYTES - 1}}  {letters}")
    return "\n".join(lines)


def copied(data: bytes | None) -> str:
    """The content of the clipboard for a copy button: the text, or hexadecimal digits."""
    if data is None:
        return ""
    text = text_of(data)
    return data.hex() if text is None else text


def _bounded(form: Form, tokens: Iterable[Token]) -> Shown:
    kept: list[Token] = []
    room = LONGEST_SHOWN_CHARACTERS
    for kind, text in tokens:
        if room <= 0:
            return Shown(form, tuple(kept), is_cut=True)
        piece = text[:room]
        kept.append((kind, visible(piece, keep=_LINE_BREAKS)))
        room -= len(piece)
        if len(piece) < len(text):
            return Shown(form, tuple(kept), is_cut=True)
    return Shown(form, tuple(kept), is_cut=False)


def _escaped(char: str) -> str:
    return {"\r": "\\r", "\n": "\\n", "\t": "\\t"}.get(char) or char.encode("unicode_escape").decode()
