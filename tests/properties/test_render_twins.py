"""The rendering kernels against plain Python, for records of any content, laid out in memory in any order."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.render import LineBuffer, render_json, render_text
from duralog.format.varint import encode_varint
from duralog.kernels.columns import BATCH_DTYPE, RecordColumns

INT64S = st.integers(-(2**63), 2**63 - 1)
CYCLE = timedelta(days=146_097)
"""The calendar repeats after 400 years."""

AWKWARD = st.sampled_from(['"', "\\", "\n", "\x00", "\x1f", "\x7f", "\x80", "\x9f", "\xa0", "é", "€", "😀", "\u2028"])
TEXTS = st.lists(st.text(max_size=40) | AWKWARD | st.just("plain text, ") | st.just("a" * 40), max_size=8)
FIELDS = st.none() | st.binary(max_size=80) | TEXTS.map(lambda parts: "".join(parts).encode())
BROKEN_TEXTS = st.tuples(TEXTS, st.binary(min_size=1, max_size=3), TEXTS).map(
    lambda parts: "".join(parts[0]).encode() + parts[1] + "".join(parts[2]).encode()
)
CONTENTS = FIELDS | BROKEN_TEXTS
KEYS = CONTENTS.map(lambda content: content or b"")


@dataclass(frozen=True)
class Line:
    """What there is to render."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    batch: int


LINES = st.builds(
    Line,
    offset=INT64S | st.integers(0, 1000),
    timestamp=INT64S | st.integers(-1, 2) | st.integers(1_600_000_000_000, 1_800_000_000_000),
    key=CONTENTS,
    value=CONTENTS,
    headers=st.lists(st.tuples(KEYS, CONTENTS), max_size=3),
    batch=st.integers(0, 3),
)
BATCHES = st.lists(
    st.fixed_dictionaries(
        {
            "magic": st.sampled_from([0, 1, 2]),
            "attributes": st.integers(0, 127),
            "base_sequence": st.sampled_from([-1, -1, 0, 5, 2**31 - 2, 2**31 - 1]),
            "base_offset": st.integers(0, 1000),
        }
    ),
    min_size=4,
    max_size=4,
)


def laid_out(lines, batches, order):
    """The bytes of all records, those of each record in an order of their own, and nothing after the last."""
    data = bytearray(b"?")
    columns = RecordColumns.empty(len(lines))
    for row, line in enumerate(lines):
        columns.offset[row] = line.offset
        columns.timestamp[row] = line.timestamp
        columns.header_count[row] = len(line.headers)
        for part in order:
            if part == "headers":
                columns.headers_position[row] = len(data)
                for key, value in line.headers:
                    data += encode_varint(len(key)) + key
                    data += encode_varint(-1) if value is None else encode_varint(len(value)) + value
            else:
                content = getattr(line, part)
                getattr(columns, f"{part}_position")[row] = len(data)
                getattr(columns, f"{part}_length")[row] = -1 if content is None else len(content)
                data += content or b""
    rows = np.zeros(len(batches), BATCH_DTYPE)
    for number, batch in enumerate(batches):
        for name, value in batch.items():
            rows[name][number] = value
    batch_row = np.array([line.batch for line in lines], np.int32)
    return DecodedRecords(np.frombuffer(bytes(data), np.uint8), columns, batch_row, rows)


def sequence_of(line, batch):
    """None where the batch has no sequence numbers. A delta that no batch can hold is not looked at any closer."""
    if batch["base_sequence"] < 0:
        return None
    delta = (line.offset - batch["base_offset"] + 2**63) % 2**64 - 2**63
    sequence = (batch["base_sequence"] + delta + 2**63) % 2**64 - 2**63
    return sequence - 2**31 if sequence >= 2**31 else sequence


def json_field(name, content):
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def json_line(line, batch, extra):
    if batch["magic"] == 0:
        timestamp_type = "NoTimestampType"
    else:
        timestamp_type = "LogAppendTime" if batch["attributes"] & 8 else "CreateTime"
    sequence = sequence_of(line, batch)
    fields = {
        **extra,
        "offset": line.offset,
        "timestamp": None if line.timestamp == -1 else line.timestamp,
        "timestamp_type": timestamp_type,
        **({} if sequence is None else {"sequence": sequence}),
        **json_field("key", line.key),
        **json_field("value", line.value),
        "headers": [json_field("key", key) | json_field("value", value) for key, value in line.headers],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def time_text(timestamp_ms):
    cycles, rest = divmod(timestamp_ms, CYCLE // timedelta(milliseconds=1))
    within = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=rest)
    year = within.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{within:%m-%dT%H:%M:%S}.{within.microsecond // 1000:03d}Z"


def quoted(content, most):
    if content is None:
        return "null"
    shown = len(content)
    if shown > most:
        shown = next(
            (cut for cut in range(most, max(most - 3, 0), -1) if not 0x80 <= content[cut] < 0xC0), max(most - 3, 0)
        )
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    text = ""
    for character in content[:shown].decode(errors="surrogateescape"):
        code = ord(character)
        if 0xDC80 <= code <= 0xDCFF:
            text += f"\\x{code - 0xDC00:02x}"
        elif code < 0x20 or 0x7F <= code < 0xA0 or character in named:
            text += named.get(character) or "".join(f"\\x{byte:02x}" for byte in character.encode())
        else:
            text += character
    return f'"{text}"' + (f"…(+{len(content) - shown} bytes)" if shown < len(content) else "")


def text_line(line, batch, prefix, width, most):
    sequence = sequence_of(line, batch)
    parts = [
        f"{prefix}offset {line.offset:>{width}}" if width else f"{prefix}offset {line.offset}",
        "no timestamp".ljust(24) if line.timestamp == -1 else time_text(line.timestamp),
        *([] if sequence is None else [f"sequence {sequence}"]),
        f"key {quoted(line.key, most)}",
        f"value {quoted(line.value, most)}",
    ]
    if line.headers:
        shown = (f"{quoted(key, most)}={quoted(value, most)}" for key, value in line.headers)
        parts.append("headers " + " ".join(shown))
    return "  ".join(parts) + "\n"


ORDERS = st.permutations(["key", "value", "headers"])


@given(st.lists(LINES, max_size=12), BATCHES, ORDERS, st.dictionaries(st.sampled_from("tpf"), st.text(), max_size=3))
def test_json_lines(lines, batches, order, extra):
    prefix = json.dumps(extra, separators=(",", ":"))[1:-1] + "," if extra else ""
    rendered = bytes(render_json(laid_out(lines, batches, order), prefix.encode())).decode()
    # The prefix is the caller's, and stands as it is: here in json's own, all-ASCII spelling.
    expected = [json_line(line, batches[line.batch], {}) for line in lines]
    assert rendered == "".join("{" + prefix + line[1:] for line in expected)
    for line, text in zip(lines, rendered.split("\n")[:-1], strict=True):
        assert json.loads(text) == json.loads(json_line(line, batches[line.batch], extra))


@given(
    st.lists(LINES, max_size=12),
    BATCHES,
    ORDERS,
    st.sampled_from(["", "| ", "a prefix of more than thirty-two bytes "]),
    st.integers(0, 20),
    st.none() | st.integers(0, 50),
)
def test_text_lines(lines, batches, order, prefix, width, most):
    decoded = laid_out(lines, batches, order)
    rendered = render_text(decoded, prefix.encode(), offset_width=width, max_field_bytes=most)
    shown_bytes = 2**63 - 1 if most is None else most
    expected = "".join(text_line(line, batches[line.batch], prefix, width, shown_bytes) for line in lines)
    assert bytes(rendered).decode() == expected


@given(
    st.lists(st.tuples(st.lists(LINES, max_size=6), st.sampled_from([render_json, render_text])), max_size=4), BATCHES
)
def test_a_buffer_that_is_used_again(chunks, batches):
    buffer = LineBuffer()
    for lines, render in chunks:
        decoded = laid_out(lines, batches, ["key", "value", "headers"])
        assert bytes(render(decoded, buffer=buffer)) == bytes(render(decoded))
