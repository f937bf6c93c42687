"""The side files of one segment against its log: offset index, time index, transaction index.

`duralog.storage.checks.log` checks the log itself. Nothing here opens it: the caller reads it and passes the pieces.
"""

from __future__ import annotations

from collections.abc import Callable

from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord, Fault
from duralog.format.filenames import FileKind
from duralog.storage.checks.findings import OnFinding, TakeNote, unreadable
from duralog.storage.checks.indexes import OffsetIndexCheck, RebuildCheck, TimeIndexCheck
from duralog.storage.checks.producer_replay import ProducerReplay
from duralog.storage.checks.transactions import TransactionIndexCheck
from duralog.storage.disk.file_source import read_small
from duralog.storage.disk.found_files import FoundFile


class SegmentCheck:
    """Takes all pieces of a log in order, then `finish`.

    `replay` has reached the start of the segment, and continues with it. With `is_exact`, the indexes must be exactly
    those that Kafka's rule gives for this `index.interval.bytes`; otherwise a difference is only a note.
    """

    def __init__(
        self,
        log: FoundFile,
        replay: ProducerReplay,
        report: OnFinding,
        note: TakeNote,
        *,
        interval_bytes: int,
        is_exact: bool,
        read_small: Callable[[str], bytes | None] = read_small,
    ) -> None:
        """REQUIRES: the log has its base offset in its name."""
        assert log.offset is not None
        self._log = log
        self._read_small = read_small
        self._replay = replay
        self._report = self._remembering(report)
        self._note = note
        self._wrong: set[str | None] = set()
        """Files that something is wrong with."""
        self._is_exact = is_exact
        self._rebuild = RebuildCheck(log.offset, interval_bytes)
        self._offsets: OffsetIndexCheck | None = None
        self._times: TimeIndexCheck | None = None
        path = log.sibling(FileKind.OFFSET_INDEX)
        if (data := self._read(path)) is not None:
            self._offsets = OffsetIndexCheck(path, data, log.offset, self._report)
        path = log.sibling(FileKind.TIME_INDEX)
        if (data := self._read(path)) is not None:
            self._times = TimeIndexCheck(path, data, log.offset, self._report)
        path = log.sibling(FileKind.TRANSACTION_INDEX)
        self._transactions = TransactionIndexCheck(path, self._read(path), log.offset, self._report)

    def add(self, piece: Piece) -> None:
        if self._offsets is not None:
            self._offsets.add(piece.batches)
        if self._times is not None:
            self._times.add(piece.batches)
        if self._offsets is not None or self._times is not None:
            self._rebuild.add(piece.batches)
        self._transactions.add(*self._replay.add(piece))

    def finish(self, log_end: int, *, is_sound: bool) -> None:
        """`log_end` is where the last batch ends; `is_sound`: nothing is wrong with the log itself."""
        if self._offsets is not None:
            self._offsets.finish(log_end)
        if self._times is not None:
            self._times.finish()
        if is_sound:
            self._compare_with_rule()
            self._transactions.finish()
        for check, kind in ((self._offsets, FileKind.OFFSET_INDEX), (self._times, FileKind.TIME_INDEX)):
            if check is None and self._log.sibling(kind) not in self._wrong:
                self._note(self._log.sibling(kind), "is missing; Kafka rebuilds it from the log when it starts")

    def _read(self, path: str) -> bytes | None:
        try:
            return self._read_small(path)
        except CorruptRecord as error:
            self._report(error)
        except OSError as error:
            self._report(unreadable(path, error))
        return None

    def _remembering(self, report: OnFinding) -> OnFinding:
        def remember(error: CorruptRecord) -> None:
            self._wrong.add(error.file)
            report(error)

        return remember

    def _compare_with_rule(self) -> None:
        interval = self._rebuild.interval_bytes
        for path, difference in self._rebuild.differences(self._offsets, self._times):
            if path in self._wrong:
                continue
            if self._is_exact:
                self._report(
                    CorruptRecord(
                        f"the index {difference}, with index.interval.bytes={interval}",
                        fault=Fault.FIELD_VALUE,
                        file=path,
                    )
                )
            else:
                self._note(
                    path,
                    f"{difference}, with index.interval.bytes={interval}:"
                    " ordinary after restarts or with another interval",
                )
