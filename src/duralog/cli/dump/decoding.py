"""How `duralog dump` decodes keys and values: samples are read from the dumped files, schemas from around them.

Files are read as they are, without opening a store: a sample and the topic `_schemas` are also read from logs that are
damaged, or that have no indexes. Batches that are corrupt are left out here; the dump itself reports them.

A file in a partition's folder belongs to the log directory around that folder, and its schemas are those of the topic
`_schemas` there, or else in one of the other directories of the same command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from duralog.columnar.pieces import read_pieces
from duralog.errors import SchemaError, UnknownTopic
from duralog.format.filenames import FileState
from duralog.format.layout import CONTROL_BIT
from duralog.operations.records.decoded import RecordDecoder
from duralog.schemas.decode_options import Decode, plan_decoding
from duralog.schemas.typed_columns import TypedColumns
from duralog.storage.disk.file_source import FileSource
from duralog.storage.disk.found_files import Content, FoundFile, look_into


class FileDecoders:
    """Decoders of the files of one run."""

    def __init__(
        self,
        decode: Decode,
        logs: Sequence[FoundFile],
        *,
        max_decompressed_bytes: int,
        say_note: Callable[[str], None],
    ) -> None:
        self._decode = decode
        self._logs = logs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._say_note = say_note
        self._decoders: dict[str | None, RecordDecoder] = {}

    def of(self, file: FoundFile) -> RecordDecoder:
        """The decoder of the directory that a file is in."""
        directory = _directory(file)
        if directory not in self._decoders:
            self._decoders[directory] = RecordDecoder(self._decode, partial(self._records, directory), self._say_note)
        return self._decoders[directory]

    def columns(self) -> TypedColumns:
        """One type for the keys and for the values of all files. Raises `SchemaError` if they have several."""
        topics: dict[str | None, list[str]] = {}
        for file in self._logs:
            found = topics.setdefault(_directory(file), [])
            if topic_of(file) not in found:
                found.append(topic_of(file))
        planned = [self._planned(directory, names) for directory, names in topics.items()]
        for finding in (finding for each in planned for finding in each.findings):
            self._say_note(finding)
        if not planned:
            raise SchemaError("there is no log to detect the format from")
        if any(other.schema(None) != planned[0].schema(None) for other in planned[1:]):
            raise SchemaError(
                f"{', '.join(str(directory) for directory in topics)}: keys or values are of different types there:"
                " export one directory at a time, or give --value-schema for all of them"
            )
        return planned[0]

    def _planned(self, directory: str | None, topics: Sequence[str]) -> TypedColumns:
        try:
            return plan_decoding(self._decode, topics, partial(self._records, directory), None)
        except SchemaError as error:
            if len(topics) == 1:
                raise
            raise SchemaError(f"{error}. An export has one type: choose a topic with --topic") from None

    def _records(self, directory: str | None, topic: str, columns: Sequence[str]) -> Iterable[pa.RecordBatch]:
        if topic == self._decode.schemas_topic:
            files = self._schemas_logs(directory)
        else:
            files = [file for file in self._logs if topic_of(file) == topic and _directory(file) == directory]
        if not files:
            raise UnknownTopic(f"there is no log of topic {topic}")
        return self._batches(files, columns)

    def _schemas_logs(self, directory: str | None) -> list[FoundFile]:
        """The live segments of `_schemas`, in the file's own directory or in another one of the run."""
        places = dict.fromkeys([directory, *map(_directory, self._logs)])
        for place in places:
            folder = None if place is None else os.path.join(place, f"{self._decode.schemas_topic}-0")
            if folder is not None and os.path.isdir(folder):
                found, _ = look_into(folder)
                return [file for file in found if file.content is Content.LOG and file.state is FileState.LIVE]
        return []

    def _batches(self, files: Iterable[FoundFile], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in files:
            with FileSource(file.path) as source:
                for piece in read_pieces(source):
                    batches = piece.batches
                    is_data = (batches["magic"] < 2) | (batches["attributes"] & CONTROL_BIT == 0)
                    for decoded in piece.decode(
                        np.flatnonzero(is_data),
                        max_decompressed_bytes=self._max_decompressed_bytes,
                        on_corrupt=lambda _error, _row: None,
                    ):
                        yield decoded.to_arrow(columns=columns)


def topic_of(file: FoundFile) -> str:
    """By the name of its folder; the file's own name if that is not a partition's."""
    return file.name if file.partition is None else file.partition.topic


def _directory(file: FoundFile) -> str | None:
    return None if file.partition is None else os.path.dirname(os.path.abspath(file.folder))
