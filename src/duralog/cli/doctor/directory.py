"""Checks a log directory: its contents, the process that holds it, how it was closed, and its timestamps.

It lists names and sizes, and reads the last entry of the newest time index of each partition. No log is opened: a
directory of any size takes a moment, and a running broker is not disturbed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from duralog.cli.doctor.check import Check, Subject
from duralog.cli.doctor.machine import Machine
from duralog.cli.voice.tables import plural, size_text
from duralog.config.error_text import describe, printable
from duralog.config.times import format_time
from duralog.format.filenames import (
    CLEAN_SHUTDOWN,
    LOCK,
    FileKind,
    FileState,
    FolderState,
    has_partition_files,
    parse_partition_folder,
    parse_segment_file,
)
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.layout import TIME_INDEX_ENTRY
from duralog.storage.disk.file_source import FileSource

_AHEAD_MS = 3_600_000
"""Kafka's default of `message.timestamp.after.max.ms`."""
_EARLIEST_NOW_MS = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""This code is newer."""

_DIRECTORY = Subject("directory", "one process writes to it, and must be able to read and write every file")
_LOCK = Subject("in use by", "commands that change files refuse while another process holds the directory")
_CLOSED = Subject(
    "closed", "after a clean stop the next start has nothing to check; after a crash it reads what was not flushed"
)
_CLOCK = Subject(
    "clock", "retention.ms, lookups by time and timestamps that a client leaves out use the clock of this machine"
)


@dataclass(slots=True)
class DirectoryFacts:
    path: str
    """Absolute, without links. If the directory does not exist, the folder that it will be created in."""
    is_there: bool = True
    file_in_the_way: str = ""
    """A file in place of the directory or of one of its parents."""
    partitions: int = 0
    """Without the metadata log."""
    segments: int = 0
    files: int = 0
    log_bytes: int = 0
    is_clean: bool = False
    newest_ms: int = -1
    """The largest timestamp in the time indexes of the newest segments."""
    newest_in: str = ""
    modified_ms: int = -1
    """The last modification of a log file."""
    refused: str = ""
    """The first error of reading a folder or file."""


def read_directory(path: str) -> DirectoryFacts:
    given = os.path.realpath(path)
    facts = DirectoryFacts(given)
    while not os.path.isdir(facts.path):
        facts.is_there = False
        if os.path.exists(facts.path):
            facts.file_in_the_way = facts.path
        facts.path = os.path.dirname(facts.path)
    if not facts.is_there:
        return facts
    facts.is_clean = os.path.exists(f"{given}/{CLEAN_SHUTDOWN}")
    try:
        names = sorted(os.listdir(given))
    except OSError as error:
        facts.refused = describe(error)
        return facts
    for name in names:
        folder = parse_partition_folder(name)
        if folder is None or folder.state is not FolderState.LIVE or folder.topic == CLUSTER_METADATA:
            continue
        if os.path.isdir(f"{given}/{name}"):
            try:
                _read_partition(facts, f"{given}/{name}")
            except OSError as error:
                facts.refused = facts.refused or describe(error)
    return facts


def _read_partition(facts: DirectoryFacts, folder: str) -> None:
    with os.scandir(folder) as listed:
        entries = list(listed)
    if not has_partition_files(entry.name for entry in entries):
        return
    facts.partitions += 1
    facts.files += len(entries)
    newest = -1, ""
    for entry in entries:
        file = parse_segment_file(entry.name)
        if file is None or file.state is not FileState.LIVE:
            continue
        if file.kind is FileKind.LOG:
            status = entry.stat()
            facts.segments += 1
            facts.log_bytes += status.st_size
            facts.modified_ms = max(facts.modified_ms, status.st_mtime_ns // 1_000_000)
        elif file.kind is FileKind.TIME_INDEX:
            newest = max(newest, (file.offset, entry.path))
    if newest[1]:
        last_ms = last_timestamp_ms(newest[1])
        if last_ms > facts.newest_ms:
            facts.newest_ms, facts.newest_in = last_ms, os.path.basename(folder)


def last_timestamp_ms(time_index: str) -> int:
    """The timestamp of the last entry, before the zeros of a preallocated file; -1 if there is none."""
    size = TIME_INDEX_ENTRY.size
    with FileSource(time_index) as source:

        def timestamp(number: int) -> int:
            return int.from_bytes(source.read(number * size, 8), "big", signed=True)

        low, high = 0, source.size // size
        while low < high:
            middle = (low + high) // 2
            if timestamp(middle) > 0:
                low = middle + 1
            else:
                high = middle
        return timestamp(low - 1) if low else -1


def directory_checks(machine: Machine, facts: DirectoryFacts) -> Iterator[Check]:
    yield _directory(machine, facts)
    if facts.is_there and facts.partitions:
        holder = machine.holder_of(f"{facts.path}/{LOCK}")
        yield _LOCK.ok(printable(holder) if holder else "no process, as far as the system reports")
        yield _closed(facts, holder)
    yield _clock(machine, facts)


def _directory(machine: Machine, facts: DirectoryFacts) -> Check:
    path = printable(facts.path)
    if facts.file_in_the_way:
        return _DIRECTORY.fail(
            f"{printable(facts.file_in_the_way)} is a file, not a directory",
            "give the log directory, or the folder that the file is in",
        )
    if not facts.is_there:
        if not machine.may_write(facts.path):
            return _DIRECTORY.fail(
                f"does not exist, and this user cannot create it in {path}", f"run it as a user who may write to {path}"
            )
        return _DIRECTORY.ok(f"does not exist yet: duralog serve creates it, in {path}")
    found = (
        f"{path}: {plural(facts.partitions, 'partition')}, {plural(facts.segments, 'segment')},"
        f" {size_text(facts.log_bytes)} of logs"
    )
    owner = f"chown -R $(id -un) {path}, or run it as the user who owns it"
    if facts.refused:
        return _DIRECTORY.fail(f"{found}; {printable(facts.refused)}", owner)
    if not machine.may_write(facts.path):
        return _DIRECTORY.warn(f"{found}; this user can only read it", owner)
    return _DIRECTORY.ok(found)


def _closed(facts: DirectoryFacts, holder: str | None) -> Check:
    if facts.is_clean:
        return _CLOSED.ok("cleanly")
    if holder:
        return _CLOSED.ok("not yet: it is in use")
    return _CLOSED.warn(
        "not cleanly: there was a crash, or it is a copy of a directory in use",
        f"nothing: the next start recovers it. To see first what is wrong: duralog verify {printable(facts.path)}",
    )


def _clock(machine: Machine, facts: DirectoryFacts) -> Check:
    now = machine.now_ms
    set_clock = "timedatectl set-ntp true, then check timedatectl timesync-status"
    if now < _EARLIEST_NOW_MS:
        return _CLOCK.fail(f"it is {format_time(now)} here: the clock is wrong", set_clock)
    if facts.modified_ms > now + _AHEAD_MS:
        return _CLOCK.warn(
            f"a log was written at {format_time(facts.modified_ms)}, which is in the future: the clock was set back",
            set_clock,
        )
    if facts.newest_ms > now + _AHEAD_MS:
        return _CLOCK.warn(
            f"{printable(facts.newest_in)} has records of {format_time(facts.newest_ms)}, which is in the future:"
            " retention.ms keeps their segments until then",
            "set the clock of their producer; message.timestamp.after.max.ms of the topic refuses such records",
        )
    newest = f"; the newest records are of {format_time(facts.newest_ms)}" if facts.newest_ms >= 0 else ""
    return _CLOCK.ok(f"{format_time(now)}{newest}")
