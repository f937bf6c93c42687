"""Whether a log directory, or one partition's folder, is what Kafka's rules demand. Reads everything, changes nothing.

    for partition in Verification("data").run(): partition.errors

Findings are values (`CorruptRecord`: file, position, expected, found); notes are what is good to know and not wrong.
Logs are read by several threads, in chains of segments that need nothing of each other: the kernels that go over the
bytes let go of Python's lock.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field

from duralog.errors import CorruptRecord, DuralogError, UnknownTopic
from duralog.format.filenames import REMOTE_INDEX_CACHE_FOLDER, FolderState, parse_partition_folder
from duralog.format.index_entries import DEFAULT_INTERVAL_BYTES
from duralog.storage.chain_check import Checked, Counts, Options
from duralog.storage.directory_check import DirectoryCheck
from duralog.storage.files import Content, look_into
from duralog.storage.findings import Note, unreadable
from duralog.storage.partition_check import PartitionCheck, PartitionReport

DEFAULT_THREADS = 2
_LOOK_SECONDS = 0.1

Show = Callable[[int, str], None]
"""Told now and then, in the calling thread, how many bytes have been read in all, and which partition is next."""


@dataclass(slots=True)
class Totals:
    partitions: int = 0
    counts: Counts = field(default_factory=Counts)
    errors: int = 0
    seconds: float = 0.0


class _Stopped(Exception):
    """Nobody waits for the result any more."""


class Verification:
    """One look at a directory. `run` yields partition after partition, `errors` and `notes` are the directory's own."""

    def __init__(
        self,
        path: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        threads: int = DEFAULT_THREADS,
        interval_bytes: int | None = None,
        decode: bool = False,
    ) -> None:
        """Lists the folders and reads what is small. `topic` and `partition` choose among a directory's partitions.

        With `interval_bytes`, indexes must be just what the rule gives for it. With `decode`, every record is unpacked.
        """
        self.path = path
        self.totals = Totals()
        self.errors: Sequence[CorruptRecord] = ()
        self.notes: Sequence[Note] = ()
        self._threads = threads
        self._interval_bytes = interval_bytes
        self._decode = decode
        self._directory: DirectoryCheck | None = None
        self._is_whole = topic is None and partition is None
        self._bytes_done = 0
        self._counting = threading.Lock()
        self._is_stopping = threading.Event()
        files, folders = look_into(path)
        has_logs = any(file.content is Content.LOG for file in files)
        is_partition = has_logs or parse_partition_folder(os.path.basename(os.path.abspath(path))) is not None
        if is_partition:
            folders = [path]
        else:
            self._directory = DirectoryCheck(path, files)
        self._checks = list(self._partitions(folders, topic, partition))
        if not self._checks and not self._is_whole:
            wanted = "any topic" if topic is None else topic
            raise UnknownTopic(
                f"{path}: there is no partition {'' if partition is None else f'{partition} '}of {wanted}"
            )
        if not self._checks and self._is_whole and all(file.content is Content.OTHER for file in files):
            raise DuralogError(
                f"{path}: no files of a log in here: give a log directory or a partition folder such as orders-0"
            )

    @property
    def size_bytes(self) -> int:
        """Of all logs that will be read."""
        return sum(check.size_bytes for check in self._checks)

    def run(self, show: Show | None = None) -> Iterator[PartitionReport]:
        """Check partition after partition, once. Afterwards `totals`, `errors` and `notes` are complete."""
        started = time.monotonic()
        reports: list[PartitionReport] = []
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="duralog-verify")
        try:
            waiting = [
                (check, [pool.submit(chain.check, self._options(check), self._advance) for chain in check.chains])
                for check in self._checks
            ]
            for check, futures in waiting:
                report = check.finish([self._wait(future, check, show) for future in futures])
                reports.append(report)
                self.totals.partitions += 1
                self.totals.counts.add(report.counts)
                self.totals.errors += report.error_count
                yield report
        finally:
            self._is_stopping.set()
            pool.shutdown(cancel_futures=True)
        if self._directory is not None:
            if self._is_whole:
                self._directory.finish(reports)
            self.errors, self.notes = self._directory.findings.errors, self._directory.findings.notes
            self.totals.errors += self._directory.findings.count
        self.totals.seconds = time.monotonic() - started

    def _wait(self, future: Future[Checked], check: PartitionCheck, show: Show | None) -> Checked:
        while True:
            try:
                checked = future.result(_LOOK_SECONDS)
            except NotYet:
                if show is not None:
                    show(self._bytes_done, os.path.basename(check.folder))
                continue
            if show is not None:
                show(self._bytes_done, os.path.basename(check.folder))
            return checked

    def _advance(self, read_bytes: int) -> None:
        """Called by the threads that read."""
        if self._is_stopping.is_set():
            raise _Stopped
        with self._counting:
            self._bytes_done += read_bytes

    def _options(self, check: PartitionCheck) -> Options:
        if self._interval_bytes is not None:
            return Options(interval_bytes=self._interval_bytes, exact_indexes=True, decode=self._decode)
        interval_bytes = DEFAULT_INTERVAL_BYTES
        if self._directory is not None and check.partition is not None:
            interval_bytes = self._directory.index_interval_bytes(check.partition.topic)
        return Options(interval_bytes=interval_bytes, decode=self._decode)

    def _partitions(self, folders: Sequence[str], topic: str | None, number: int | None) -> Iterator[PartitionCheck]:
        for folder in folders:
            name = os.path.basename(os.path.abspath(folder))
            partition = parse_partition_folder(name)
            if partition is None and self._directory is not None:
                if name != REMOTE_INDEX_CACHE_FOLDER and self._is_whole:
                    self._directory.findings.note(folder, "no partition, by its name: Kafka would refuse to start")
                continue
            if partition is not None and partition.state is FolderState.DELETED:
                if self._directory is not None:
                    self._directory.findings.note(folder, "of a deleted topic, about to be removed: not checked")
                continue
            is_chosen = topic is None or (partition is not None and partition.topic == topic)
            is_chosen &= number is None or (partition is not None and partition.partition == number)
            if is_chosen:
                try:
                    yield PartitionCheck(folder, partition)
                except OSError as error:
                    if self._directory is None:
                        raise
                    self._directory.findings.report(unreadable(folder, error))
