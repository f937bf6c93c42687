"""`--summary` and `--verify`: a log is read and checked, and only faults are shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump.batches import log_heading
from duralog.cli.dump.request import DumpRequest
from duralog.cli.voice.output import Output
from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord
from duralog.format.filenames import FileKind
from duralog.format.index_entries import DEFAULT_INTERVAL_BYTES
from duralog.storage.checks.findings import FewPerFile, OnFinding
from duralog.storage.checks.producer_replay import ProducerReplay
from duralog.storage.checks.segment import SegmentCheck
from duralog.storage.disk.file_source import FileSource, read_small
from duralog.storage.disk.found_files import Content, FoundFile


class SummarySink:
    """Shows nothing: `walk_log` counts, and reports faults."""

    reports_crc = False

    def begin(self, file: FoundFile, source: FileSource, report: OnFinding) -> None:
        pass

    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:  # noqa: ARG002
        return 0

    def end(self, log_end: int, *, is_sound: bool) -> None:
        pass


class VerifySink:
    """Checks the indexes of each segment against its log."""

    reports_crc = False

    def __init__(self, request: DumpRequest, output: Output) -> None:
        self._output = output
        self._interval = request.index_interval_bytes
        self._replay: ProducerReplay | None = None
        self._last_folder: str | None = None

    def begin(self, file: FoundFile, source: FileSource, report: OnFinding) -> None:
        self._output.heading(log_heading(file, source))
        self._report = FewPerFile(report)
        self._check: SegmentCheck | None = None
        if file.content is Content.LOG and file.offset is not None:
            self._replay = self._replay_at(file, file.offset)
            self._check = SegmentCheck(
                file,
                self._replay,
                self._report,
                self._output.note,
                interval_bytes=DEFAULT_INTERVAL_BYTES if self._interval is None else self._interval,
                is_exact=self._interval is not None,
            )

    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:  # noqa: ARG002 (all batches are checked)
        if self._check is not None:
            self._check.add(piece)
        return 0

    def end(self, log_end: int, *, is_sound: bool) -> None:
        if self._check is not None:
            self._check.finish(log_end, is_sound=is_sound)
        for note in self._report.left_out():
            self._output.note(note.file, note.text)

    def _replay_at(self, file: FoundFile, base_offset: int) -> ProducerReplay:
        """The producer state at the start of a segment: from its snapshot, else from the segment before."""
        is_next = self._last_folder == file.folder
        self._last_folder = file.folder
        path = file.sibling(FileKind.PRODUCER_SNAPSHOT)
        data = read_small(path)
        if data is not None:
            try:
                return ProducerReplay(base_offset, data)
            except CorruptRecord as error:
                self._report(error.in_file(path))
        return self._replay if is_next and self._replay is not None else ProducerReplay(base_offset, None)
