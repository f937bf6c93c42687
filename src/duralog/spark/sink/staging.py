"""What the tasks of a write leave for the driver: files of batches, in the directory that they will be appended to.

    duralog-sink.<writer>.<batch>.<task>.<attempt>.staged

One file for each attempt at a task, for all partitions. It holds runs of batches, each of one topic-partition, and
after them a table of the runs:

    the runs, one after the other | a JSON object | its length (4 bytes) | its CRC-32C (4 bytes) | "DURALOG1"

What must always be true: a file whose name a task has reported is complete and on disk. A file that no report and no
journal names is garbage, and never read: of an attempt that failed, of one that was slower than another, or of a write
that was given up. It is removed when its write ends. What a dead driver leaves is removed after a week, and so is the
file of a task that was still running when its write was aborted.

They are files and not a folder because Kafka refuses to start on a directory with a folder that is not a partition's.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import NamedTuple
from uuid import uuid4

from duralog.columnar.pieces import Piece, read_pieces
from duralog.errors import CorruptRecord, StorageError
from duralog.format.checksum import crc32c
from duralog.format.filenames import StagedFileName, parse_staged_file
from duralog.format.properties import decode_json_object, encode_json_object
from duralog.spark.sink.row_encoding import EncodedRun
from duralog.storage.disk.file_system import File, FileSystem
from duralog.storage.disk.log_directory import LogDirectory

APPENDED_BYTES = 1 << 20
"""What is read and appended at a time: no more than the smallest segment, unless one batch is larger."""

GARBAGE_AGE_MS = 7 * 24 * 3_600_000

_MAGIC = b"DURALOG1"
_TAIL = struct.Struct(">II8s")
_LARGEST_TABLE_BYTES = 1 << 30
_CHECKED_BYTES = 4 << 20
_VERSION = 1


class CannotComplete(StorageError):
    """A write cannot be completed: its staged rows are gone, or the log is not as it left it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Batches of one topic-partition in a staged file."""

    topic: str
    partition: int
    position: int
    size: int
    checksum: int
    """CRC-32C of all its bytes."""
    batches: int
    records: int
    largest_batch: int
    codec: int
    has_null_key: bool
    first_offset: int
    last_offset: int
    chosen_of: int | None = None
    """Out of how many partitions the rows' keys chose this one, if they did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTask:
    """What a task reports to the driver."""

    task: int
    name: str | None
    """Of its file; None if it had no rows."""
    size: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A complete file, with its table read."""

    path: str
    runs: Sequence[Run]


class WriteTask(NamedTuple):
    """Which task of which write."""

    writer: str
    batch: int
    """The number of the micro-batch; 0 for a batch write."""
    number: int


class StagingFile:
    """The file of one attempt, while its task writes it. It is created with the first run."""

    def __init__(self, files: FileSystem, directory: str, task: WriteTask) -> None:
        self._files = files
        self._directory = directory
        self._task = task.number
        self._name = StagedFileName(*task, uuid4().hex).name
        self._file: File | None = None
        self._runs: list[Run] = []

    @property
    def path(self) -> str:
        return f"{self._directory}/{self._name}"

    def add(self, run: EncodedRun) -> None:
        if self._file is None:
            LogDirectory(self._files, self._directory).make()
            self._file = self._files.open(self.path, writable=True, create=True)
        position = self._file.size
        checksum = 0
        for part in run.parts:
            checksum = crc32c(part.data.data, checksum)
        size = self._file.append(*(part.data.data for part in run.parts))
        self._runs.append(
            Run(
                topic=run.topic,
                partition=run.partition,
                position=position,
                size=size,
                checksum=checksum,
                batches=sum(len(part) for part in run.parts),
                records=sum(part.record_count for part in run.parts),
                largest_batch=max(int(part.batches["size"].max()) for part in run.parts),
                codec=int(run.codec),
                has_null_key=run.has_null_key,
                first_offset=run.first_offset,
                last_offset=run.last_offset,
                chosen_of=run.chosen_of,
            )
        )

    def finish(self) -> StagedTask:
        """Sync the file and its name."""
        if self._file is None:
            return StagedTask(task=self._task, name=None)
        table = encode_json_object({"version": _VERSION, "runs": [asdict(run) for run in self._runs]})
        self._file.append(table, _TAIL.pack(len(table), crc32c(table), _MAGIC))
        size = self._file.size
        # Preallocated space after the end is released.
        self._file.truncate(size)
        self._file.sync()
        self._file.close()
        self._files.sync_folder(self._directory)
        return StagedTask(task=self._task, name=self._name, size=size, records=sum(run.records for run in self._runs))

    def discard(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            self._files.remove(self.path)


def open_staged(files: FileSystem, directory: str, name: str, size: int) -> StagedFile:
    """The file of a report or a journal. Raises for one that is not there, or not as it was reported."""
    path = f"{directory}/{name}"
    if parse_staged_file(name) is None:
        raise CorruptRecord("not the name of a staged file", file=path)
    if not files.exists(path):
        raise CannotComplete(
            f"{path}: the staged rows of a task are missing: the directory must be on a disk that the driver and all"
            " executors see"
        )
    file = files.open(path)
    try:
        return StagedFile(path, _read_table(file, size))
    finally:
        file.close()


def _read_table(file: File, size: int) -> list[Run]:
    if file.size != size or size < _TAIL.size:
        raise CorruptRecord("a staged file has changed", file=file.name, expected=f"{size} bytes", found=file.size)
    length, checksum, magic = _TAIL.unpack(file.read(size - _TAIL.size, _TAIL.size))
    end = size - _TAIL.size - length
    if magic != _MAGIC or end < 0 or length > _LARGEST_TABLE_BYTES:
        raise CorruptRecord("a staged file does not end as one", file=file.name, position=size - _TAIL.size)
    table = file.read(end, length)
    if crc32c(table) != checksum:
        raise CorruptRecord(
            "wrong checksum", file=file.name, position=end, expected=f"{checksum:#010x}", found=f"{crc32c(table):#010x}"
        )
    try:
        content = decode_json_object(table)
        if content.get("version") != _VERSION:
            raise CorruptRecord("a staged file of another version", expected=_VERSION, found=content.get("version"))
        return [Run(**run) for run in content["runs"]]
    except CorruptRecord as error:
        raise error.in_file(file.name, end) from None
    except (KeyError, TypeError) as error:
        raise CorruptRecord(f"the table of a staged file: {error}", file=file.name, position=end) from None


def check_contents(files: FileSystem, staged: StagedFile) -> None:
    """Read the whole file and compare checksums: after this, damage would reach the logs."""
    file = files.open(staged.path)
    buffer = memoryview(bytearray(_CHECKED_BYTES))
    try:
        for run in staged.runs:
            checksum = 0
            for position in range(run.position, run.position + run.size, _CHECKED_BYTES):
                piece = buffer[: min(_CHECKED_BYTES, run.position + run.size - position)]
                file.read_into(position, piece)
                checksum = crc32c(piece, checksum)
            if checksum != run.checksum:
                raise CorruptRecord(
                    f"wrong checksum of the batches of {run.topic}-{run.partition}",
                    file=staged.path,
                    position=run.position,
                    expected=f"{run.checksum:#010x}",
                    found=f"{checksum:#010x}",
                )
    finally:
        file.close()


class _WritablePieces:
    """A staged file whose pieces can be stamped in place."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.name = file.name
        self.size = file.size

    def read(self, position: int, size: int) -> bytearray:
        data = bytearray(size)
        self._file.read_into(position, memoryview(data))
        return data


def read_run(files: FileSystem, path: str, run: Run, *, check_crc: bool = False) -> Iterator[Piece]:
    """The batches of a run, about `APPENDED_BYTES` at a time. The bytes of each piece may be changed."""
    file = files.open(path)
    try:
        batches = 0
        source = _WritablePieces(file)
        end = run.position + run.size
        for piece in read_pieces(source, start=run.position, end=end, check_crc=check_crc, piece_bytes=APPENDED_BYTES):
            if piece.fault is not None:
                raise piece.fault
            batches += len(piece.batches)
            if len(piece.batches):
                yield piece
        if batches != run.batches:
            raise CorruptRecord(
                f"the batches of {run.topic}-{run.partition}",
                file=path,
                position=run.position,
                expected=f"{run.batches} batches",
                found=batches,
            )
    finally:
        file.close()


def sweep(files: FileSystem, directory: str, *, writer: str, up_to_batch: int, kept: Collection[str]) -> None:
    """Remove the files of a write that has ended, of a query up to this micro-batch, but for those `kept`."""
    for name, staged in _staged(files, directory):
        if staged.writer == writer and staged.batch <= up_to_batch and name not in kept:
            with suppress(StorageError):
                files.remove(f"{directory}/{name}")


def sweep_rubbish(files: FileSystem, directory: str, *, now_ms: int, kept: Collection[str]) -> None:
    """Remove what dead drivers left long ago."""
    for name, _ in _staged(files, directory):
        path = f"{directory}/{name}"
        entry = files.entry(path)
        if entry is not None and name not in kept and now_ms - entry.modified_ms > GARBAGE_AGE_MS:
            with suppress(StorageError):
                files.remove(path)


def _staged(files: FileSystem, directory: str) -> list[tuple[str, StagedFileName]]:
    if not files.exists(directory):
        return []
    # Names only: a directory with many partitions has as many entries.
    found = ((name, parse_staged_file(name)) for name in files.list_names(directory))
    return [(name, staged) for name, staged in found if staged is not None]
