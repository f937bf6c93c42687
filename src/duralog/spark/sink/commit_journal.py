"""The files of a commit: the journal while it runs, and the list of committed writes.

`duralog-sink.journal` exists from the moment at which a write is decided until all of it is in the logs, on disk. It
names the staged files and, for each partition, the offset of the first of their batches. A crash in between leaves it,
and the next commit completes it first.

`duralog-sink.committed` holds, for each streaming query or application, the last version that was committed: versions
ascend, so this one number shows a repeated write. None is ever dropped: a query may be stopped for years and then
repeat its last micro-batch. Each takes about 80 bytes.

Both are replaced whole, so a crash leaves the old contents or the new ones. A damaged one is an error that names the
file and the way out, and is never guessed at: without it, rows would be doubled or lost. For `duralog-sink.committed`
the way out is `duralog.spark.committing.set_committed`. A write that is not named there stays unknown, and is refused
rather than doubled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, NamedTuple

from duralog.errors import CorruptRecord, StorageError
from duralog.format.checksum import crc32c
from duralog.format.filenames import SINK_COMMITTED, SINK_JOURNAL
from duralog.format.properties import decode_json_object, encode_json_object
from duralog.format.topic_partition import TopicPartition
from duralog.spark.sink.write_options import AppVersion
from duralog.storage.disk.file_system import FileSystem

_VERSION = 1
_DAMAGED_SUFFIX = ".damaged"
NOTHING = -1
"""As the last version: nothing was committed."""

_TO_GIVE_UP = (
    "which write was interrupted is not known; duralog.spark.committing.abandon gives it up: what is in the logs of it"
    " stays there, and the rest is not written"
)
_TO_SET = (
    "which writes were committed is not known, so writes of streaming queries and those with a txnAppId are refused;"
    " duralog.spark.committing.set_committed starts the file again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """A write that is decided."""

    writer: str
    batch: int
    transaction: AppVersion | None
    preserve_offsets: bool
    files: Mapping[str, int]
    """The names of the staged files, in the order of their tasks, and the size of each."""
    starts: Mapping[TopicPartition, int]
    """Where each partition ended when the write was decided."""


def read_journal(files: FileSystem, directory: str) -> Journal | None:
    content = _read(files, f"{directory}/{SINK_JOURNAL}", _TO_GIVE_UP)
    if content is None:
        return None
    try:
        named = content["transaction"]
        return Journal(
            writer=content["writer"],
            batch=content["batch"],
            transaction=None if named is None else AppVersion(**named),
            preserve_offsets=content["preserve_offsets"],
            files={name: int(size) for name, size in content["files"]},
            starts={TopicPartition(topic, number): int(start) for topic, number, start in content["starts"]},
        )
    except (KeyError, TypeError, ValueError) as error:
        path = f"{directory}/{SINK_JOURNAL}"
        raise CorruptRecord(f"the journal of a write: {error!r}; {_TO_GIVE_UP}", file=path) from None


def write_journal(files: FileSystem, directory: str, journal: Journal) -> None:
    """Decide the write: from here on it will be completed, by this or a later commit."""
    named = journal.transaction
    content = {
        "writer": journal.writer,
        "batch": journal.batch,
        "transaction": None if named is None else asdict(named),
        "preserve_offsets": journal.preserve_offsets,
        "files": [*journal.files.items()],
        "starts": [(*partition, start) for partition, start in journal.starts.items()],
    }
    _write(files, f"{directory}/{SINK_JOURNAL}", content)


def remove_journal(files: FileSystem, directory: str) -> None:
    files.remove(f"{directory}/{SINK_JOURNAL}")
    files.sync_folder(directory)


class Committed(NamedTuple):
    """What is remembered."""

    last: Mapping[str, int]
    """By application, the last version that was committed."""
    is_all: bool
    """No application is missing."""


class NotRemembered(StorageError):
    """Whether a write was committed before is not known: the memory of it was damaged."""


def is_committed(files: FileSystem, directory: str, transaction: AppVersion) -> bool:
    """Whether this version of the application, or a later one, was committed before."""
    application, version = transaction.application, transaction.version
    committed = read_committed(files, directory)
    last = committed.last.get(application)
    if last is None and version > 0 and not committed.is_all:
        # A first version is taken for that of a new one.
        raise NotRemembered(
            f"{directory}/{SINK_COMMITTED}: it was damaged, and {application!r} was not named when it was set again:"
            f" whether its version {version} was committed is not known. Look for its rows in the logs. If they are"
            f" there: duralog.spark.committing.set_committed({directory!r}, {{{application!r}: {version}}}); if they"
            f" are not, the same with {version - 1}. Then write again"
        )
    return last is not None and version <= last


def remember(files: FileSystem, directory: str, transaction: AppVersion) -> None:
    """REQUIRES: all of the write is on disk."""
    committed = read_committed(files, directory)
    last = {**committed.last, transaction.application: transaction.version}
    _write_committed(files, directory, committed._replace(last=last))


def read_committed(files: FileSystem, directory: str) -> Committed:
    path = f"{directory}/{SINK_COMMITTED}"
    content = _read(files, path, _TO_SET)
    if content is None:
        return Committed({}, is_all=True)
    entries = content.get("committed")
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("application"), str) and isinstance(entry.get("version"), int)
        for entry in entries
    ):
        raise CorruptRecord(f"not a list of committed writes: {_TO_SET}", file=path)
    return Committed(
        {entry["application"]: entry["version"] for entry in entries}, is_all=content.get("is_all", True) is True
    )


def add_committed(files: FileSystem, directory: str, last: Mapping[str, int], *, is_all: bool) -> str | None:
    """Add to what is remembered. A damaged file is set aside before: returns its new path."""
    path, set_aside = f"{directory}/{SINK_COMMITTED}", None
    try:
        known = read_committed(files, directory)
    except CorruptRecord:
        known, set_aside = Committed({}, is_all=False), _free_name(files, f"{path}{_DAMAGED_SUFFIX}")
        # First: as long as the damaged one is there, writes are refused.
        files.replace(set_aside, files.read_all(path))
    _write_committed(files, directory, Committed({**known.last, **last}, known.is_all or is_all))
    return set_aside


def _free_name(files: FileSystem, path: str) -> str:
    return next(name for number in count() if not files.exists(name := f"{path}{number or ''}"))


def _write_committed(files: FileSystem, directory: str, committed: Committed) -> None:
    entries = [{"application": application, "version": version} for application, version in committed.last.items()]
    _write(files, f"{directory}/{SINK_COMMITTED}", {"committed": entries, "is_all": committed.is_all})


def _write(files: FileSystem, path: str, content: Mapping[str, Any]) -> None:
    body = encode_json_object({"version": _VERSION, **content})
    files.replace(path, b"%08x\n%b\n" % (crc32c(body), body))


def _read(files: FileSystem, path: str, way_out: str) -> dict[str, Any] | None:
    if not files.exists(path):
        return None
    checksum, _, body = files.read_all(path).rstrip(b"\n").partition(b"\n")
    if checksum != b"%08x" % crc32c(body):
        expected, found = f"{crc32c(body):08x}", repr(checksum[:8])
        raise CorruptRecord(f"wrong checksum: {way_out}", file=path, expected=expected, found=found)
    try:
        content = decode_json_object(body)
    except CorruptRecord as error:
        raise error.in_file(path) from None
    if content.get("version") != _VERSION:
        raise CorruptRecord("a file of another version", file=path, expected=_VERSION, found=content.get("version"))
    return content
