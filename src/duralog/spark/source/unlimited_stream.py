"""A streaming read on Spark 4.0 and 4.1, which ask for the latest offset without saying where the query stands.

So a micro-batch has everything that is there. Options that limit it are refused: the first call after a restart does
not differ from the first call of a new query, and a limit counts from where the query stands.

Spark asks a new query for its first end, writes it down, and only then asks where the first batch starts. A start at
the end of the log is then at that first end or after it. Such a batch is empty, and the next one starts at the first
end. That is also true if the driver dies in between.

Data loss is found when the tasks of a batch are planned: that is when the query says where it stood.

In a cluster, the first end after a restart may be before that place, since the high watermark is an older one. It is
written down by then. That batch is empty, and the next ones of this run begin where the query stood.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from duralog.spark.option_text import InvalidOption
from duralog.spark.plain_errors import plain_errors
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.stream import DuralogStreamReader
from duralog.spark.source.stream_history import waiting
from duralog.spark.source.stream_offsets import OffsetJson, Positions, from_json, to_json
from duralog.spark.spark_versions import HAS_READ_LIMITS, needs

if TYPE_CHECKING:
    from duralog.schemas.typed_columns import TypedColumns


def stream_reader_of(
    schema: StructType, options: ReadOptions, typed: TypedColumns | None = None
) -> DuralogStreamReader:
    """The reader that this version of Spark can call."""
    if HAS_READ_LIMITS:
        return DuralogStreamReader(schema, options, typed)
    limits = options.limits
    for name, limit in (
        ("maxOffsetsPerTrigger", limits.max_offsets),
        ("maxBytesPerTrigger", limits.max_bytes),
        ("minOffsetsPerTrigger", limits.min_offsets),
    ):
        if limit is not None:
            why = (
                "does not report the position of a query. Leave the option out: each micro-batch then has all new"
                " records"
            )
            raise InvalidOption(needs("4.2", f"option {name}", why))
    return UnlimitedStreamReader(schema, options, typed)


class UnlimitedStreamReader(DuralogStreamReader):
    def __init__(self, schema: StructType, options: ReadOptions, typed: TypedColumns | None = None) -> None:
        super().__init__(schema, options, typed)
        self._first_end: OffsetJson | None = None
        self._floors: Positions = {}
        """Where the query stood, if an end before it is written down. All records before were read."""

    def latestOffset(self) -> OffsetJson:  # type: ignore[override]  # noqa: N802
        with plain_errors():
            self._wait()
            began = time.monotonic()
            with self._open() as logs:
                stood = self._not_below_floors(self._seen or {})
                ends = waiting(logs, stood, self._ends(logs))
                self._check_topics(logs, ends)
                self._check_history(logs, stood)
            if ends == self._seen:
                self._rest(began, is_remote=logs.is_remote)
            self._seen = ends
            return to_json(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if self._first_end is None:
            self._first_end = end
        # Where a new query starts is not yet where it stood.
        is_new = start == self._initial and end == self._first_end
        if not is_new:
            with plain_errors():
                stood, ends = self._not_below_floors(from_json(start)), from_json(end)
                if self._options.logs.is_cluster:
                    with self._open() as logs:
                        held = waiting(logs, stood, ends)
                    self._floors |= {each: offset for each, offset in held.items() if offset > ends[each]}
                    ends = held
                self._check_loss(stood, ends)
                start, end = to_json(stood), to_json(ends)
        return super().partitions(start, end)

    def _not_below_floors(self, positions: Positions) -> Positions:
        return {partition: max(offset, self._floors.get(partition, 0)) for partition, offset in positions.items()}
