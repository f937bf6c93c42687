"""The consumer groups of a directory, read incrementally from `__consumer_offsets`.

A long topic is read in several steps, so that a refresh does not take seconds. Until all is read, the groups found so
far are shown, with a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from duralog.broker.groups.group_loading import FoldedLog
from duralog.broker.topics.coordinator_log import LoggedMarker, LoggedRecord, read_log
from duralog.config.error_text import printable
from duralog.console.sources.directory.fresh_logs import FreshLogs
from duralog.errors import DuralogError
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS
from duralog.format.topic_partition import TopicPartition
from duralog.operations.groups.group_records import GroupRecords
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.read_only_partitions import PartitionView

_RECORDS_AT_ONCE = 20_000


class GroupTracking:
    """For one thread at a time."""

    def __init__(self, logs: FreshLogs) -> None:
        self._logs = logs
        self.records = GroupRecords()
        self._folded: dict[TopicPartition, FoldedLog] = {}
        self._positions: dict[TopicPartition, tuple[PartitionView | None, int]] = {}
        """For each partition, the view after which it was read to its end, and the offset read up to."""
        self.note: str | None = None

    def read_on(self, views: Mapping[TopicPartition, PartitionView]) -> None:
        """Take in what is new."""
        found = {place: view for place, view in views.items() if place.topic == CONSUMER_OFFSETS}
        is_other = any(
            place not in found or found[place].end_offset < position for place, (_, position) in self._positions.items()
        )
        if is_other:
            # The topic is gone, or another one has its name.
            self.records, self._folded, self._positions = GroupRecords(), {}, {}
        self.note = None
        left = _RECORDS_AT_ONCE
        for place, view in found.items():
            seen, position = self._positions.get(place, (None, 0))
            if seen is view:
                continue
            if left <= 0:
                self.note = "The groups are still being read: there is more in __consumer_offsets."
                break
            folded = self._folded.setdefault(place, FoldedLog(keeps_tombstones=False))
            try:
                reached, taken, is_all = self._logs.ask(place, self._reading(folded, position, left))
            except DuralogError as error:
                self.note = f"The groups in {place} cannot be read: {printable(str(error))}"
                continue
            left -= taken
            self._positions[place] = (view if is_all else None), reached
            if not is_all:
                self.note = "The groups are still being read: there is more in __consumer_offsets."

    def _reading(self, folded: FoldedLog, position: int, most: int) -> Callable[[PartitionLog], tuple[int, int, bool]]:
        def read(log: PartitionLog) -> tuple[int, int, bool]:
            """The offset read up to, the number of records, and whether the end was reached."""
            end = log.end_offset
            if position >= end:
                return position, 0, True
            taken, reached = 0, end

            def entries() -> Iterator[LoggedRecord | LoggedMarker]:
                nonlocal taken, reached
                for entry in read_log(log, position):
                    if isinstance(entry, LoggedRecord):
                        if taken >= most:
                            reached = entry.offset
                            return
                        taken += 1
                    yield entry

            # Commits of a transaction take effect with the transaction; other commits do not wait for it.
            for record in folded.taking_effect(entries()):
                self.records.add(record)
            return reached, taken, reached == end

        return read
