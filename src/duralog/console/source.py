"""The protocol of a source of facts for the pages: a log directory, a broker, or both.

What must always be true: any thread may call any method at any time; only `compact` changes files; memory is bounded
for any log; a missing or damaged source is reported in `Overview.notes` or in a `trouble`, never by a crash of the
page.

Methods are of two kinds, named by the first word of the docstring:

- **Quick**: answers from the newest snapshot in memory. Call it while building a page.
- **Reads**: opens files or asks a broker. Call it in a worker thread, never on the event loop.

All raise `UnknownTopic` for what does not exist, and other `DuralogError`s, each one sentence for people, for what
cannot be done now. A source without files raises `NotFromHere` for what only files have. `OSError`s are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from duralog.console.facts.health import CleanerFacts, QuarantineEntry
from duralog.console.facts.overview import GroupDetails, Overview, PartitionRow
from duralog.console.facts.partitions import PartitionFacts, SegmentScan
from duralog.console.facts.payloads import TopicFormats
from duralog.console.facts.records import RecordPage, SearchProgress, ShownRecord
from duralog.console.facts.runs import CompactionResult, CompactionView, Rehearsal, VerifyView
from duralog.console.facts.schemas import SubjectsView
from duralog.console.facts.topic_records import MatchProgress, PlacedRecord, WantedRecords
from duralog.errors import DuralogError

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_PAGE_RECORDS = 50
MOST_PAGE_RECORDS = 1_000


def always_wanted() -> bool:
    """The `is_wanted` of a read that is never cancelled."""
    return True


class NotFromHere(DuralogError):
    """This needs a log directory, and the console has only a broker. The message says how to start it with one."""


class ChangesNotAllowed(DuralogError):
    """The console was started without `--allow-changes`; the message has the command to type."""


class Busy(DuralogError):
    """One run at a time: another one is under way."""


class KeySearch(Protocol):
    """A search on its own thread. It need not be waited for or stopped, but `stop` saves work."""

    def progress(self) -> SearchProgress:
        """Quick. Poll it while its state is `running`."""

    def found(self) -> tuple[ShownRecord, ...]:
        """Quick. By offset; a bounded number. If there are more, the search stops; another one can start from there."""

    def stop(self) -> None:
        """Quick. Ends soon; what was found below the offset of its progress stays."""


class CompactionRun(Protocol):
    """A compaction on its own thread."""

    def progress(self) -> CompactionView:
        """Quick."""

    @property
    def result(self) -> CompactionResult | None:
        """Quick. None until the state is `done`."""

    @property
    def error(self) -> str | None:
        """Quick. A sentence, if the state is `failed`."""


class VerifyRun(Protocol):
    """A check of files on its own thread."""

    def progress(self) -> VerifyView:
        """Quick. Also the findings so far."""

    def stop(self) -> None:
        """Quick. Ends soon; findings stay."""


class TopicSearch(Protocol):
    """A search on its own thread. It need not be waited for or stopped, but `stop` saves work."""

    def progress(self) -> MatchProgress:
        """Quick."""

    def found(self) -> tuple[PlacedRecord, ...]:
        """Quick. The first matches so far, in the wanted order."""

    def stop(self) -> None:
        """Quick. Ends soon; what was found stays."""


class TopicSearches(Protocol):
    def start(self, wanted: WantedRecords) -> TopicSearch:
        """Quick. A bounded number run at a time: raises `Busy`."""

    def matching(
        self, wanted: WantedRecords, report: Callable[[MatchProgress], None], is_stopped: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        """Reads. All matches by partition and offset, with the columns of `RECORD_SCHEMA`; for downloads.

        Damage, and `is_stopped`, raise a `DuralogError`. A bounded number run at a time: raises `Busy`.
        """


class DownloadFile(Protocol):
    """A file that is written while it is sent."""

    @property
    def media_type(self) -> str: ...

    def feed(self, records: pa.RecordBatch) -> bytes:
        """The next complete part of the file."""

    def finish(self) -> bytes:
        """The rest of the file."""


class Payloads(Protocol):
    """Keys and values, decoded by schemas. Formats are detected; if that is not certain, the bytes are kept, with the
    reason.
    """

    def decoded(self, topic: str, partition: int, records: Sequence[ShownRecord]) -> tuple[ShownRecord, ...]:
        """Reads. The same records, decoded if possible. Never raises: the reason is in the formats."""

    def formats(self, topic: str) -> TopicFormats:
        """Reads. Never raises."""

    def decoded_file(self, topic: str, extension: str) -> DownloadFile:
        """Reads. A download of a topic, with decoded keys and values. Raises `DuralogError`."""

    def subjects(self) -> SubjectsView:
        """Reads. All subjects of the topic `_schemas`, or of the registry."""

    def forget(self) -> None:
        """Quick. Forget the schemas, so that the next use reads them again."""


class Source(Protocol):
    @property
    def payloads(self) -> Payloads:
        """Quick. How keys and values are decoded, and the schemas for that."""

    @property
    def topic_searches(self) -> TopicSearches:
        """Quick. Searches and downloads of records of whole topics."""

    @property
    def has_files(self) -> bool:
        """Quick. Whether there are segments, scans, explanations, compactions, checks and a quarantine to show."""

    def overview(self) -> Overview:
        """Quick. The newest snapshot: the same object until the next one, so that a page can tell if it is new."""

    def topic(self, topic: str) -> tuple[PartitionRow, ...]:
        """Quick. By partition. Raises `UnknownTopic`."""

    def partition(self, topic: str, partition: int) -> PartitionFacts:
        """Reads. Refreshes the whole directory first, or asks the broker for the offsets.

        A log that cannot be opened raises a `DuralogError` that says why.
        """

    def scan_segment(
        self, topic: str, partition: int, base_offset: int, *, is_wanted: Callable[[], bool] = always_wanted
    ) -> SegmentScan:
        """Reads, up to the whole segment, which may take seconds; stops if it is no longer wanted. Cached until the
        file changes.
        """

    def known_scan(self, topic: str, partition: int, base_offset: int) -> SegmentScan | None:
        """Quick. The cached result of `scan_segment`, if the file has not changed."""

    def records(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        time_ms: int | None = None,
        limit: int = DEFAULT_PAGE_RECORDS,
        backwards: bool = False,
        committed_only: bool = False,
    ) -> RecordPage:
        """Reads. A page from the offset on, or from the first record at this time or later.

        With `backwards`, the records below the offset or time; with neither offset nor time, those at the end of the
        log, otherwise those at its start. An offset outside of the log gives the nearest page, with a note. Markers and
        records of aborted and open transactions are there, marked, unless `committed_only`.
        """

    def record(self, topic: str, partition: int, offset: int) -> ShownRecord | None:
        """Reads. One record with all of its key, value and headers, up to 8 MiB each; None if the offset is a gap."""

    def tail(self, topic: str, partition: int, from_offset: int, limit: int = 200) -> RecordPage:
        """Reads. Records from `next_offset` of the last page on. If there are more than the limit, the newest."""

    def find_key(
        self, topic: str, partition: int, key: bytes, *, from_offset: int | None = None, limit: int = 100
    ) -> KeySearch:
        """Quick. Starts a search for all records with just this key, oldest first. A bounded number run at a time."""

    def rehearsal(self, topic: str, partition: int, *, is_wanted: Callable[[], bool] = always_wanted) -> Rehearsal:
        """Reads the whole log, which may take seconds; stops if it is no longer wanted. Raises `InvalidConfig` if not
        compacted.
        """

    def compaction_command(self, topic: str, partition: int) -> str:
        """Quick. The command line that does what `compact` does."""

    def why_no_compaction(self, topic: str, partition: int) -> str | None:
        """Quick. Why `compact` would refuse now: not allowed, the directory is locked, one runs. None if it would."""

    def compact(self, topic: str, partition: int) -> CompactionRun:
        """Starts a compaction. Raises `ChangesNotAllowed`, `StoreLocked`, `Busy`, `InvalidConfig` (not compacted)."""

    def compaction(self) -> CompactionRun | None:
        """Quick. The latest run of this process; None if there was none."""

    def start_verify(self, topic: str | None = None, partition: int | None = None) -> VerifyRun:
        """Starts a check, as `duralog verify` does it. Changes nothing. Raises `Busy` while one runs."""

    def verification(self) -> VerifyRun | None:
        """Quick. The latest check; None if there was none."""

    def quarantine(self) -> tuple[QuarantineEntry, ...]:
        """Reads. All entries of all partitions, the newest first, bounded."""

    def cleaner(self) -> CleanerFacts:
        """Quick for a directory's part; with a metrics address, as of the last refresh."""

    def group(self, name: str) -> GroupDetails:
        """Quick. Raises `UnknownGroup`."""

    def step(self) -> None:
        """Reads. One refresh, now, in the calling thread. The background thread does just this, every two seconds."""

    def close(self) -> None:
        """Ends threads and runs. A compaction under way is waited for: it cannot be left in the middle."""


class UnknownGroup(DuralogError):
    """There is no such group."""
