"""The records of Kafka's own topics one by one: which of them cannot be loaded.

All other checks and repairs work on batches. Here the batches are sound, but something other than a coordinator wrote
records into them that stop Kafka's coordinators (`duralog.format.internal.loadable_records` has the rule), or into the
metadata log, where one record that cannot be decoded prevents the whole directory from opening.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from duralog.columnar.pieces import Piece
from duralog.columnar.python_records import to_keys_and_values
from duralog.config.plurals import plural
from duralog.errors import CorruptRecord, Fault
from duralog.format.control_records import decode_type_id
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.internal.loadable_records import decode_loadable, is_usual_commit, stops_kafka, unknown_reason
from duralog.format.internal.metadata_records import decode_metadata_record
from duralog.format.layout import CONTROL_BIT
from duralog.storage.checks.findings import OnFinding, TakeNote

_Refuse = Callable[[int, int | None, CorruptRecord], None]
"""Called with the row of a batch in its piece, the offset of a record in it, and the error for a person.

The offset is None if the batch cannot be decoded at all."""


class Unknown(NamedTuple):
    """A record of a type or version that is not known: a later Kafka wrote it, perhaps."""

    offset: int
    reason: str
    stops_kafka: bool


def check_records(
    piece: Piece,
    topic: str,
    refuse: _Refuse,
    note: Callable[[Unknown], None] = lambda _: None,
) -> None:
    """Go over the records of a piece whose checksums are right. REQUIRES: the topic is one of Kafka's own."""
    sound = np.flatnonzero(piece.batches["crc_ok"] != 0)
    is_control = (piece.batches["attributes"] & CONTROL_BIT) != 0

    for chunk in piece.decode(sound, on_corrupt=lambda error, row: refuse(row, None, error)):
        for (offset, key, value), row in zip(to_keys_and_values(chunk), chunk.batch_row.tolist(), strict=True):
            if key is not None and is_usual_commit(key, value):
                continue
            try:
                if is_control[row]:
                    decode_type_id(key)
                    continue
                if topic == CLUSTER_METADATA:
                    decode_metadata_record(value)
                    continue
                record = decode_loadable(topic, key, value)
            except CorruptRecord as error:
                who = "no controller" if topic == CLUSTER_METADATA else "no coordinator"
                refuse(row, offset, _in_words(piece, row, f"{who} can load the record at offset {offset}", error))
                continue
            if record.is_unknown:
                note(Unknown(offset, unknown_reason(record), stops_kafka(topic, record)))


def _in_words(piece: Piece, row: int, what: str, error: CorruptRecord) -> CorruptRecord:
    return CorruptRecord(
        f"{what}: {error.reason}",
        fault=Fault.UNLOADABLE,
        file=piece.name,
        position=int(piece.batches["position"][row]),
        expected=error.expected,
        found=error.found,
    )


class CoordinatorCheck:
    """The records of one log file. Takes all its pieces, then `finish`."""

    def __init__(self, file: str, topic: str, report: OnFinding, note: TakeNote) -> None:
        self._file = file
        self._topic = topic
        self._report = report
        self._note = note
        self._first: Unknown | None = None
        self._unknown = 0
        self._stops_kafka = False

    def add(self, piece: Piece) -> None:
        check_records(piece, self._topic, lambda _row, _offset, error: self._report(error), self._take_unknown)

    def finish(self) -> None:
        """Note what is not known, in one sentence."""
        if self._first is None:
            return
        consequence = "Kafka 4.3.1 does not load the partition" if self._stops_kafka else "coordinators skip them"
        self._note(
            self._file,
            f"{plural(self._unknown, 'record')} of unknown types or versions, the first at offset"
            f" {self._first.offset} ({self._first.reason}): {consequence}",
            offset=self._first.offset,
            unknown_records=self._unknown,
        )

    def _take_unknown(self, unknown: Unknown) -> None:
        self._first = self._first or unknown
        self._unknown += 1
        self._stops_kafka |= unknown.stops_kafka
