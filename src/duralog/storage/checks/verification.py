"""Checks a log directory, or one partition's folder, by Kafka's rules. Reads everything, changes nothing.

    for partition in Verification("data").run(): partition.errors

Findings are values (`CorruptRecord`: file, position, expected, found); notes are not errors. Several threads read the
logs, in independent chains of segments: the kernels release the GIL. A caller with other workers than threads gives
them the `work`, and passes their results to `conclude`: work and results can be pickled, and the report is the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field

from duralog.errors import CorruptRecord, DuralogError, UnknownTopic
from duralog.format.filenames import (
    PARTITION_METADATA,
    REMOTE_INDEX_CACHE_FOLDER,
    FolderState,
    PartitionFolder,
    is_log_directory,
    parse_partition_folder,
)
from duralog.format.index_entries import DEFAULT_INTERVAL_BYTES
from duralog.notebook.notebook_tables import verification_html
from duralog.storage.checks.chain import Advance, Chain, Checked, CheckedCounts, CheckOptions
from duralog.storage.checks.checked_files import LOCAL_FILES, CheckedFiles
from duralog.storage.checks.directory import DirectoryCheck
from duralog.storage.checks.findings import Note
from duralog.storage.checks.partition import PartitionCheck, PartitionReport
from duralog.storage.disk.found_files import Content, FoundFile

DEFAULT_THREADS = 2
_POLL_SECONDS = 0.1

ShowVerification = Callable[[int, str], None]
"""Called now and then, in the calling thread, with the total of bytes read and the name of the next partition."""


@dataclass(slots=True)
class VerifiedTotals:
    partitions: int = 0
    counts: CheckedCounts = field(default_factory=CheckedCounts)
    errors: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, object]:
        return {
            "partitions": self.partitions,
            **self.counts.to_dict(),
            "seconds": round(self.seconds, 3),
            "findings": self.errors,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainWork:
    """A chain of segments to be checked by any worker."""

    name: str
    """Of the partition's folder."""
    chain: Chain
    options: CheckOptions

    size_bytes: int
    """Of its logs."""

    def check(self, advance: Advance, source: CheckedFiles = LOCAL_FILES) -> Checked:
        return self.chain.check(self.options, advance, source)


class _Stopped(Exception):
    """The result is no longer needed."""


class Verification:
    """One check of a directory. `run` yields each partition; `errors` and `notes` are the directory's own."""

    def __init__(
        self,
        path: str,
        *,
        topics: Collection[str] | None = None,
        partition: int | None = None,
        threads: int = DEFAULT_THREADS,
        interval_bytes: int | None = None,
        decode: bool = False,
        source: CheckedFiles = LOCAL_FILES,
    ) -> None:
        """Lists the folders and reads what is small. `topics` and `partition` choose among a directory's partitions.

        With `interval_bytes`, indexes must be just what the rule gives for it. With `decode`, every record is unpacked.
        """
        self.path = path
        self.totals = VerifiedTotals()
        self.reports: list[PartitionReport] = []
        """Of the partitions that are done."""
        self.errors: Sequence[CorruptRecord] = ()
        self.notes: Sequence[Note] = ()
        self._threads = threads
        self._interval_bytes = interval_bytes
        self._decode = decode
        self._directory: DirectoryCheck | None = None
        self._is_whole = topics is None and partition is None
        self._bytes_done = 0
        self._counting = threading.Lock()
        self._is_stopping = threading.Event()
        self._source = source
        files, folders = source.look_into(path)
        has_logs = any(file.content is Content.LOG for file in files)
        # What is called .log may lie in a log directory, too, and be anything.
        has_partitions = any(parse_partition_folder(os.path.basename(os.path.normpath(folder))) for folder in folders)
        is_directory = any(file.content is Content.META_PROPERTIES for file in files)
        # A log directory may be called `broker-1`, too.
        is_named = parse_partition_folder(os.path.basename(os.path.abspath(path))) is not None
        is_partition = has_logs and is_named and not is_directory
        is_partition |= not has_partitions and (has_logs or (is_named and not is_directory))
        if is_partition:
            folders = [path]
        else:
            self._directory = DirectoryCheck(path, files, source)
        checks = list(self._partitions(folders, topics, partition))
        if not any(check.is_partition for check in checks) and not self._is_log_directory(files, folders):
            raise DuralogError(
                f"{path}: no log files in here: give a log directory or a partition folder such as orders-0"
            )
        self._checks = list(self._without_other_folders(checks))
        self._refuse_missing(topics, partition)

    @property
    def size_bytes(self) -> int:
        """Of all logs that will be read."""
        return sum(check.size_bytes for check in self._checks)

    @property
    def partitions(self) -> int:
        """The number of partitions to check."""
        return len(self._checks)

    def run(self, show: ShowVerification | None = None) -> Iterator[PartitionReport]:
        """Check partition after partition, once. Afterwards `totals`, `errors` and `notes` are complete."""
        started = time.monotonic()
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="duralog-verify")
        try:
            waiting = [(work.name, pool.submit(work.check, self._advance, self._source)) for work in self.work()]
            yield from self.conclude(self._wait(future, name, show) for name, future in waiting)
        finally:
            self._is_stopping.set()
            pool.shutdown(cancel_futures=True)
        self.totals.seconds = time.monotonic() - started

    def work(self) -> list[ChainWork]:
        """All that is to be read, partition after partition."""
        return [
            ChainWork(
                name=os.path.basename(check.folder),
                chain=chain,
                options=self._options(check),
                size_bytes=sum(self._source.size_of(log.path) for log in chain.logs),
            )
            for check in self._checks
            for chain in check.chains
        ]

    def conclude(self, checked: Iterable[Checked]) -> Iterator[PartitionReport]:
        """What becomes of the `work`, whose results come in its order. Asks for them as it needs them."""
        results = iter(checked)
        for check in self._checks:
            report = check.finish([next(results) for _ in check.chains])
            self.reports.append(report)
            self.totals.partitions += 1
            self.totals.counts.add(report.counts)
            self.totals.errors += report.error_count
            yield report
        if self._directory is not None:
            if self._is_whole:
                self._directory.finish(self.reports)
            self.errors, self.notes = self._directory.findings.errors, self._directory.findings.notes
            self.totals.errors += self._directory.findings.count

    def _repr_html_(self) -> str:
        return verification_html(str(self.path), self.reports, self.totals.errors)

    def _wait(self, future: Future[Checked], name: str, show: ShowVerification | None) -> Checked:
        while True:
            try:
                checked = future.result(_POLL_SECONDS)
            except NotYet:
                if show is not None:
                    show(self._bytes_done, name)
                continue
            if show is not None:
                show(self._bytes_done, name)
            return checked

    def _advance(self, read_bytes: int) -> None:
        """Called by the threads that read."""
        if self._is_stopping.is_set():
            raise _Stopped
        with self._counting:
            self._bytes_done += read_bytes

    def _options(self, check: PartitionCheck) -> CheckOptions:
        if self._interval_bytes is not None:
            return CheckOptions(interval_bytes=self._interval_bytes, exact_indexes=True, decode=self._decode)
        interval_bytes = DEFAULT_INTERVAL_BYTES
        if self._directory is not None and check.partition is not None:
            interval_bytes = self._directory.index_interval_bytes(check.partition.topic)
        return CheckOptions(interval_bytes=interval_bytes, decode=self._decode)

    def _refuse_missing(self, topics: Collection[str] | None, number: int | None) -> None:
        """What was asked for by name must be there."""
        found = {check.partition.topic for check in self._checks if check.partition is not None}
        missing = sorted(set(topics) - found) if topics is not None else []
        if number is not None and topics is None and not self._checks:
            missing = ["any topic"]
        if missing:
            which = "" if number is None else f"{number} "
            raise UnknownTopic(f"{self.path}: there is no partition {which}of {', '.join(missing)}")

    def _partitions(
        self, folders: Sequence[str], topics: Collection[str] | None, number: int | None
    ) -> Iterator[PartitionCheck]:
        """List the chosen folders and read what is small in them, several at a time."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="duralog-list") as pool:
            chosen = list(self._chosen(folders, topics, number))
            listed = [(folder, pool.submit(PartitionCheck, folder, found, self._source)) for folder, found in chosen]
            for folder, check in listed:
                try:
                    yield check.result()
                except OSError as error:
                    if self._directory is None:
                        raise
                    self._directory.cannot_read(folder, error)

    def _is_log_directory(self, files: Sequence[FoundFile], folders: Sequence[str]) -> bool:
        if self._directory is None:
            return False
        by_name = {os.path.basename(os.path.normpath(folder)): folder for folder in folders}

        def names_in(name: str) -> list[str]:
            try:
                return [file.name for file in self._source.look_into(by_name[name])[0]]
            except OSError:
                return [PARTITION_METADATA]  # It may be a partition, and is a finding already.

        names = [*(file.name for file in files), *by_name]
        return is_log_directory(names, lambda name: names_in(name) if name in by_name else ())

    def _without_other_folders(self, checks: Sequence[PartitionCheck]) -> Iterator[PartitionCheck]:
        """Without folders that are only named like partitions. One that lost its log is a finding."""
        directory = self._directory
        if directory is None:
            yield from checks
            return
        # As `LogDirectory.are_partitions`: of a topic that the metadata does not know, one folder speaks for all.
        found = {check.partition.topic for check in checks if check.partition is not None and check.is_partition}
        found -= directory.known_topics
        for check in checks:
            named_by = directory.named_by(check.partition)
            if not check.has_logs and named_by is not None:
                error = CorruptRecord(f"the partition has no log, though {named_by} names it", file=check.folder)
                check.findings.report(error)
            elif not check.is_partition and (check.partition is None or check.partition.topic not in found):
                text = "named like a partition, but without log files: not checked"
                directory.findings.note(check.folder, text)
                continue
            yield check

    def _chosen(
        self, folders: Sequence[str], topics: Collection[str] | None, number: int | None
    ) -> Iterator[tuple[str, PartitionFolder | None]]:
        for folder in folders:
            name = os.path.basename(os.path.abspath(folder))
            partition = parse_partition_folder(name)
            if partition is None and self._directory is not None:
                if name != REMOTE_INDEX_CACHE_FOLDER and self._is_whole:
                    self._directory.findings.note(
                        folder, "its name is not that of a partition: Kafka would refuse to start"
                    )
                continue
            if partition is not None and partition.state is FolderState.DELETED:
                if self._directory is not None:
                    self._directory.findings.note(folder, "of a deleted topic, about to be removed: not checked")
                continue
            is_chosen = topics is None or (partition is not None and partition.topic in topics)
            is_chosen &= number is None or (partition is not None and partition.partition == number)
            if is_chosen:
                yield folder, partition
