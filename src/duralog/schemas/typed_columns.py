"""Keys and values as typed columns: decided once (`payload_planning`), applied to batches of records.

    columns.schema(wanted)              # of the batches that come out
    columns.apply(records)              # a batch with decoded columns, and `_corrupt` for what did not decode

The plan is a value: it is pickled and sent to tasks. A payload that does not decode is null in its column, with its
bytes and the reason in `_corrupt`, or ends the read with `CorruptPayload`, by `mode`. No record is left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from duralog.columnar.schema import HEADERS, KEY, OFFSET, PARTITION, RECORD_SCHEMA, TOPIC, VALUE, record_schema
from duralog.errors import CorruptPayload, SchemaError
from duralog.schemas.payload_decoder import PayloadDecoder
from duralog.schemas.payloads import Decoded, count_left_out
from duralog.schemas.wire_formats import Framing

_logger = logging.getLogger(__name__)

CORRUPT = "_corrupt"
CORRUPT_TYPE = pa.struct([pa.field(KEY, pa.binary()), pa.field(VALUE, pa.binary()), pa.field("reason", pa.string())])
"""The bytes of a key or value that does not decode, and why. Null for records whose payloads do."""

_SHOWN_FIELDS = 10

Part = Literal["key", "value"]


class Mode(StrEnum):
    """What happens to a payload that does not decode, by Spark's words."""

    PERMISSIVE = "PERMISSIVE"
    FAILFAST = "FAILFAST"

    @classmethod
    def of(cls, text: str) -> Mode:
        try:
            return cls(text.upper())
        except ValueError:
            raise SchemaError(
                f"mode {text!r}: expected PERMISSIVE (a null, with bytes and reason in {CORRUPT}) or FAILFAST (an"
                " error). Records are never dropped"
            ) from None


Fit = Callable[[str, Decoded], Decoded]
"""Called with a column and what was decoded: gives it other types. What these cannot hold does not decode."""


@dataclass(frozen=True)
class TypedColumns:
    """Decoders for the keys and values of some topics."""

    decoders: tuple[tuple[str, PayloadDecoder], ...]
    """By column."""
    findings: tuple[str, ...] = ()
    """What was found out or chosen for each topic, in sentences for people."""
    mode: Mode = Mode.PERMISSIVE

    def schema(self, wanted: Sequence[str] | None) -> pa.Schema:
        """Of the named columns in the order of the record's schema, decoded, with `_corrupt` last if it may be needed.

        `_corrupt` is there unless names are given without it.
        """
        types = {name: decoder.arrow_type for name, decoder in self.decoders}
        names = None if wanted is None else tuple(name for name in wanted if name != CORRUPT)
        plain = record_schema(names)
        fields = [field.with_type(types.get(field.name, field.type)) for field in plain]
        if self.mode is Mode.PERMISSIVE and (wanted is None or CORRUPT in wanted):
            fields.append(pa.field(CORRUPT, CORRUPT_TYPE))
        return pa.schema(fields)

    def needed(self, names: Collection[str], *, with_places: bool = False) -> list[str]:
        """The columns of records that these are made from; `with_places` to say where a payload is that is bad."""
        decoded = [name for name, _ in self.decoders if name in names or CORRUPT in names]
        needed = {name for name in names if name != CORRUPT} | set(decoded)
        if any(_reads_headers(decoder) for name, decoder in self.decoders if name in decoded):
            needed.add(HEADERS)
        if decoded and (with_places or self.mode is Mode.FAILFAST or CORRUPT in names):
            needed |= {TOPIC, PARTITION, OFFSET}
        return [name for name in RECORD_SCHEMA.names if name in needed]

    def decode(self, records: pa.RecordBatch, fit: Fit | None = None) -> DecodedRecords:
        """The columns of records that are `needed`, keys and values decoded. Raises `CorruptPayload` with FAILFAST."""
        headers = records.column(HEADERS) if HEADERS in records.schema.names else None
        columns = {name: records.column(name) for name in records.schema.names}
        bad: dict[str, tuple[pa.Array, pa.Array]] = {}
        left_out: dict[str, int] = {}
        for name, decoder in self.decoders:
            if name not in columns:
                continue
            payloads = columns[name]
            decoded = decoder.decode(payloads, headers if _reads_headers(decoder) else None)
            if fit is not None:
                decoded = fit(name, decoded)
            columns[name] = decoded.values
            if decoder.plan.reader is None:
                # What a JSON Schema lacks is left out on purpose.
                left_out |= {f"{name}.{path}": count for path, count in decoded.left_out.items()}
            if decoded.reasons.null_count < len(decoded.reasons):
                if self.mode is Mode.FAILFAST:
                    raise _corrupt_payload(records, name, decoded.reasons)
                bad[name] = (payloads, decoded.reasons)
        return DecodedRecords(columns, bad, records.num_rows, left_out)

    def apply(self, records: pa.RecordBatch, schema: pa.Schema, left_out: LeftOut) -> pa.RecordBatch:
        """Records of the columns that are `needed`, as the schema has them. What they do not show is added."""
        decoded = self.decode(records)
        left_out.add(decoded.left_out)
        columns = decoded.columns
        if CORRUPT in schema.names:
            columns[CORRUPT] = decoded.corrupt()
        else:
            left_out.add_bad(decoded)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


class LeftOut:
    """What no column of one read has: fields of JSON that the sampled records do not have, and payloads that do not
    decode, if `_corrupt` is not read.

    Threads may add to it. At the end of the read, a warning says what there was.
    """

    def __init__(self) -> None:
        self._counts: Mapping[str, int] = {}
        self._bad_count = 0
        self._bad_reason = ""
        self._adding = threading.Lock()

    def add(self, found: Mapping[str, int]) -> None:
        if found:
            with self._adding:
                self._counts = count_left_out((self._counts, found))

    def add_bad(self, decoded: DecodedRecords) -> None:
        """Payloads that do not decode, and whose bytes and reasons are in no column."""
        with self._adding:
            for name, (_, reasons) in decoded.bad.items():
                found = reasons.drop_null()
                self._bad_reason = self._bad_reason or f"{name}: {found[0].as_py()}"
                self._bad_count += len(found)

    def sentence(self) -> str | None:
        """Which fields are left out, how often they were there, and what to do; None if none is."""
        if not self._counts:
            return None
        shown = [f"{name} ({count:,}x)" for name, count in self._counts.items()]
        more = len(shown) - _SHOWN_FIELDS
        named = ", ".join([*shown[:_SHOWN_FIELDS], *([f"and {more} more"] if more > 0 else [])])
        parts = sorted({name.partition(".")[0] for name in self._counts})
        given = " and ".join(f"{part}.format json with a JSON Schema as {part}.schema" for part in parts)
        return (
            f"fields of JSON that the sampled records do not have are left out: {named}. To have them, give {given}, or"
            " read the bytes"
        )

    def log(self, place: object) -> None:
        sentence = self.sentence()
        if sentence is not None:
            _logger.warning("%s: %s", place, sentence)
        if self._bad_count:
            _logger.warning(
                "%s: %d keys or values do not decode and are null: %s. Read the column %s to have their bytes and"
                " reasons, or give mode FAILFAST",
                place,
                self._bad_count,
                self._bad_reason,
                CORRUPT,
            )


class DecodedRecords(NamedTuple):
    columns: dict[str, pa.Array]
    bad: dict[str, tuple[pa.Array, pa.Array]]
    """For columns with payloads that do not decode: all payloads, and the reasons."""
    row_count: int
    left_out: Mapping[str, int]
    """Fields of JSON that the sample did not have, with their column's name, and how often they were there."""

    def corrupt(self) -> pa.StructArray:
        """The column `_corrupt`."""
        if not self.bad:
            return pa.nulls(self.row_count, CORRUPT_TYPE)
        mask = np.ones(self.row_count, dtype=bool)
        reasons: list[str | None] = [None] * self.row_count
        columns = []
        for name in (KEY, VALUE):
            if name not in self.bad:
                columns.append(pa.nulls(self.row_count, pa.binary()))
                continue
            payloads, why = self.bad[name]
            is_bad = np.asarray(why.is_valid())
            mask &= ~is_bad
            for row in np.flatnonzero(is_bad):
                found = f"{name}: {why[int(row)].as_py()}"
                reasons[row] = found if reasons[row] is None else f"{reasons[row]}; {found}"
            columns.append(_where(payloads, is_bad))
        columns.append(pa.array(reasons, pa.string()))
        return pa.StructArray.from_arrays(columns, fields=list(CORRUPT_TYPE), mask=pa.array(mask))


def _reads_headers(decoder: PayloadDecoder) -> bool:
    """Whether ids may be in the headers, too."""
    return decoder.plan.framing is Framing.CONFLUENT


def _where(payloads: pa.Array, is_bad: np.ndarray) -> pa.Array:
    """The payloads of these rows, null in the others."""
    rows = np.where(is_bad, np.arange(len(payloads)), -1)
    return payloads.take(pa.array(rows, pa.int64(), mask=rows < 0)).cast(pa.binary())


def _corrupt_payload(records: pa.RecordBatch, name: str, reasons: pa.Array) -> CorruptPayload:
    row = int(np.flatnonzero(np.asarray(reasons.is_valid()))[0])
    topic, partition, offset = (records.column(each)[row].as_py() for each in (TOPIC, PARTITION, OFFSET))
    return CorruptPayload(
        f"{topic}-{partition} offset {offset}: the {name} does not decode: {reasons[row].as_py()}; with mode PERMISSIVE"
        f" it is null, and its bytes are in the column {CORRUPT}"
    )
