"""Decodes keys and values for `duralog consume` and `duralog lookup`, by schemas from the place of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from duralog.client.consuming import ConsumeRequest, from_broker
from duralog.columnar.schema import HEADERS, KEY, RECORD_SCHEMA, VALUE
from duralog.errors import CorruptRecord
from duralog.format.record import Record
from duralog.operations.addresses import is_broker
from duralog.operations.records.decoded import RecordDecoder
from duralog.scanning.tables.scan import scan
from duralog.schemas.decode_options import Decode, ReadRecords

_BATCH_ROWS = 1_000


def decoder_for(place: str, decode: Decode, say_note: Callable[[str], None]) -> RecordDecoder:
    """For the records of a directory or of a broker. Samples and schemas are read there, too."""
    return RecordDecoder(decode, records_of(place, decode), lambda note: say_note(_with_options(note)))


def _with_options(note: str) -> str:
    """With the names of the command's options in place of those of a scan's."""
    for part in (KEY, VALUE):
        note = note.replace(f"Name it, as {part}.format", f"Name it with --{part}-format")
    return note


def records_of(place: str, decode: Decode) -> ReadRecords:
    """Reads samples and the topic `_schemas` of a directory or a broker."""
    if is_broker(place):
        return lambda topic, columns: _from_broker(place, topic, columns)
    return lambda topic, columns: _from_directory(place, topic, columns, decode)


def _from_directory(path: str, topic: str, columns: Sequence[str], decode: Decode) -> Iterable[pa.RecordBatch]:
    """A sample ends at a corrupt batch: the records before it are enough. Schemas must be complete."""
    found = scan(path, topics=[topic], columns=columns, threads=1)
    return found if topic == decode.schemas_topic else _up_to_damage(found)


def _up_to_damage(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from found
    except CorruptRecord:
        return


def _from_broker(address: str, topic: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a topic, a thousand at a time."""
    schema = pa.schema([field for field in RECORD_SCHEMA if field.name in columns])
    request = ConsumeRequest(topics=[topic])
    rows: list[Record] = []

    def batch() -> pa.RecordBatch:
        found = {
            KEY: [record.key for record in rows],
            VALUE: [record.value for record in rows],
            HEADERS: [[{"key": name, "value": value} for name, value in record.headers] for record in rows],
        }
        return pa.RecordBatch.from_pydict({name: found[name] for name in schema.names}, schema=schema)

    for _, _, record in from_broker(address, request, before_waiting=lambda: None):
        rows.append(record)
        if len(rows) == _BATCH_ROWS:
            yield batch()
            rows.clear()
    if rows:
        yield batch()
