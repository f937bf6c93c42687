"""The form for a record: empty, or filled with a shown record.

A record that is sent again keeps its bytes: binary or large parts stay on the server, and only the parts that the user
edits are replaced.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence

from duralog.config.key_text import parse_key
from duralog.console.changes.change import Change, WrongInput
from duralog.console.changes.forms import Field, Form, Values, number_of
from duralog.console.changes.records import ProduceRecord
from duralog.console.changes.topic_forms import topic_of
from duralog.console.facts.records import ShownRecord
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Header, Record

_TEXT, _JSON, _BASE64, _NONE, _SAME = "text", "json", "base64", "none", "same"
_MOST_TYPED_BYTES = 256 << 10
"""Larger parts are sent again unchanged, and not shown in the form."""
_MOST_HEADERS = 1_000
_LARGEST_READ_BYTES = 8 << 20
"""Of each part: `Source.record` gives no more."""


def produce_form(topic: str, topics: Sequence[str], *, parse_when: Callable[[str], int]) -> Form:
    """`parse_when` reads a date and time in the zone of the reader. Raises `ValueError`."""
    return _form("Produce a record", "Produce", topic, topics, parse_when, None)


def resend_form(topic: str, topics: Sequence[str], shown: ShownRecord, *, parse_when: Callable[[str], int]) -> Form:
    """REQUIRES: the record is whole."""
    title = f"Send offset {shown.offset:,} again"
    return _form(title, "Produce", topic, topics, parse_when, shown)


def is_whole(record: ShownRecord) -> bool:
    """Whether `Source.record` has given all of a record."""
    sizes = [(record.key, record.key_bytes), (record.value, record.value_bytes)]
    is_short = any(len(part or b"") < size for part, size in sizes) or len(record.headers) < record.header_count
    return not is_short and all(len(value or b"") < _LARGEST_READ_BYTES for _, value in record.headers)


def _form(
    title: str,
    verb: str,
    topic: str,
    topics: Sequence[str],
    parse_when: Callable[[str], int],
    shown: ShownRecord | None,
) -> Form:
    headers = () if shown is None else shown.headers
    key_form, key = _typed(None if shown is None else shown.key, is_new=False, lost="\r\n\0")
    value_form, value = _typed(b"" if shown is None else shown.value, is_new=shown is None, lost="\r\0")
    lines = _header_lines(headers)
    again = () if shown is None else ((_SAME, "as it was"),)
    typed = ((_TEXT, "text"), (_JSON, "JSON"), (_BASE64, "base64"))
    is_typed = (_TEXT, _JSON, _BASE64)

    def read(values: Values) -> Change:
        name = topic_of(values)
        if name in INTERNAL_TOPICS:
            raise WrongInput("topic", f"{name} is an internal topic of Kafka: only a broker writes to it.")
        record = Record(
            key=shown.key if shown is not None and values["key_form"] == _SAME else _bytes_of(values, "key", "Key"),
            value=shown.value
            if shown is not None and values["value_form"] == _SAME
            else _bytes_of(values, "value", "Value"),
            timestamp_ms=_time_of(values, parse_when),
            headers=list(headers) if values["headers_form"] == _SAME else _headers_of(values),
        )
        return ProduceRecord(topic=name, partition=number_of(values, "partition", "Partition"), record=record)

    return Form(
        title=title,
        verb=verb,
        about="" if shown is None else "A copy is appended. The record itself stays as it is.",
        fields=(
            Field(name="topic", label="Topic", value=topic, suggestions=tuple(topics[:1_000])),
            Field(name="partition", label="Partition", placeholder="by the key"),
            Field(
                name="key_form",
                label="Key as",
                kind="select",
                value=key_form,
                choices=(*again, (_NONE, "no key"), *typed),
            ),
            Field(name="key", label="Key", value=key, when=("key_form", is_typed)),
            Field(
                name="value_form",
                label="Value as",
                kind="select",
                value=value_form,
                choices=(*again, *typed, (_NONE, "no value (tombstone)")),
            ),
            Field(name="value", label="Value", kind="area", value=value, when=("value_form", is_typed)),
            Field(
                name="headers_form",
                label="Headers",
                kind="select",
                value=_SAME if headers and lines is None else _TEXT if headers else _NONE,
                choices=(*again, (_NONE, "none"), (_TEXT, "typed")),
            ),
            Field(
                name="headers",
                label="NAME=VALUE, one on a line",
                kind="area",
                value=lines or "",
                when=("headers_form", (_TEXT,)),
                about="0x… gives bytes; a name without = has no value.",
            ),
            Field(
                name="time",
                label="Timestamp",
                placeholder="now",
                about="Empty: now. In your time zone, unless it names one. Topics with LogAppendTime replace it.",
            ),
        ),
        read=read,
    )


def _typed(data: bytes | None, *, is_new: bool, lost: str) -> tuple[str, str]:
    """How bytes are first shown in the form, and as which text. A browser would change the characters `lost`."""
    if data is None:
        return _NONE, ""
    if is_new:
        return _TEXT, ""
    if len(data) > _MOST_TYPED_BYTES:
        return _SAME, ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _SAME, ""
    return (_SAME, "") if set(lost) & set(text) else (_TEXT, text)


def _bytes_of(values: Values, name: str, label: str) -> bytes | None:
    form, typed = values[f"{name}_form"], values[name]
    if form == _NONE:
        return None
    if form == _BASE64:
        try:
            return base64.b64decode("".join(typed.split()), validate=True)
        except (binascii.Error, ValueError):
            raise WrongInput(name, f"{label}: not base64") from None
    if form == _JSON:
        try:
            json.loads(typed)
        except (ValueError, RecursionError) as error:
            raise WrongInput(name, f"{label}: not JSON: {error}") from None
    return typed.encode()


def _headers_of(values: Values) -> list[Header]:
    if values["headers_form"] == _NONE:
        return []
    found: list[Header] = []
    for line in values["headers"].splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not name.strip():
            raise WrongInput("headers", f"Headers: {line[:80]!r} has no name")
        try:
            found.append((name.strip(), parse_key(value) if equals else None))
        except ValueError as error:
            raise WrongInput("headers", f"Headers: {error}") from None
    if len(found) > _MOST_HEADERS:
        raise WrongInput("headers", f"Headers: at most {_MOST_HEADERS:,}")
    return found


def _header_lines(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    """Headers as text for the form; None if that is impossible or too long."""
    lines = []
    for name, value in headers:
        try:
            text = None if value is None else value.decode()
        except UnicodeDecodeError:
            text = f"0x{(value or b'').hex()}"
        lines.append(name if text is None else f"{name}={text}")
    typed = "\n".join(lines)
    return typed if len(typed) <= _MOST_TYPED_BYTES and _read_back(typed) == list(headers) else None


def _read_back(typed: str) -> list[Header] | None:
    try:
        return _headers_of({"headers_form": _TEXT, "headers": typed})
    except WrongInput:
        return None


def _time_of(values: Values, parse_when: Callable[[str], int]) -> int:
    typed = values["time"].strip()
    if not typed:
        return NO_TIMESTAMP
    try:
        timestamp_ms = parse_when(typed)
    except (ValueError, OverflowError) as error:
        raise WrongInput("time", f"Timestamp: {error}") from None
    if timestamp_ms < 0:
        raise WrongInput("time", "Timestamp: records cannot be older than 1970")
    return timestamp_ms
