"""Typed payloads in Spark: planned with the schema, decoded in tasks.

The plan is made when Spark asks for the schema of a frame, and goes with the frame to its readers and tasks, so all of
them have the same columns, whatever the registry has later. A frame with a schema of the user's, and a stream, are
planned when their reader is made. A task that meets an id which was registered later reads the schemas again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from duralog.columnar.schema import OFFSET
from duralog.scanning.logs import LogSet
from duralog.scanning.offset_ranges import select_partitions
from duralog.scanning.part_reading import OnCorruptBytes
from duralog.scanning.slices import CorruptBytes
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.decode_options import Decode, plan_decoding, read_catalogue
from duralog.schemas.typed_columns import CORRUPT_TYPE, DecodedRecords, TypedColumns
from duralog.spark.fitting_types import spark_fitting
from duralog.spark.source.planned_read import chosen_partitions
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.slice_records import read_records

_logger = logging.getLogger(__name__)


def plan_typed_read(options: ReadOptions) -> TypedColumns | None:
    """How the keys and values of the chosen topics are decoded. None if they stay bytes.

    With `PERMISSIVE`, damaged batches are left out of the sample: the read itself reports them. In the schemas, damage
    is always an error, since other schemas would decode other values.
    """
    if options.decode is None:
        return None
    logs = options.logs
    with logs.open() as opened:
        topics = sorted({partition.topic for partition in chosen_partitions(opened, options)})

    later = partial(_schemas_of, logs, options.decode)
    sample = partial(_records_of, logs, on_corrupt=_log_damage if options.is_permissive else None)
    planned = plan_decoding(options.decode, topics, sample, options.columns, catalogue=later, later=later)
    for finding in planned.findings:
        _logger.info("%s: %s", options.path, finding)
    return planned


def _records_of(
    logs: LogSet, topic: str, columns: Sequence[str], on_corrupt: OnCorruptBytes | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a topic as they are. They are read while they are used: the first ones may be enough."""
    with logs.open() as opened:
        planned = opened.plan(opened.resolve(select_partitions(opened, topics=[topic])))
    for slices in planned.tasks:
        for _, records in read_records(logs, slices, columns=columns, on_corrupt=on_corrupt):
            yield records


def _log_damage(damage: CorruptBytes) -> None:
    _logger.warning("left out of the sample: %s-%s, %s", damage.topic, damage.partition, damage.reason)


def _schemas_of(logs: LogSet, decode: Decode) -> SchemaCatalogue:
    """All schemas as they are now: a task asks again when it meets an id that was registered after the planning."""
    return read_catalogue(decode, partial(_records_of, logs))


def spark_types(typed: TypedColumns) -> dict[str, DataType]:
    """The types of the decoded columns."""
    return {name: from_arrow_type(spark_fitting(decoder.arrow_type)) for name, decoder in typed.decoders}


def corrupt_payloads(decoded: DecodedRecords, type_: pa.StructType) -> pa.Array:
    """The column `_corrupt` of a read with typed payloads: where, the bytes, and why."""
    if not decoded.bad:
        return pa.nulls(decoded.row_count, type_)
    found = decoded.corrupt()
    parts = {CORRUPT_TYPE.field(number).name: found.field(number) for number in range(CORRUPT_TYPE.num_fields)}
    offsets = decoded.columns[OFFSET]
    parts |= {"firstOffset": offsets, "lastOffset": offsets}
    arrays = [
        parts[field.name].cast(field.type) if field.name in parts else pa.nulls(decoded.row_count, field.type)
        for field in type_
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=found.is_null())
