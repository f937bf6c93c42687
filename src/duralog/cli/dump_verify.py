"""`--summary` and `--verify`: a log is read and judged, and only what is wrong is shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump_batches import Report, log_heading
from duralog.cli.dump_files import LARGEST_FILE_BYTES
from duralog.cli.dump_output import Output
from duralog.cli.dump_request import DumpRequest
from duralog.cli.index_checks import OffsetIndexCheck, RebuildCheck, TimeIndexCheck
from duralog.cli.transaction_check import OpenTransactions, TransactionIndexCheck
from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord, Fault
from duralog.format.filenames import FileKind
from duralog.format.index_entries import DEFAULT_INTERVAL_BYTES
from duralog.format.producer_snapshot import decode_producer_snapshot
from duralog.storage.files import Content, FileSource, FoundFile

_SHOWN_FINDINGS = 20
"""Of one index: a file of garbage has a finding for each entry."""


class SummarySink:
    """Shows nothing: the walk through the log counts, and tells what is wrong."""

    reports_crc = False

    def begin(self, file: FoundFile, source: FileSource, report: Report) -> None:
        pass

    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:  # noqa: ARG002
        return 0

    def end(self, log_end: int, *, is_sound: bool) -> None:
        pass


class VerifySink:
    """Holds the indexes of each segment against its log."""

    reports_crc = False

    def __init__(self, request: DumpRequest, output: Output) -> None:
        self._output = output
        self._interval = request.index_interval_bytes
        self._open_transactions: OpenTransactions = {}
        self._last_folder: str | None = None

    def begin(self, file: FoundFile, source: FileSource, report: Report) -> None:
        self._output.heading(log_heading(file, source))
        self._file = file
        self._offsets: OffsetIndexCheck | None = None
        self._times: TimeIndexCheck | None = None
        self._transactions: TransactionIndexCheck | None = None
        self._rebuild = RebuildCheck(DEFAULT_INTERVAL_BYTES if self._interval is None else self._interval)
        self._report = _Few(report)
        if file.content is not Content.LOG or file.offset is None:
            return
        path = file.sibling(FileKind.OFFSET_INDEX)
        if (data := _read(path)) is not None:
            self._offsets = OffsetIndexCheck(path, data, file.offset, self._report)
        path = file.sibling(FileKind.TIME_INDEX)
        if (data := _read(path)) is not None:
            self._times = TimeIndexCheck(path, data, file.offset, self._report)
        path = file.sibling(FileKind.TRANSACTION_INDEX)
        self._transactions = TransactionIndexCheck(
            path, _read(path), file.offset, self._open_at_start(file), self._report
        )

    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:  # noqa: ARG002 (all batches are checked)
        if self._offsets is not None:
            self._offsets.add(piece.batches)
        if self._times is not None:
            self._times.add(piece.batches)
        if self._transactions is not None:
            self._transactions.add(piece)
        if self._offsets is not None or self._times is not None:
            self._rebuild.add(piece.batches)
        return 0

    def end(self, log_end: int, *, is_sound: bool) -> None:
        if self._offsets is not None:
            self._offsets.finish(log_end)
        if self._times is not None:
            self._times.finish(log_end)
        if is_sound:
            self._compare_with_rebuilt()
        if self._transactions is not None:
            if is_sound:
                self._transactions.finish()
            self._open_transactions = self._transactions.open_transactions
        self._note_missing()
        if self._report.left_out:
            self._output.note(self._file.path, f"{self._report.left_out:,} more findings in its indexes are not shown")

    def _compare_with_rebuilt(self) -> None:
        if self._offsets is not None:
            self._compare(self._offsets.file.path, self._rebuild.offset_difference(self._offsets.file.entries))
        if self._times is not None:
            self._compare(self._times.file.path, self._rebuild.time_difference(self._times.file.entries))

    def _compare(self, path: str, difference: str | None) -> None:
        if difference is None:
            return
        interval = self._rebuild.interval_bytes
        if self._interval is not None:
            self._report(
                CorruptRecord(
                    f"the index {difference}, with index.interval.bytes={interval}",
                    fault=Fault.FIELD_VALUE,
                    file=path,
                )
            )
        else:
            self._output.note(
                path,
                f"{difference}, with index.interval.bytes={interval}: ordinary after restarts or with another interval",
            )

    def _note_missing(self) -> None:
        if self._file.content is not Content.LOG or self._file.offset is None:
            return
        for check, kind in ((self._offsets, FileKind.OFFSET_INDEX), (self._times, FileKind.TIME_INDEX)):
            if check is None:
                self._output.note(self._file.sibling(kind), "is missing; Kafka builds it from the log when it starts")

    def _open_at_start(self, file: FoundFile) -> OpenTransactions:
        """The transactions that are open where the segment starts: from its snapshot, else from the segment before."""
        is_next = self._last_folder == file.folder
        self._last_folder = file.folder
        data = _read(file.sibling(FileKind.PRODUCER_SNAPSHOT))
        if data is not None:
            try:
                producers = decode_producer_snapshot(data)
            except CorruptRecord as error:
                self._report(error.in_file(file.sibling(FileKind.PRODUCER_SNAPSHOT)))
            else:
                return {
                    producer.producer_id: producer.transaction_first_offset
                    for producer in producers
                    if producer.transaction_first_offset >= 0
                }
        return self._open_transactions if is_next else {}


class _Few:
    """Passes on the first findings, counts the rest."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._passed_on = 0
        self.left_out = 0

    def __call__(self, error: CorruptRecord) -> None:
        if self._passed_on < _SHOWN_FINDINGS:
            self._passed_on += 1
            self._report(error)
        else:
            self.left_out += 1


def _read(path: str) -> bytes | None:
    try:
        with FileSource(path) as source:
            return source.read_all(limit=LARGEST_FILE_BYTES)
    except FileNotFoundError:
        return None
