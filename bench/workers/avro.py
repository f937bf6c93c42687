"""Avro values of a record to Arrow or to Python objects: READER FIELDS COLUMN PASSES, in records per CPU second.

The record has FIELDS fields. With a COLUMN, only that field is read; `-` reads all of them. The values are made from a
seed before the clock starts. They are the same for every reader.
"""

from __future__ import annotations

import io
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.workers.passes import tell

_RECORDS = 200_000
_PEER_RECORDS = 20_000

_FIELDS: tuple[tuple[str, Any], ...] = (
    ("id", "long"),
    ("created", {"type": "long", "logicalType": "timestamp-millis"}),
    ("customer", "string"),
    ("email", ["null", "string"]),
    ("quantity", "int"),
    ("price", "double"),
    ("is_paid", "boolean"),
    ("status", {"type": "enum", "name": "Status{}", "symbols": ["NEW", "PAID", "SENT"]}),
    ("note", ["null", "string"]),
    ("discount", ["null", "long"]),
)


def schema(fields: int, column: str | None = None) -> dict[str, Any]:
    """An order of this many fields, the ten above again and again; or the same with one column alone."""
    listed: list[dict[str, Any]] = []
    for number in range(fields):
        name, kind = _FIELDS[number % len(_FIELDS)]
        if isinstance(kind, dict) and "name" in kind:
            kind = {**kind, "name": kind["name"].format(number)}
        listed.append({"name": f"{name}_{number}", "type": kind})
    if column is not None:
        listed = [one for one in listed if one["name"] == column]
    return {"type": "record", "name": "Order", "fields": listed}


def values(fields: int, records: int) -> list[bytes]:
    """About ten bytes a field."""
    import fastavro

    written = fastavro.parse_schema(schema(fields))
    drawn = random.Random(7)
    encoded = []
    for number in range(records):
        values_of: list[Any] = []
        while len(values_of) < fields:
            values_of += [
                drawn.randrange(1 << 40),
                1_790_000_000_000 + 1_000 * number,
                f"customer-{drawn.randrange(1_000_000)}",
                f"user{drawn.randrange(1_000_000)}@example.com" if drawn.random() < 0.8 else None,
                drawn.randrange(1_000),
                drawn.random(),
                drawn.random() < 0.5,
                drawn.choice(("NEW", "PAID", "SENT")),
                "left at the door of the neighbour, second floor" if drawn.random() < 0.5 else None,
                drawn.randrange(100) if drawn.random() < 0.5 else None,
            ]
        out = io.BytesIO()
        names = (one["name"] for one in written["fields"])  # type: ignore[index, call-overload]
        fastavro.schemaless_writer(out, written, dict(zip(names, values_of, strict=False)))
        encoded.append(out.getvalue())
    return encoded


def duralog(fields: int, column: str | None) -> Callable[[], int]:
    import numpy as np

    from duralog.schemas.avro import compile_decoder, parse_schema

    rows = values(fields, _RECORDS)
    data = b"".join(rows)
    sizes = np.array([len(row) for row in rows], np.int64)
    ends = np.cumsum(sizes)
    decoder = compile_decoder(parse_schema(json.dumps(schema(fields))), columns=None if column is None else [column])

    def work() -> int:
        decoded, codes = decoder.decode(data, ends - sizes, ends)
        assert not codes.any()
        return len(decoded)

    return work


def fastavro_objects(fields: int, column: str | None) -> Callable[[], int]:
    """A dict for each record, made and dropped."""
    import fastavro

    rows = [io.BytesIO(row) for row in values(fields, _PEER_RECORDS)]
    writer = fastavro.parse_schema(schema(fields))
    reader = None if column is None else fastavro.parse_schema(schema(fields, column))

    def work() -> int:
        read = fastavro.schemaless_reader
        for row in rows:
            row.seek(0)
            read(row, writer, reader)
        return len(rows)

    return work


def fastavro_to_arrow(fields: int, column: str | None) -> Callable[[], int]:
    """The same result as duralog's, by way of fastavro's dicts."""
    import fastavro
    import pyarrow as pa

    from duralog.schemas.avro import compile_decoder, parse_schema

    rows = [io.BytesIO(row) for row in values(fields, _PEER_RECORDS)]
    writer = fastavro.parse_schema(schema(fields))
    reader = None if column is None else fastavro.parse_schema(schema(fields, column))
    arrow_type = compile_decoder(parse_schema(json.dumps(schema(fields, column)))).arrow_type

    def work() -> int:
        made = []
        for row in rows:
            row.seek(0)
            made.append(fastavro.schemaless_reader(row, writer, reader))
        return len(pa.array(made, arrow_type))

    return work


READERS = {reader.__name__: reader for reader in (duralog, fastavro_objects, fastavro_to_arrow)}


def _main(reader: str, fields: str, column: str, passes: str) -> None:
    work = READERS[reader](int(fields), None if column == "-" else column)
    for _ in range(1 + 3 * int(passes)):
        start = time.process_time()
        amount = work()
        seconds = time.process_time() - start
        tell(seconds, seconds, amount)


if __name__ == "__main__":
    _main(*sys.argv[1:])
