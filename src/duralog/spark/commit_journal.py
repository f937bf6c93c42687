"""What a commit keeps on disk about itself: the journal while it runs, and afterwards that it has happened.

`duralog-sink.journal` is there from the moment at which a write is decided to the moment at which all of it is in the
logs, on disk. It names the staged files and, for each partition, the offset at which the first of their batches goes. A
crash in between leaves it, and whoever commits next completes it first.

`duralog-sink.committed` holds, for each streaming query or application, the last version that was committed: versions
ascend, so this one number tells a repeated write. The queries that have been quiet for longest are forgotten when there
are more than `MOST_REMEMBERED`.

Both are replaced whole, so a crash leaves the old contents or the new ones. A damaged one is an error that names the
file, and is never guessed at: without it, rows would be doubled or lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from duralog.errors import CorruptRecord
from duralog.format.checksum import crc32c
from duralog.format.filenames import SINK_COMMITTED, SINK_JOURNAL
from duralog.format.properties import decode_json_object, encode_json_object
from duralog.spark.write_options import Transaction
from duralog.storage.file_system import FileSystem
from duralog.storage.log_directory import TopicPartition

MOST_REMEMBERED = 1000

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """A write that is decided."""

    writer: str
    batch: int
    transaction: Transaction | None
    preserve_offsets: bool
    files: Mapping[str, int]
    """The names of the staged files, in the order of their tasks, and the size of each."""
    starts: Mapping[TopicPartition, int]
    """Where each partition ended when the write was decided."""


def read_journal(files: FileSystem, directory: str) -> Journal | None:
    content = _read(files, f"{directory}/{SINK_JOURNAL}")
    if content is None:
        return None
    try:
        named = content["transaction"]
        return Journal(
            writer=content["writer"],
            batch=content["batch"],
            transaction=None if named is None else Transaction(**named),
            preserve_offsets=content["preserve_offsets"],
            files={name: int(size) for name, size in content["files"]},
            starts={TopicPartition(topic, number): int(start) for topic, number, start in content["starts"]},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecord(f"the journal of a write: {error!r}", file=f"{directory}/{SINK_JOURNAL}") from None


def write_journal(files: FileSystem, directory: str, journal: Journal) -> None:
    """Decide the write: from here on it will be completed, by whoever comes."""
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


def is_committed(files: FileSystem, directory: str, transaction: Transaction) -> bool:
    """Whether this version of the application, or a later one, was committed before."""
    return any(
        entry["application"] == transaction.application and transaction.version <= entry["version"]
        for entry in _committed(files, directory)
    )


def remember(files: FileSystem, directory: str, transaction: Transaction) -> None:
    """REQUIRES: all of the write is on disk."""
    others = [entry for entry in _committed(files, directory) if entry["application"] != transaction.application]
    entries = [*others, asdict(transaction)][-MOST_REMEMBERED:]
    _write(files, f"{directory}/{SINK_COMMITTED}", {"committed": entries})


def _committed(files: FileSystem, directory: str) -> Sequence[dict[str, Any]]:
    """The latest last."""
    path = f"{directory}/{SINK_COMMITTED}"
    content = _read(files, path)
    if content is None:
        return []
    entries = content.get("committed")
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("application"), str) and isinstance(entry.get("version"), int)
        for entry in entries
    ):
        raise CorruptRecord("not a list of committed writes", file=path)
    return entries


def _write(files: FileSystem, path: str, content: Mapping[str, Any]) -> None:
    body = encode_json_object({"version": _VERSION, **content})
    files.replace(path, b"%08x\n%b\n" % (crc32c(body), body))


def _read(files: FileSystem, path: str) -> dict[str, Any] | None:
    if not files.exists(path):
        return None
    checksum, _, body = files.read_all(path).rstrip(b"\n").partition(b"\n")
    if checksum != b"%08x" % crc32c(body):
        raise CorruptRecord("wrong checksum", file=path, expected=f"{crc32c(body):08x}", found=repr(checksum[:8]))
    try:
        content = decode_json_object(body)
    except CorruptRecord as error:
        raise error.in_file(path) from None
    if content.get("version") != _VERSION:
        raise CorruptRecord("a file of another version", file=path, expected=_VERSION, found=content.get("version"))
    return content
