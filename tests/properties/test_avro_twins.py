"""The Avro kernel, its plain twin and fastavro, over random schemas, values, later schemas and damaged bytes."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import SchemaError
from duralog.kernels.avro.program import POSITION_SHIFT
from duralog.schemas.avro import AvroDecoder, compile_decoder, parse_schema
from tests.support.random_avro import PLAIN, RandomAvro

ROWS = 12
seeds = st.integers(0, 2**32 - 1)


def laid_out(rows: list[bytes], gap: int = 0) -> tuple[bytes, Any, Any]:
    """The rows one after the other, with other bytes between them."""
    starts, ends, data = [], [], b""
    for row in rows:
        data += b"\xff" * gap
        starts.append(len(data))
        data += row
        ends.append(len(data))
    return data, np.array(starts, np.int64), np.array(ends, np.int64)


def assert_twins(decoder: AvroDecoder, rows: list[bytes], gap: int = 0) -> list[int]:
    """The kernel and its twin agree. The codes of the rows."""
    values, faults = decoder.decode_with_positions(*laid_out(rows, gap))
    values.validate(full=True)
    assert values.type == decoder.arrow_type
    expected, positions = [], []
    for row in rows:
        value, fault, position, _ = decoder._plain.decode(row)
        expected.append(value)
        positions.append(fault | position << POSITION_SHIFT)
    assert faults.tolist() == positions
    twins = pa.array(expected, decoder.arrow_type)
    twins.validate(full=True)
    assert_same(values, twins)
    return [fault & 0xFF for fault in positions]


def assert_same(one: pa.Array, other: pa.Array) -> None:
    """Bit for bit: NaNs are the same, and nothing is there under a null."""
    assert one.type == other.type
    assert one.is_valid().equals(other.is_valid())
    if pa.types.is_struct(one.type):
        # pyarrow has values under its nulls.
        for number, child in enumerate(other.flatten()):
            assert_same(one.field(number), child)
    elif pa.types.is_list(one.type) or pa.types.is_map(one.type):
        assert one.offsets.equals(other.offsets)
        if pa.types.is_map(one.type):
            assert_same(one.keys, other.keys)
            assert_same(one.items, other.items)
        else:
            assert_same(one.values, other.values)
    elif pa.types.is_floating(one.type):
        assert np.array_equal(*(np.nan_to_num(side.fill_null(0).to_numpy()) for side in (one, other)))
    elif not pa.types.is_null(one.type):
        assert one.equals(other)


@given(seeds)
def test_values(seed: int) -> None:
    made = RandomAvro(Random(seed), logical=True)
    schema = made.schema()
    rows = [made.value(schema) for _ in range(ROWS)]
    codes = assert_twins(compile_decoder(parse_schema(json.dumps(schema))), rows, gap=seed % 40)
    assert codes == [0] * ROWS


@given(seeds)
def test_damaged_values(seed: int) -> None:
    random = Random(seed)
    made = RandomAvro(random, logical=True)
    schema = made.record()
    later = made.later(schema) if random.random() < 0.5 else schema
    try:
        decoder = compile_decoder(parse_schema(json.dumps(schema)), parse_schema(json.dumps(later)))
    except SchemaError:
        return
    rows = []
    for _ in range(ROWS):
        row = bytearray(made.value(schema))
        for _ in range(random.randrange(3)):
            if row:
                row[random.randrange(len(row))] = random.choice((random.randrange(256), 0, 1, 0x80, 0xFF))
        if random.random() < 0.4:
            row = row[: random.randrange(len(row) + 1)]
        if random.random() < 0.1:
            row += random.randbytes(random.randrange(12))
        rows.append(bytes(row))
    assert_twins(decoder, rows, gap=random.choice((0, 40)))


@given(seeds)
def test_later_schemas_as_fastavro_reads_them(seed: int) -> None:
    made = RandomAvro(Random(seed))
    schema = made.record()
    later = made.later(schema)
    rows = [made.value(schema) for _ in range(ROWS)]
    writer, reader = fastavro.parse_schema(schema), fastavro.parse_schema(later)
    theirs = [_fastavro(row, writer, reader) for row in rows]
    try:
        decoder = compile_decoder(parse_schema(json.dumps(schema)), parse_schema(json.dumps(later)))
    except SchemaError:
        assert any(isinstance(one, Exception) for one in theirs)
        return
    values, codes = decoder.decode(*laid_out(rows))
    assert_twins(decoder, rows)
    for value, code, their in zip(values.to_pylist(), codes, theirs, strict=True):
        if isinstance(their, Exception):
            assert code != 0
        else:
            assert code == 0
            assert alike(value, their), (value, their)


def _fastavro(row: bytes, writer: Any, reader: Any) -> Any:
    try:
        return fastavro.schemaless_reader(io.BytesIO(row), writer, reader)
    except Exception as error:
        return error


def alike(ours: Any, theirs: Any) -> bool:
    """fastavro gives the bare value of a union, promotes to Python's types, and takes the first branch that fits."""
    if isinstance(ours, dict) and ours and all(name.startswith("member") for name in ours):
        found = [value for value in ours.values() if value is not None]
        return alike(found[0] if found else None, theirs)
    if isinstance(ours, dict):
        return (
            isinstance(theirs, dict) and ours.keys() == theirs.keys() and all(alike(ours[k], theirs[k]) for k in ours)
        )
    if isinstance(ours, list):
        if isinstance(theirs, dict):  # the last of several items with the same key
            return alike(dict(ours), theirs)
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, float | int) and isinstance(theirs, float | int):
        return ours == theirs or np.float32(ours) == np.float32(theirs)
    if isinstance(ours, bytes) != isinstance(theirs, bytes) and ours is not None:
        return (ours if isinstance(ours, bytes) else ours.encode()) == (
            theirs if isinstance(theirs, bytes) else theirs.encode()
        )
    return bool(ours == theirs)


@given(seeds)
def test_selected_columns(seed: int) -> None:
    """Some columns are the same as those columns of the whole value."""
    random = Random(seed)
    made = RandomAvro(random, logical=True)
    schema = made.record()
    schema["fields"].append({"name": "last", "type": "string"})
    rows = [made.value(schema) for _ in range(ROWS)]
    parsed = parse_schema(json.dumps(schema))
    names = [one["name"] for one in schema["fields"]]
    some = random.sample(names, random.randint(1, len(names)))
    decoder = compile_decoder(parsed, columns=some)
    codes = assert_twins(decoder, rows)
    assert codes == [0] * ROWS
    whole, _ = compile_decoder(parsed).decode(*laid_out(rows))
    part, _ = decoder.decode(*laid_out(rows))
    assert part.type.names == [name for name in names if name in some]
    for name in some:
        assert_same(part.field(name), whole.field(name))
    cut = [row[: random.randrange(len(row) + 1)] for row in rows]
    assert_twins(decoder, cut)


@given(seeds)
def test_few_columns_of_wide_records(seed: int) -> None:
    """Rows without arrays are walked four at a time: the same values and faults as field by field."""
    random = Random(seed)
    made = RandomAvro(random)
    kinds = [*PLAIN, *(["null", kind] for kind in PLAIN[1:]), *([kind, "null"] for kind in PLAIN[1:])]
    fields: list[Any] = [
        {"name": f"f{number}", "type": random.choice(kinds)} for number in range(random.randint(6, 14))
    ]
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
    }
    fields.insert(random.randrange(len(fields)), {"name": "inner", "type": inner})
    schema = {"type": "record", "name": "Wide", "fields": fields}
    later = {**schema, "fields": [*fields, {"name": "added", "type": ["int", "string"], "default": 7}]}
    some = random.sample([one["name"] for one in fields], random.randrange(4)) + random.choice(([], ["added"]))
    decoder = compile_decoder(parse_schema(json.dumps(schema)), parse_schema(json.dumps(later)), some)
    assert decoder._program.marks > 0
    rows = []
    for _ in range(3 * ROWS):
        row = bytearray(made.value(schema))
        if row and random.random() < 0.3:
            row[random.randrange(len(row))] = random.choice((random.randrange(256), 0, 0x80, 0xFF))
        rows.append(bytes(row[: random.randrange(len(row) + 1)] if random.random() < 0.1 else row))
    assert_twins(decoder, [*rows, b"\x00" * 30], gap=random.choice((0, 20)))
