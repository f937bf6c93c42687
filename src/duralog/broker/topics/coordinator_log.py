"""Reading the log of a coordinator from its start: `__consumer_offsets` or `__transaction_state`.

A reader gets the records in their order with the producer of each, and the markers of transactions between them.

A record that no coordinator can load, or of a type or version that is not known, is skipped and reported, as if it had
never been written. The checksum of its batch is right, so it is not damaged: something other than a coordinator wrote
it, and it was never in force. The record of the same key before it still counts.

A batch whose checksum is wrong is different. It may have held anything, the last offsets of a group included, and a
coordinator that reads on without it may rewind consumers. So the reading ends there with an error.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from duralog.broker.net.log_lines import error_text, one_line
from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import read_pieces
from duralog.columnar.python_records import to_keys_and_values
from duralog.config.plurals import plural
from duralog.errors import CorruptRecord, DuralogError
from duralog.format.control_records import ControlType, decode_type_id
from duralog.format.internal.loadable_records import decode_loadable, is_usual_commit, unknown_reason
from duralog.format.layout import CONTROL_BIT
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.reading import end_fault

_LINES_PER_PARTITION = 3


class LoggedRecord(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    producer_id: int


class LoggedMarker(NamedTuple):
    """The end of a transaction."""

    producer_id: int
    commit: bool


class Skipped(NamedTuple):
    """A record that was skipped."""

    offset: int
    reason: str
    is_unknown: bool = False
    """Not damaged: its type or version is unknown."""


OnSkipped = Callable[[Skipped], None]


def ignore(_: Skipped) -> None:
    """For readers that do not report skipped records."""


def read_log(
    log: PartitionLog, offset: int = 0, on_skipped: OnSkipped = ignore
) -> Iterator[LoggedRecord | LoggedMarker]:
    """The entries of a coordinator's log from an offset on. Damage is raised after the entries before it."""
    view = log.view
    start_offset = max(offset, view.start_offset)
    for segment, end in view.segments_from(start_offset):
        position = 0
        if segment.base_offset < offset:
            first = segment.find_batch(start_offset, end)
            if first is None:
                continue
            position = first.position
        for piece in read_pieces(segment.file, start=position, end=end):
            for chunk in piece.decode():
                for entry, is_control in _entries(chunk):
                    if entry.offset < start_offset:
                        continue
                    if is_control:
                        marker = _marker(entry, on_skipped)
                        if marker is not None:
                            yield marker
                    elif is_usual_commit(entry.key, entry.value) or _is_loadable(log.topic, entry, on_skipped):
                        yield entry
            fault = end_fault(piece)
            if fault is not None:
                raise fault


def _is_loadable(topic: str, entry: LoggedRecord, on_skipped: OnSkipped) -> bool:
    try:
        record = decode_loadable(topic, entry.key, entry.value)
    except CorruptRecord as error:
        on_skipped(Skipped(entry.offset, str(error)))
        return False
    if record.is_unknown:
        on_skipped(Skipped(entry.offset, unknown_reason(record), is_unknown=True))
    return not record.is_unknown


def _marker(entry: LoggedRecord, on_skipped: OnSkipped) -> LoggedMarker | None:
    """None for control records that end no transaction."""
    try:
        type_id = decode_type_id(entry.key)
    except CorruptRecord as error:
        on_skipped(Skipped(entry.offset, str(error)))
        return None
    if type_id not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return LoggedMarker(entry.producer_id, type_id == ControlType.COMMIT)


def _entries(chunk: DecodedRecords) -> Iterator[tuple[LoggedRecord, bool]]:
    """The records, and whether each is a control record."""
    controls = (chunk.batches["attributes"] & CONTROL_BIT) != 0
    for (offset, key, value), producer_id, is_control in zip(
        to_keys_and_values(chunk),
        chunk.batches["producer_id"][chunk.batch_row].tolist(),
        controls[chunk.batch_row].tolist(),
        strict=True,
    ):
        yield LoggedRecord(offset, key or b"", value, producer_id), is_control


def unreadable_text(log: PartitionLog, what: str, error: Exception) -> str:
    """The line for a partition whose groups, or transactional ids, are not served."""
    partition = f"{log.topic}-{log.partition}"
    reason = str(error) if isinstance(error, DuralogError) else error_text(error)
    advice = f"duralog repair --dry-run DIR --topic {log.topic} --partition {log.partition}"
    return one_line(f"{partition} cannot be loaded and its {what} are not served: {reason}; stop and run: {advice}")


class SkippedRecords:
    """Counts the skipped records of a topic, and logs the first ones of each partition."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._of_partition: Counter[str] = Counter()
        self.unloadable = 0
        self.unknown = 0

    def of(self, log: PartitionLog) -> OnSkipped:
        """Takes those of one partition."""
        partition = f"{log.topic}-{log.partition}"

        def take(skipped: Skipped) -> None:
            self.unknown += skipped.is_unknown
            self.unloadable += not skipped.is_unknown
            self._of_partition[partition] += 1
            if self._of_partition[partition] <= _LINES_PER_PARTITION:
                text = f"{partition}: the record at offset {skipped.offset} is skipped: {skipped.reason}"
                self._logger.warning("%s", one_line(text))

        return take

    def finish(self) -> None:
        """Log the number of those that were not logged one by one."""
        for partition, count in self._of_partition.items():
            if count > _LINES_PER_PARTITION:
                more = plural(count - _LINES_PER_PARTITION, "more record")
                self._logger.warning("%s: %s skipped; duralog verify counts them", partition, more)

    def clear(self) -> None:
        """The topic is gone."""
        self._of_partition.clear()
        self.unloadable = self.unknown = 0
