"""The columns that Spark gets: which there are, which a read is about, and Arrow batches of exactly these.

A source does not learn from Spark which columns a query uses, so the columns are those of the option `columns` or of
the user's own `schema(...)`; neither may name one that is not there, or give it another type. Only these are decoded.

`_corrupt` exists with `mode=PERMISSIVE`, and with typed payloads unless `mode=FAILFAST`: then it has the bytes of keys
and values that do not decode, too. See `corrupt_report`. `_copy` and `_healed` exist for the directories of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from duralog.columnar import schema as record_schema
from duralog.scanning.slices import Slice
from duralog.schemas.decode_options import split_columns
from duralog.schemas.payloads import Decoded
from duralog.schemas.typed_columns import DecodedRecords, TypedColumns
from duralog.spark.connector_columns import TIMESTAMP_TYPE, connector_column, record_columns
from duralog.spark.fitting_types import fitted
from duralog.spark.option_text import InvalidOption
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.typed_read import corrupt_payloads, spark_types
from duralog.spark.spark_versions import arrow_schema

CORRUPT = "_corrupt"
COPY = "_copy"
"""The log directory that a record comes from."""
HEALED = "_healed"
"""Whether that is another one than the chosen one, which has not the record, or not without damage."""
CORRUPT_FIELDS = (
    ("file", StringType()),
    ("position", LongType()),
    ("endPosition", LongType()),
    ("firstOffset", LongType()),
    ("lastOffset", LongType()),
    ("reason", StringType()),
)
OnDecoded = Callable[[DecodedRecords], None]
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
    COPY: StringType(),
    HEALED: BooleanType(),
}
_PAYLOAD_FIELDS = ((record_schema.KEY, BinaryType()), (record_schema.VALUE, BinaryType()))
_NEVER_NULL = (record_schema.TOPIC, record_schema.PARTITION, record_schema.OFFSET)
_BY_LOWER = {name.lower(): name for name in _ALL}


def schema_of(options: ReadOptions, typed: TypedColumns | None = None) -> StructType:
    """The schema of a read for which the user gave none."""
    if options.columns is not None:
        names = _chosen(options, typed)
        if len(set(names)) != len(names):
            raise InvalidOption(f"option columns names a column twice: {', '.join(options.columns)}")
    else:
        names = list(_CONNECTOR)
        if options.include_headers:
            names.append(record_schema.HEADERS)
        if options.include_copies:
            names += [COPY, HEALED]
        if options.reports and options.bad_records is None:
            names.append(CORRUPT)
    _check_damage_is_reported(names, options)
    types = _types(typed)
    return StructType([StructField(name, types[name]) for name in names])


def _types(typed: TypedColumns | None) -> dict[str, DataType]:
    """Of all columns that there are."""
    if typed is None:
        return _ALL
    corrupt = StructType([StructField(name, type_) for name, type_ in (*CORRUPT_FIELDS, *_PAYLOAD_FIELDS)])
    return {**_ALL, CORRUPT: corrupt, **spark_types(typed)}


def _chosen(options: ReadOptions, typed: TypedColumns | None) -> list[str]:
    """The columns that the option names, by themselves or by their fields."""
    names = options.columns if typed is None else split_columns(options.columns)
    return [_known(name, options) for name in names or ()]


class Columns:
    """The columns of one read, as Spark asked for them: `schema` is what the source said, or the user's own."""

    def __init__(self, schema: StructType, options: ReadOptions, typed: TypedColumns | None = None) -> None:
        self._typed = typed
        self._reports_payloads = typed is not None and options.bad_records is not None
        types = _types(typed)
        self.names = [_known(field.name, options) for field in schema.fields]
        """As this module spells them."""
        if not self.names:
            raise InvalidOption("a schema without columns cannot be read: name one, such as offset")
        if len(set(self.names)) != len(self.names):
            raise InvalidOption(f"the schema names a column twice: {', '.join(schema.names)}")
        if options.columns is not None and self.names != _chosen(options, typed):
            raise InvalidOption("option columns and the schema differ: give one of them")
        for name, field in zip(self.names, schema.fields, strict=True):
            # Only the kind of data is compared: Spark may have made a nested field nullable, or not.
            if field.dataType.simpleString() != types[name].simpleString():
                is_decoded = typed is not None and name in dict(typed.decoders)
                advice = f"; the option columns chooses fields, as {name}.FIELD" if is_decoded else ""
                raise InvalidOption(
                    f"column {field.name} is of type {types[name].simpleString()}, not {field.dataType.simpleString()}:"
                    f" read it as it is and cast it afterwards{advice}"
                )
            if not field.nullable and name not in _NEVER_NULL:
                raise InvalidOption(f"column {field.name} may be null: leave NOT NULL out")
        _check_damage_is_reported(self.names, options)
        self._schema = arrow_schema(schema)

    @property
    def decoded_types(self) -> str:
        """The payloads that are decoded, and to what."""
        names = () if self._typed is None else (name for name, _ in self._typed.decoders if name in self.names)
        return ", ".join(f"{name} {self._schema.field(name).type}" for name in names)

    @property
    def of_records(self) -> list[str]:
        """What has to be decoded. At least one column, since a batch without any has no rows."""
        names = record_columns([name for name in self.names if name not in (COPY, HEALED)])
        if self._typed is not None:
            corrupt = [CORRUPT] if CORRUPT in self.names else []
            names = self._typed.needed([*names, *corrupt], with_places=self._reports_payloads)
        return names or [record_schema.OFFSET]

    def batch(
        self, records: pa.RecordBatch, found: Slice | None = None, on_decoded: OnDecoded | None = None
    ) -> pa.RecordBatch:
        """Decoded records as Spark wants them. `found` is the slice of a cluster's copy that they come from."""
        decoded = None if self._typed is None else self._typed.decode(records, self._fit)
        if decoded is not None and on_decoded is not None:
            on_decoded(decoded)
        typed_names = () if self._typed is None else {name for name, _ in self._typed.decoders}
        arrays = []
        for name, field in zip(self.names, self._schema, strict=True):
            if name == CORRUPT:
                nothing = pa.nulls(records.num_rows, field.type)
                arrays.append(nothing if decoded is None else corrupt_payloads(decoded, field.type))
            elif decoded is not None and name in typed_names:
                arrays.append(decoded.columns[name])
            elif found is not None and name in (COPY, HEALED):
                value = found.location.url if name == COPY else found.is_from_other_copy
                arrays.append(pa.repeat(pa.scalar(value, field.type), records.num_rows))
            else:
                arrays.append(_fitting(connector_column(records, name), field))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fit(self, name: str, decoded: Decoded) -> Decoded:
        """A column may be decoded for `_corrupt` alone."""
        return fitted(decoded, self._schema.field(self.names.index(name)).type) if name in self.names else decoded

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
    if known == CORRUPT and not options.reports:
        raise InvalidOption(f"there is no column {CORRUPT} without mode=PERMISSIVE: the first damage is an error")
    if known in (COPY, HEALED) and not options.logs.is_cluster:
        raise InvalidOption(f"there is no column {known} of one log directory: it is for those of a cluster")
    return known


def _check_damage_is_reported(names: Iterable[str], options: ReadOptions) -> None:
    if options.is_permissive and options.bad_records is None and CORRUPT not in names:
        raise InvalidOption(
            f"mode PERMISSIVE leaves damaged batches out: read the column {CORRUPT}, too, or give badRecordsPath,"
            " a folder for the report of them"
        )
