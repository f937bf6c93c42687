"""Records as the browser of records shows them: a row of the list, and the panel of the one that is opened.

Plain values, which the components of `assets/` show as text. Offsets are text, since browser numbers have 53 bits.
"""

from __future__ import annotations

from typing import Any

from duralog.console.drawing.json_text import Kind, Token
from duralog.console.drawing.reader_zone import ReaderZone
from duralog.console.drawing.record_place import Place, key_query
from duralog.console.drawing.shown_bytes import Form, Shown, copied, forms_of, preview, shown, shown_json, visible
from duralog.console.drawing.words import (
    age_text,
    bytes_text,
    counted,
    number_text,
    records_path,
    subject_path,
)
from duralog.console.facts.payloads import ShownPayload
from duralog.console.facts.records import RecordKind, ShownRecord
from duralog.console.facts.topic_records import PlacedRecord

_LONGEST_HEADER = 400
_LONGEST_FOUND_KEY = 1_024
_TAGS = {"tombstone": "tombstone", "aborted": "aborted", "open": "undecided", "marker": "marker"}


def decoded_of(record: ShownRecord, part: str) -> ShownPayload | None:
    """The decoded key or value; None if it is shown as bytes."""
    return record.decoded_key if part == "key" else record.decoded_value


def payload(record: ShownRecord, part: str) -> bytes | None:
    """The part of a key or a value that a row shows."""
    decoded = decoded_of(record, part)
    if decoded is not None and decoded.text is not None:
        return decoded.text.encode("utf-8", "replace")
    return record.key if part == "key" else record.value


def kind_of(record: ShownRecord) -> str:
    """`data`, `tombstone`, `aborted`, `open` or `marker`."""
    return "tombstone" if record.kind is RecordKind.DATA and record.is_tombstone else str(record.kind)


def row_of(record: ShownRecord, zone: ReaderZone) -> dict[str, Any]:
    """`id` is what the row is opened by."""
    kind = kind_of(record)
    value = "" if kind == "tombstone" else preview(payload(record, "value")) or "empty"
    return {
        "id": str(record.offset),
        "offset": str(record.offset),
        "offsetText": number_text(record.offset),
        "time": zone.text(record.timestamp_ms, timespec="milliseconds"),
        "exact": zone.exact(record.timestamp_ms),
        "key": (preview(payload(record, "key"), 80) or "empty") if kind != "marker" else "",
        "keyForm": _form_class(payload(record, "key")),
        "value": visible(record.marker or "") if kind == "marker" else value,
        "valueForm": _form_class(payload(record, "value")) if kind not in ("marker", "tombstone") else "",
        "kind": kind,
        "tag": _TAGS.get(kind, ""),
        "headers": counted(record.header_count, "header") if record.header_count else "",
        "size": bytes_text(record.size_bytes),
    }


def topic_row_of(placed: PlacedRecord, zone: ReaderZone) -> dict[str, Any]:
    """A row in a list of several partitions."""
    place = f"{placed.partition}:{placed.record.offset}"
    return {**row_of(placed.record, zone), "id": place, "partition": str(placed.partition)}


def panel_of(
    topic: str, partition: int, record: ShownRecord, forms: dict[str, Form], zone: ReaderZone
) -> dict[str, Any]:
    """`forms` are the reader's choices for `key` and `value`."""
    kind = kind_of(record)
    facts = [
        ["Time", zone.text(record.timestamp_ms, timespec="milliseconds"), zone.exact(record.timestamp_ms)],
        ["Age", age_text(record.timestamp_ms), ""],
        ["Timestamp type", record.timestamp_type, ""],
        ["Size", bytes_text(record.size_bytes), f"{number_text(record.size_bytes)} bytes of key, value and headers"],
    ]
    if record.codec is not None:
        facts.append(["Batch codec", record.codec, ""])
    if record.producer_id is not None:
        facts.append(["Producer", number_text(record.producer_id), ""])
    if record.marker is not None:
        facts.append(["Marker", visible(record.marker), ""])
    parts = []
    if kind != "marker":
        key = _part("key", record, forms.get("key"))
        if record.key is not None and len(record.key) == record.key_bytes <= _LONGEST_FOUND_KEY:
            key["find"] = records_path(topic, partition) + Place(key=key_query(record.key)).query()
        parts = [key, _part("value", record, forms.get("value"))]
    return {
        "offset": str(record.offset),
        "offsetText": number_text(record.offset),
        "partition": str(partition),
        "place": "",
        "kind": kind,
        "tag": _TAGS.get(kind, ""),
        "facts": facts,
        "parts": parts,
        "headers": [_header(name, value) for name, value in record.headers],
        "headersAbout": _headers_about(record),
    }


def _part(name: str, record: ShownRecord, form: Form | None) -> dict[str, Any]:
    data, size_bytes = (record.key, record.key_bytes) if name == "key" else (record.value, record.value_bytes)
    decoded = decoded_of(record, name)
    text = None if decoded is None else decoded.text
    first = shown(data)
    if text is not None and form in (None, Form.DECODED):
        what = shown_json(text)
    else:
        what = first if form is None or form is first.form else shown(data, form)
    has_more = data is not None and len(data) < size_bytes
    note = ""
    if what.is_cut and not has_more:
        note = "The rest is too long to be shown here: duralog consume writes all of it."
    return {
        "name": name,
        "title": name.capitalize(),
        "about": _about(what, data, size_bytes, name, decoded),
        "form": str(what.form),
        "forms": [*([str(Form.DECODED)] if text is not None else ()), *(str(one) for one in forms_of(first.form))],
        "tokens": [[str(kind), text] for kind, text in merged(what.tokens)],
        "copy": copied(data) if text is None or what.form is not Form.DECODED else text,
        "more": f"Show all {bytes_text(size_bytes)}" if has_more else "",
        "note": note,
        "find": "",
        **_schema(decoded),
    }


def _schema(decoded: ShownPayload | None) -> dict[str, str]:
    """The schema that wrote it, its page, and why it did not decode."""
    if decoded is None:
        return {"schema": "", "schemaPath": "", "reason": ""}
    path = "" if decoded.subject is None else subject_path(decoded.subject, decoded.version)
    reason = (
        "" if decoded.reason is None else f"Shown as bytes: it does not decode as {decoded.format}: {decoded.reason}"
    )
    return {"schema": visible(decoded.schema or ""), "schemaPath": path, "reason": visible(reason)}


def merged(tokens: tuple[Token, ...]) -> list[Token]:
    """Neighbours of one kind as one: fewer elements for the browser."""
    found: list[Token] = []
    for kind, text in tokens:
        if found and kind is found[-1][0] is Kind.PLAIN:
            found[-1] = (kind, found[-1][1] + text)
        else:
            found.append((kind, text))
    return found


def _about(what: Shown, data: bytes | None, size_bytes: int, name: str, decoded: ShownPayload | None) -> str:
    if data is None:
        return "null: a tombstone deletes its key" if name == "value" else "null: no key"
    form = decoded.format if decoded is not None and what.form is Form.DECODED else what.form
    return f"{form}, {bytes_text(size_bytes)}"


def _header(name: str, value: bytes | None) -> list[str]:
    return [visible(name), preview(value, _LONGEST_HEADER), _form_class(value)]


def _headers_about(record: ShownRecord) -> str:
    if len(record.headers) < record.header_count:
        return f"{len(record.headers)} of {number_text(record.header_count)}"
    return number_text(record.header_count)


def _form_class(data: bytes | None) -> str:
    if data is None:
        return "is-null"
    return (
        "is-empty"
        if not data
        else "is-hex"
        if preview(data, 16).startswith("0x") and not data.startswith(b"0x")
        else ""
    )
