"""What `duralog doctor` says about a log directory: what is in it, who has it, how it was closed, and its times.

Names and sizes are listed, and the last entry of each newest time index is read: no log is opened, so that a directory
of any size takes a moment, and one that a broker writes to is not disturbed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from duralog.cli.common.failures import describe, printable
from duralog.cli.common.tables import plural, size_text
from duralog.cli.common.times import format_time
from duralog.cli.doctor.check import Check, Subject
from duralog.cli.doctor.machine import Machine
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
"""Kafka's own default of `message.timestamp.after.max.ms` for what a clock may be ahead."""
_EARLIEST_NOW_MS = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""This code is younger."""

_DIRECTORY = Subject("directory", "one process writes to it, and must be able to read and write every file")
_LOCK = Subject("in use by", "commands that change files refuse while somebody else has the directory")
_CLOSED = Subject(
    "closed", "after a clean stop the next start has nothing to check; after a crash it reads what was not flushed"
)
_CLOCK = Subject(
    "clock", "retention.ms, lookups by time and timestamps that a client leaves out go by the clock of this machine"
)


@dataclass(slots=True)
class DirectoryFacts:
    path: str
    """Absolute, without links; of a directory that is not there yet, the folder that it will be made in."""
    is_there: bool = True
    file_in_the_way: str = ""
    """A file where the directory, or a folder above it, would have to be."""
    partitions: int = 0
    """Without the metadata log."""
    segments: int = 0
    files: int = 0
    log_bytes: int = 0
    is_clean: bool = False
    newest_ms: int = -1
    """The largest timestamp that the time indexes of newest segments have."""
    newest_in: str = ""
    modified_ms: int = -1
    """When a file of a log was last written to."""
    refused: str = ""
    """The first folder or file that cannot be read, and why."""


def look_at(path: str) -> DirectoryFacts:
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
                _look_at_partition(facts, f"{given}/{name}")
            except OSError as error:
                facts.refused = facts.refused or describe(error)
    return facts


def _look_at_partition(facts: DirectoryFacts, folder: str) -> None:
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
    """Of the last entry, which a file that is written to has before its zeros; -1 for none."""
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
        yield _LOCK.ok(printable(holder) if holder else "nobody, as far as the system tells")
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
                f"is not there, and this user cannot make it in {path}", f"run it as a user who may write to {path}"
            )
        return _DIRECTORY.ok(f"is not there yet: duralog serve makes it, in {path}")
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
        return _CLOSED.ok("in order")
    if holder:
        return _CLOSED.ok("not yet: it is in use")
    return _CLOSED.warn(
        "not in order: there was a crash, or it is a copy of a directory in use",
        f"nothing: the next start recovers it. To see before it what is wrong: duralog verify {printable(facts.path)}",
    )


def _clock(machine: Machine, facts: DirectoryFacts) -> Check:
    now = machine.now_ms
    set_clock = "timedatectl set-ntp true, and look at what timedatectl timesync-status says"
    if now < _EARLIEST_NOW_MS:
        return _CLOCK.fail(f"it is {format_time(now)} here: the clock is wrong", set_clock)
    if facts.modified_ms > now + _AHEAD_MS:
        return _CLOCK.warn(
            f"a log was written at {format_time(facts.modified_ms)}, which is in the future: the clock has gone back",
            set_clock,
        )
    if facts.newest_ms > now + _AHEAD_MS:
        return _CLOCK.warn(
            f"{printable(facts.newest_in)} has records of {format_time(facts.newest_ms)}, which is in the future:"
            " retention.ms keeps their segments until then",
            "set the clock of whoever produces them; message.timestamp.after.max.ms of the topic refuses such records",
        )
    newest = f"; the newest records are of {format_time(facts.newest_ms)}" if facts.newest_ms >= 0 else ""
    return _CLOCK.ok(f"{format_time(now)}{newest}")
