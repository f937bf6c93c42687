"""Records of a log with keys and values decoded by schemas, as in `duralog.scan(decode=...)`. The format is detected
from the first records of the topic, and the schemas are those of the topic `_schemas` of the same store, unless the
options name a registry, a file or text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from duralog.columnar.tables import to_table
from duralog.errors import UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.schemas.decode_options import Decode, plan_decoding, split_columns
from duralog.schemas.typed_columns import LeftOut
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.reading import read_record_batches
from duralog.storage.log.view import LogView

if TYPE_CHECKING:
    import pyarrow as pa

ReadBatches = Callable[[Sequence[str] | None], "Iterable[pa.RecordBatch]"]
"""Of columns; None for all."""

FindView = Callable[[TopicPartition], LogView | None]
"""A log of the same store, as it is now; None if it is not there. Raises `UnknownTopic`."""


def read_typed(
    partition: TopicPartition,
    find_view: FindView,
    isolation: Isolation,
    read: ReadBatches,
    *,
    decode: str | Mapping[str, Any],
    columns: Sequence[str] | None,
) -> pa.Table:
    """A table of what `read` returns, decoded. Raises `SchemaError` where the format is not certain."""
    asked = Decode.of(decode)
    if asked is None:
        return to_table(read(columns), columns)

    def records(topic: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for number in count():
            found = TopicPartition(topic, number)
            try:
                view = find_view(found)
            except UnknownTopic:
                # Those before may be on another disk.
                if topic == partition.topic and number < partition.partition:
                    continue
                if number == 0:
                    raise
                return
            if view is not None:
                end = view.limit(isolation)
                yield from read_record_batches(view, view.start_offset, end, isolation, partition=found, columns=names)

    typed = plan_decoding(asked, [partition.topic], records, columns)
    schema = typed.schema(split_columns(columns))
    left_out = LeftOut()
    batches = (typed.apply(batch, schema, left_out) for batch in read(typed.needed(schema.names)))
    table = to_table(batches, schema=schema)
    left_out.log(partition)
    return table
