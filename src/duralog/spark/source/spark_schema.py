"""The columns that Spark gets: which there are, which a read is about, and Arrow batches of exactly these.

A source does not learn from Spark which columns a query uses, so the columns are those of the option `columns` or of
the user's own `schema(...)`; neither may name one that is not there, or give it another type. Only these are decoded.

`_corrupt` exists with `mode=PERMISSIVE`. See `corrupt_report`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from duralog.columnar import schema as record_schema
from duralog.spark.connector_columns import TIMESTAMP_TYPE, connector_column, record_columns
from duralog.spark.option_text import InvalidOption
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.spark_versions import arrow_schema

CORRUPT = "_corrupt"
CORRUPT_FIELDS = (
    ("file", StringType()),
    ("position", LongType()),
    ("endPosition", LongType()),
    ("firstOffset", LongType()),
    ("lastOffset", LongType()),
    ("reason", StringType()),
)
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_CONNECTOR: dict[str, DataType] = {
    record_schema.KEY: BinaryType(),
    record_schema.VALUE: BinaryType(),
    record_schema.TOPIC: StringType(),
    record_schema.PARTITION: IntegerType(),
    record_schema.OFFSET: LongType(),
    record_schema.TIMESTAMP: TimestampType(),
    TIMESTAMP_TYPE: IntegerType(),
}
_ALL: dict[str, DataType] = {
    **_CONNECTOR,
    record_schema.HEADERS: _HEADERS,
    CORRUPT: StructType([StructField(name, type_) for name, type_ in CORRUPT_FIELDS]),
}
_NEVER_NULL = (record_schema.TOPIC, record_schema.PARTITION, record_schema.OFFSET)
_BY_LOWER = {name.lower(): name for name in _ALL}


def schema_of(options: ReadOptions) -> StructType:
    """The schema of a read for which the user gave none."""
    if options.columns is not None:
        names = [_known(name, options) for name in options.columns]
        if len(set(names)) != len(names):
            raise InvalidOption(f"option columns names a column twice: {', '.join(options.columns)}")
    else:
        names = list(_CONNECTOR)
        if options.include_headers:
            names.append(record_schema.HEADERS)
        if options.is_permissive and options.bad_records is None:
            names.append(CORRUPT)
    _check_damage_is_reported(names, options)
    return StructType([StructField(name, _ALL[name]) for name in names])


class Columns:
    """The columns of one read, as Spark asked for them: `schema` is what the source said, or the user's own."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.names = [_known(field.name, options) for field in schema.fields]
        """As this module spells them."""
        if not self.names:
            raise InvalidOption("a schema without columns cannot be read: name one, such as offset")
        if len(set(self.names)) != len(self.names):
            raise InvalidOption(f"the schema names a column twice: {', '.join(schema.names)}")
        if options.columns is not None and self.names != [_known(name, options) for name in options.columns]:
            raise InvalidOption("option columns and the schema differ: give one of them")
        for name, field in zip(self.names, schema.fields, strict=True):
            # Only the kind of data is compared: Spark may have made a nested field nullable, or not.
            if field.dataType.simpleString() != _ALL[name].simpleString():
                raise InvalidOption(
                    f"column {field.name} is of type {_ALL[name].simpleString()}, not {field.dataType.simpleString()}:"
                    " read it as it is and cast it afterwards"
                )
            if not field.nullable and name not in _NEVER_NULL:
                raise InvalidOption(f"column {field.name} may be null: leave NOT NULL out")
        _check_damage_is_reported(self.names, options)
        self._schema = arrow_schema(schema)

    @property
    def of_records(self) -> list[str]:
        """What has to be decoded. At least one column, since a batch without any has no rows."""
        return record_columns(self.names) or [record_schema.OFFSET]

    def batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Decoded records as Spark wants them."""
        arrays = [
            pa.nulls(records.num_rows, field.type)
            if name == CORRUPT
            else _fitting(connector_column(records, name), field)
            for name, field in zip(self.names, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def rows(self, values: Iterable[dict[str, object]]) -> pa.RecordBatch:
        """Rows made here, with values for some of the columns."""
        listed = list(values)
        arrays = [
            pa.array([row.get(name) for row in listed], field.type)
            for name, field in zip(self.names, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _fitting(array: pa.Array, field: pa.Field) -> pa.Array:
    """Spark has another name for the items of a list than the decoder."""
    return array if array.type == field.type else array.cast(field.type)


def _known(name: str, options: ReadOptions) -> str:
    known = _BY_LOWER.get(name.lower())
    if known is None:
        raise InvalidOption(f"there is no column {name}; there are {', '.join(_ALL)}")
    if known == CORRUPT and not options.is_permissive:
        raise InvalidOption(f"there is no column {CORRUPT} without mode=PERMISSIVE: the first damage is an error")
    return known


def _check_damage_is_reported(names: Iterable[str], options: ReadOptions) -> None:
    if options.is_permissive and options.bad_records is None and CORRUPT not in names:
        raise InvalidOption(
            f"mode PERMISSIVE leaves damaged batches out: read the column {CORRUPT}, too, or give badRecordsPath,"
            " a folder for the report of them"
        )
