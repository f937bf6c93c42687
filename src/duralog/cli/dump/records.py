"""`--records`: a line or an object for each record.

Data goes from the decoder through the renderer to the output in columns and blocks of bytes. Only control records,
those of Kafka's internal topics, and keys and values that are decoded by schemas are shown one by one in Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump.batches import log_heading
from duralog.cli.dump.request import DumpRequest
from duralog.cli.dump.selection import selected_records
from duralog.cli.dump.typed_records import TypedRecords
from duralog.cli.voice.output import Output
from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import Piece
from duralog.columnar.render import LineBuffer, render_json, render_text
from duralog.format.layout import CONTROL_BIT
from duralog.storage.checks.findings import OnFinding
from duralog.storage.disk.file_source import FileSource
from duralog.storage.disk.found_files import FoundFile

if TYPE_CHECKING:
    from duralog.cli.dump.decoded_lines import DecodedLines
    from duralog.cli.dump.decoding import FileDecoders


class RecordSink:
    reports_crc = True

    def __init__(self, request: DumpRequest, output: Output, decoders: FileDecoders | None = None) -> None:
        self._request = request
        self._output = output
        self._decoders = decoders
        self._lines = LineBuffer()

    def begin(self, file: FoundFile, source: FileSource, report: OnFinding) -> None:
        self._report = report
        self._offset_width = 0
        self._prefix = json_prefix(file)
        self._typed = TypedRecords(file, self._output, self._prefix, report)
        self._decoded = None if self._decoders is None else self._decoded_lines(file, self._decoders)
        self._output.heading(log_heading(file, source))

    def _decoded_lines(self, file: FoundFile, decoders: FileDecoders) -> DecodedLines:
        from duralog.cli.dump.decoded_lines import DecodedLines
        from duralog.cli.dump.decoding import topic_of

        partition = 0 if file.partition is None else file.partition.partition
        most = self._request.max_field_bytes
        return DecodedLines(decoders.of(file), topic_of(file), partition, self._output, max_field_bytes=most)

    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:
        shown = 0
        for run, is_typed in self._runs(piece, rows):
            for decoded in selected_records(piece, run, self._request, self._report):
                if is_typed:
                    self._typed.show(decoded)
                elif self._decoded is None or not self._show_decoded(decoded, self._decoded):
                    self._output.write(self._render(decoded))
                shown += len(decoded)
            if self._request.quota.is_used_up:
                break
        return shown

    def _show_decoded(self, records: DecodedRecords, lines: DecodedLines) -> bool:
        self._widen(records)
        return lines.show(records, json_prefix=self._prefix, offset_width=self._offset_width)

    def _widen(self, records: DecodedRecords) -> None:
        self._offset_width = max(self._offset_width, len(str(records.columns.offset.max())))

    def _render(self, decoded: DecodedRecords) -> memoryview:
        if self._output.as_json:
            return render_json(decoded, self._prefix, buffer=self._lines)
        self._widen(decoded)
        return render_text(
            decoded,
            offset_width=self._offset_width,
            max_field_bytes=self._request.max_field_bytes,
            buffer=self._lines,
        )

    def end(self, log_end: int, *, is_sound: bool) -> None:
        pass

    def _runs(self, piece: Piece, rows: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], bool]]:
        """The rows in order, split between data and control records."""
        if self._request.raw:
            yield rows, False
        elif self._typed.are_all:
            yield rows, True
        else:
            batches = piece.batches
            is_control = (batches["magic"][rows] >= 2) & (batches["attributes"][rows] & CONTROL_BIT != 0)
            for run in np.split(rows, np.flatnonzero(np.diff(is_control)) + 1):
                if len(run):
                    yield run, bool(is_control[0])
                is_control = is_control[len(run) :]


def json_prefix(file: FoundFile) -> bytes:
    """The first fields of every record of the file: topic and partition, or the file."""
    if file.partition is None:
        return f'"file":{json.dumps(file.path)},'.encode()
    return f'"topic":{json.dumps(file.partition.topic)},"partition":{file.partition.partition},'.encode()
