"""Which columns a topic's table has: found out by the driver from a sample of the records, the schemas and the table.

The sample has the first and the last records of what is to be written: a column that was added lately is only in the
last ones. It is in the order of the records' timestamps, so that its newest schema is that of the last record. What a
table has already is never taken away (`evolution`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

from duralog.columnar.schema import HEADERS, KEY, TIMESTAMP, VALUE
from duralog.errors import InvalidConfig, SchemaError, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.healing import read_through_damage
from duralog.scanning.cluster.sound_slices import OnHealed
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.key_identity import KeyIdentity, identity_of
from duralog.scanning.logs import Logs
from duralog.scanning.offset_ranges import OffsetRange
from duralog.schemas import DecoderPlan, PayloadDecoder
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.decode_options import Decode, plan_decoding, read_catalogue
from duralog.schemas.typed_columns import CORRUPT, CORRUPT_TYPE, Mode, TypedColumns
from duralog.spark.connector_columns import connector_schema
from duralog.spark.lake.change_rows import OP, SOURCE_TIME, Unwrap, check_events, has_several_tables, row_type
from duralog.spark.lake.columns import DATE, PREFIX, table_schema
from duralog.spark.lake.evolution import Evolution, check_names, evolved, evolved_json, table_type
from duralog.spark.lake.stored_schema import (
    COLUMNS,
    IDENTITY,
    JSON_TYPES,
    ROUTED,
    SCHEMA,
    UNWRAP,
    stored,
    stored_json_types,
    stored_schema,
)
from duralog.spark.lake.table_rows import EVENT_COLUMNS, TableRows
from duralog.spark.lake.table_state import StateRefused, TableState
from duralog.storage.log.isolation import Isolation

DEBEZIUM = "debezium"

_FIRST_RECORDS = 400
_LAST_RECORDS = 600
_SAMPLED = (KEY, VALUE, HEADERS, TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRequest:
    """What the caller of a job says of keys and values."""

    decode: Decode | None = None
    unwrap: Unwrap | None = None
    headers: bool = False
    date: bool = False
    """Whether the table is one of days."""
    columns: tuple[str, ...] = ()
    """The fields of decoded keys and values that are wanted, as `value.customer.name`; all if none is named."""

    @classmethod
    def of(
        cls,
        decode: str | Mapping[str, Any] | Decode | None,
        unwrap: str | None,
        made: Unwrap,
        *,
        headers: bool,
        columns: Sequence[str] | None,
    ) -> RowRequest:
        """From the parameters of a job; `made` is what it makes of change events."""
        if unwrap not in (None, DEBEZIUM):
            raise InvalidConfig(f"unwrap {unwrap!r}: expected {DEBEZIUM}")
        if unwrap is not None and decode is None:
            decode = DEBEZIUM
        asked = decode if isinstance(decode, Decode) else Decode.of(decode)
        if unwrap is not None and (asked is None or not asked.value.is_typed or asked.key.is_typed):
            raise InvalidConfig(
                "unwrap needs values that are decoded, and keys that are not: the columns of the key are in the row"
            )
        for name in columns or ():
            part, dot, _ = name.partition(".")
            if not dot or part not in (KEY, VALUE) or unwrap is not None or asked is None:
                raise InvalidConfig(
                    f"columns: {name!r}: expected fields of decoded keys and values, as value.customer.name, in a table"
                    " of records; other columns are always in it"
                )
        return cls(
            columns=tuple(sorted(set(columns or ()))),
            decode=asked,
            unwrap=None if unwrap is None else made,
            headers=headers,
            date=made is Unwrap.HISTORY,
        )

    @property
    def schemas_topic(self) -> str | None:
        """The topic of the schemas that payloads are decoded with; None if they are not decoded."""
        return None if self.decode is None else self.decode.schemas_topic

    def name(self, column: str) -> str:
        """What the table calls a column of records."""
        return column if self.unwrap is None else f"{PREFIX}{column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRows:
    rows: TableRows
    """With all columns of the table, the one that it is partitioned by included."""
    evolution: Evolution
    details: dict[str, Any]
    """For the table's state."""
    findings: tuple[str, ...] = ()


def plan_rows(
    logs: Logs,
    ranges: Mapping[TopicPartition, OffsetRange],
    state: TableState | None,
    request: RowRequest,
    *,
    isolation: Isolation,
    where: str,
) -> PlannedRows | None:
    """How records of these offsets become rows. None if there is no record from which that could be found out.

    Raises `SchemaConflict` where the topic's columns do not fit the table's.
    """
    known = stored_schema(state, where)
    has_rows = state is not None and state.run > 0
    if has_rows and state is not None and state.details.get(UNWRAP) != _unwrap_detail(request):
        raise StateRefused(
            f"{where}: the table has {'rows of change events' if UNWRAP in state.details else 'records'}, and this run"
            " would write the other: give another target, or --unwrap as before"
        )
    if has_rows and state is not None and state.details.get(COLUMNS, []) != list(request.columns):
        has = ", ".join(map(str, state.details.get(COLUMNS, []))) or "all fields"
        raise StateRefused(
            f"{where}: the table has {has} of keys and values, and this run would write"
            f" {', '.join(request.columns) or 'all fields'}: choose the same columns, or give another target"
        )
    plain = table_schema(headers=request.headers, date=request.date)
    if request.decode is None:
        if known is not None:
            evolved(known, plain, where)
        return PlannedRows(rows=TableRows(schema=plain), evolution=Evolution(plain), details={})
    if known is None and has_rows:
        known = plain
    sample = _sample(logs, ranges, isolation)
    if sample is None and known is not None and state is not None:
        names = (SCHEMA, JSON_TYPES, UNWRAP, ROUTED, IDENTITY, COLUMNS)
        kept = {name: state.details[name] for name in names if name in state.details}
        return PlannedRows(rows=TableRows(schema=known), evolution=Evolution(known), details=kept)
    place = _Place(where, next(iter(ranges)).topic, known, state)
    if sample is not None:
        with suppress(SchemaError):
            return _planned(logs, sample, request, place)
    # An earlier point without records, or nothing new but deletes and bad records: all that there is says more.
    sample = _sample(logs, logs.resolve(ranges), isolation)
    return None if sample is None else _planned(logs, sample, request, place)


@dataclass(frozen=True, slots=True)
class _Place:
    """The table, as earlier runs have left it."""

    where: str
    topic: str
    known: pa.Schema | None
    state: TableState | None

    @property
    def is_routed(self) -> bool:
        """Whether earlier runs have seen events of several tables."""
        return self.state is not None and self.state.details.get(ROUTED) is True

    def identity(self, found: KeyIdentity) -> KeyIdentity:
        """What a sample shows, unless it shows nothing: keys that were compared without a schema stay so."""
        before = None if self.state is None else self.state.details.get(IDENTITY)
        return KeyIdentity(before) if found is KeyIdentity.BYTES and before in set(KeyIdentity) else found


def _planned(logs: Logs, sample: pa.Table, request: RowRequest, place: _Place) -> PlannedRows:
    decode = request.decode
    assert decode is not None
    healed: list[HealedRange] = []

    def records(topic: str, columns: Sequence[str]) -> Any:
        if topic == place.topic:
            return sample.select(columns).to_batches()
        return _whole(logs, topic, columns, healed.append)

    @cache
    def catalogue() -> SchemaCatalogue:
        return read_catalogue(decode, records)

    typed = plan_decoding(decode, [place.topic], records, request.columns or None, catalogue)
    typed, found_types = _with_json_types(typed, stored_json_types(place.state, place.where))
    is_routed = False
    if request.unwrap is not None:
        is_routed = place.is_routed or _is_routed(typed, sample)
        typed = _of_events(typed, request.unwrap, place.topic)
    wanted = _schema(typed, request, place)
    evolution = Evolution(wanted) if place.known is None else evolved(place.known, wanted, place.where)
    identity = KeyIdentity.BYTES
    if request.unwrap is Unwrap.STATE:
        identity = place.identity(identity_of(sample.column(KEY).combine_chunks(), catalogue()))
    details: dict[str, Any] = {SCHEMA: stored(evolution.schema), IDENTITY: str(identity)}
    if found_types:
        details[JSON_TYPES] = {part: stored(pa.schema([each])) for part, each in found_types.items()}
    if request.unwrap is not None:
        details[UNWRAP] = DEBEZIUM
        details[ROUTED] = is_routed
    if request.columns:
        details[COLUMNS] = list(request.columns)
    return PlannedRows(
        rows=TableRows(
            schema=evolution.schema,
            typed=typed,
            unwrap=request.unwrap,
            identity=identity,
            has_several_tables=is_routed,
        ),
        evolution=evolution,
        details=details,
        findings=(*typed.findings, *(f"{place.topic}: schemas: {each}" for each in healed)),
    )


def _unwrap_detail(request: RowRequest) -> str | None:
    return None if request.unwrap is None else DEBEZIUM


def _with_json_types(typed: TypedColumns, known: Mapping[str, pa.Field]) -> tuple[TypedColumns, dict[str, pa.Field]]:
    """Decoders of JSON that has no schema, with the types of earlier runs and of this one's sample."""
    decoders, found = [], {}
    for name, decoder in typed.decoders:
        inferred = decoder.plan.json_type
        if inferred is not None:
            merged = evolved_json(known[name], inferred) if name in known else inferred
            decoder = PayloadDecoder(replace(decoder.plan, json_type=merged))
            found[name] = merged
        decoders.append((name, decoder))
    return replace(typed, decoders=tuple(decoders)), found


def _is_routed(typed: TypedColumns, sample: pa.Table) -> bool:
    """Whether the sample's events are of several tables, which a router of Debezium sends to one topic."""
    [(_, decoder)] = typed.decoders
    events = decoder.decode(*(sample.column(name).combine_chunks() for name in (VALUE, HEADERS))).values
    return pa.types.is_struct(events.type) and has_several_tables(events)


def _of_events(typed: TypedColumns, unwrap: Unwrap, topic: str) -> TypedColumns:
    """Decoders of what is needed of change events, and nothing else."""
    [(name, decoder)] = typed.decoders
    check_events(decoder.arrow_type, topic)
    wanted = ["after", "op"]
    if unwrap is Unwrap.HISTORY:
        wanted.append("before")
        if "source" in {each.name for each in decoder.arrow_type}:
            wanted.append("source")
    pruned: DecoderPlan = replace(decoder.plan, columns=tuple(wanted))
    return replace(typed, decoders=((name, PayloadDecoder(pruned)),))


def _schema(typed: TypedColumns, request: RowRequest, place: _Place) -> pa.Schema:
    """The columns that the topic's records need."""
    types = {name: decoder.arrow_type for name, decoder in typed.decoders}
    of_records = connector_schema(headers=request.headers)
    if request.unwrap is None:
        fields = [
            each.with_type(table_type(types[each.name], each.name)) if each.name in types else each
            for each in of_records
        ]
        if KEY in types and not request.date:
            # What the next run finds the key by.
            fields.append(pa.field(f"{PREFIX}{KEY}", pa.binary()))
    else:
        fields = [pa.field(each.name, table_type(each.type, each.name)) for each in row_type(types[VALUE])]
        if request.unwrap is Unwrap.HISTORY:
            fields += [pa.field(OP, pa.string()), pa.field(SOURCE_TIME, pa.int64())]
        kept = (*EVENT_COLUMNS, *([HEADERS] if request.headers else []))
        fields += [of_records.field(name).with_name(f"{PREFIX}{name}") for name in kept]
    if typed.mode is Mode.PERMISSIVE:
        fields.append(pa.field(CORRUPT, CORRUPT_TYPE))
    if request.date:
        fields.append(pa.field(request.name(DATE), pa.date32()))
    check_names(fields, f"{place.where}, of topic {place.topic}")
    return pa.schema(fields)


def _whole(logs: Logs, topic: str, columns: Sequence[str], on_healed: OnHealed) -> Iterator[pa.RecordBatch]:
    """All records of another topic, that of the schemas."""
    if topic not in logs.topics():
        raise UnknownTopic(f"there is no topic {topic} in {logs.path}")
    found = logs.resolve([TopicPartition(topic, number) for number in logs.partitions(topic)])
    return read_through_damage(logs.plan(found).slices, columns=columns, on_healed=on_healed)


def _sample(logs: Logs, ranges: Mapping[TopicPartition, OffsetRange], isolation: Isolation) -> pa.Table | None:
    """The first and the last records of these offsets, by time."""
    filled = {partition: found for partition, found in ranges.items() if found.end_offset > found.start_offset}
    found: list[pa.Table] = []

    for partition, bounds in filled.items():
        first, last = (max(1, each // len(filled)) for each in (_FIRST_RECORDS, _LAST_RECORDS))
        table = _ends_of(_Reading(logs, partition, bounds, isolation), first, last)
        if table is not None:
            found.append(table.slice(0, first))
            found.append(table.slice(max(first, table.num_rows - last)))
    if not found:
        return None
    by_time = pa.concat_tables(found).sort_by(TIMESTAMP)
    if by_time.num_rows <= _FIRST_RECORDS + _LAST_RECORDS:
        return by_time
    # Two of each of many partitions. The newest must be among those that are looked at.
    return pa.concat_tables([by_time.slice(0, _FIRST_RECORDS), by_time.slice(by_time.num_rows - _LAST_RECORDS)])


@dataclass(frozen=True, slots=True)
class _Reading:
    """Records of one partition."""

    logs: Logs
    partition: TopicPartition
    bounds: OffsetRange
    isolation: Isolation

    def first(self, size: int) -> list[pa.RecordBatch]:
        return self._read(self.bounds.start_offset, self.bounds.start_offset + size)

    def last(self, size: int) -> list[pa.RecordBatch]:
        return self._read(self.bounds.end_offset - size, self.bounds.end_offset)

    def _read(self, start: int, end: int) -> list[pa.RecordBatch]:
        found = self.logs.plan({self.partition: OffsetRange(start, end)}, isolation=self.isolation)
        read = read_through_damage(found.slices, columns=_SAMPLED, on_healed=_ignore, on_data_loss=_ignore)
        return list(read)


def _ignore(_: object) -> None:
    """The tasks that read all of it report it."""


def _ends_of(reading: _Reading, first: int, last: int) -> pa.Table | None:
    """At least this many of the first and of the last records, as far as there are."""
    most = reading.bounds.end_offset - reading.bounds.start_offset
    head, reached = _enough(reading.first, first, most)
    tail, _ = _enough(reading.last, last, most - reached)
    return pa.Table.from_batches([*head, *tail]) if head or tail else None


def _enough(read: Callable[[int], list[pa.RecordBatch]], wanted: int, most: int) -> tuple[list[pa.RecordBatch], int]:
    """As many offsets as have this many records, and how many offsets these are: a compacted log has gaps."""
    size = min(2 * wanted, most)
    while size > 0:
        batches = read(size)
        if sum(batch.num_rows for batch in batches) >= wanted or size == most:
            return batches, size
        size = min(size * 8, most)
    return [], 0
