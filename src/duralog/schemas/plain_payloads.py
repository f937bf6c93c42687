"""Payloads of Kafka's own serializers: text, numbers, UUIDs and bytes.

They have no schema. Numbers are big-endian and exactly as long as their type, as Kafka's deserializers demand.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from duralog.errors import SchemaError
from duralog.schemas.payloads import Bytes, Decoded, Int64s, Payloads, binary_column, good, reasons_of

NUMBERS: dict[str, tuple[str, pa.DataType]] = {
    "short": (">i2", pa.int16()),
    "integer": (">i4", pa.int32()),
    "long": (">i8", pa.int64()),
    "float": (">f4", pa.float32()),
    "double": (">f8", pa.float64()),
}

PLAIN_FORMATS = ("bytes", "string", "uuid", "boolean", *NUMBERS)

_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


def plain_payloads(name: str) -> Payloads:
    """The decoder of one of `PLAIN_FORMATS`."""
    if name in NUMBERS:
        return _Numbers(name)
    if name == "boolean":
        return _Booleans()
    if name == "bytes":
        return _Blobs()
    if name in ("string", "uuid"):
        return _Texts(name)
    raise SchemaError(f"there is no plain format {name!r}; there are {', '.join(PLAIN_FORMATS)}")


class _Blobs:
    arrow_type = pa.binary()

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        return good(binary_column(data, starts, ends).cast(pa.binary()))


class _Texts:
    """UTF-8; Kafka's UUIDSerializer writes a UUID's text."""

    arrow_type = pa.string()

    def __init__(self, name: str) -> None:
        self._is_uuid = name == "uuid"

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        column = binary_column(data, starts, ends).cast(pa.binary())
        codes = np.zeros(len(column), np.int8)
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            texts = pa.array([_text(each.as_py()) for each in column], pa.string())
            codes[np.asarray(pc.is_null(texts))] = 1
        if self._is_uuid:
            wrong = ~np.asarray(pc.fill_null(pc.match_substring_regex(texts, _UUID), True))
            codes[wrong] = 2
            texts = pc.if_else(pa.array(wrong), pa.scalar(None, pa.string()), texts)
        return Decoded(texts, reasons_of(codes, {1: "the payload is not UTF-8", 2: "the payload is not a UUID"}))


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


class _Numbers:
    def __init__(self, name: str) -> None:
        self._name = name
        self._bytes, self.arrow_type = NUMBERS[name]
        self._width = np.dtype(self._bytes).itemsize

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        fits = ends - starts == self._width
        raw = data[starts[fits][:, None] + np.arange(self._width)]
        found = np.ascontiguousarray(raw).view(self._bytes).reshape(-1)
        values = np.zeros(len(starts), found.dtype.newbyteorder("="))
        values[fits] = found
        texts = {1: f"the payload does not have the {self._width} bytes of a {self._name}"}
        return Decoded(pa.array(values, self.arrow_type, mask=~fits), reasons_of((~fits).astype(np.int8), texts))


class _Booleans:
    arrow_type = pa.bool_()

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        fits = ends - starts == 1
        values = np.zeros(len(starts), np.uint8)
        values[fits] = data[starts[fits]]
        fits &= values <= 1
        texts = {1: "the payload is not one byte that is 0 or 1"}
        return Decoded(pa.array(values == 1, mask=~fits), reasons_of((~fits).astype(np.int8), texts))
