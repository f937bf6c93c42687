"""`--to FILE`: the selected records as Parquet, Arrow or CSV."""

from __future__ import annotations

from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump.request import DumpRequest
from duralog.cli.dump.selection import selected_records
from duralog.cli.voice.failures import CannotWrite
from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import plural
from duralog.columnar.export import Export
from duralog.columnar.pieces import DecodedRecords, Piece
from duralog.columnar.schema import RECORD_SCHEMA
from duralog.config.error_text import describe, printable
from duralog.format.layout import CONTROL_BIT
from duralog.schemas.typed_columns import LeftOut, TypedColumns
from duralog.storage.checks.findings import OnFinding
from duralog.storage.disk.file_source import FileSource
from duralog.storage.disk.found_files import FoundFile


class ExportSink:
    """Writes records of all files to one table. Control records are skipped."""

    reports_crc = True

    def __init__(self, request: DumpRequest, output: Output, typed: TypedColumns | None = None) -> None:
        """With `typed`, keys and values are decoded, and what does not decode is in the column `_corrupt`."""
        assert request.to is not None
        self._request = request
        self._output = output
        self._typed = typed
        self._left_out = LeftOut()
        self._schema = RECORD_SCHEMA if typed is None else typed.schema(None)
        self._export = Export(request.to, self._schema)

    def __enter__(self) -> ExportSink:
        self._export.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._export.__exit__(kind, error, trace)
        if error is None:
            self._output.note(
                self._export.path, f"{plural(self._export.rows, 'record')} written", records=self._export.rows
            )
            if (sentence := self._left_out.sentence()) is not None:
                self._output.note(self._export.path, sentence)

    def begin(self, file: FoundFile, source: FileSource, report: OnFinding) -> None:
        self._report = report
        self._topic = None if file.partition is None else file.partition.topic
        self._partition = None if file.partition is None else file.partition.partition
        self._output.heading(
            f"{printable(file.path)}: to {printable(self._export.path)}, {plural(source.size, 'byte')}"
        )

    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:
        batches = piece.batches
        is_data = (batches["magic"][rows] < 2) | (batches["attributes"][rows] & CONTROL_BIT == 0)
        written = 0
        for records in selected_records(piece, rows[is_data], self._request, self._report):
            written += len(records)
            self._write(records)
        return written

    def _write(self, records: DecodedRecords) -> None:
        batch = records.to_arrow(topic=self._topic, partition=self._partition)
        if self._typed is not None:
            batch = self._typed.apply(batch, self._schema, self._left_out)
        try:
            self._export.write(batch)
        except OSError as error:
            raise CannotWrite(f"{printable(self._export.path)}: {describe(error)}") from error

    def end(self, log_end: int, *, is_sound: bool) -> None:
        pass
