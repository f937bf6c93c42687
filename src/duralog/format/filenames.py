"""The names of files and folders in a log directory: the one place that makes and parses them.

Everything here is plain text; nothing touches a disk. A parser answers None for a name that is not of its kind,
so that a directory listing can be sorted by asking. What a parser accepts, its maker gives back letter for
letter, except for a deleted folder whose topic was cut to fit the longest name that file systems allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
QUORUM_STATE = "quorum-state"
BOOTSTRAP_SNAPSHOT = "bootstrap.checkpoint"
CLUSTER_METADATA_FOLDER = "__cluster_metadata-0"
REMOTE_INDEX_CACHE_FOLDER = "remote-log-index-cache"

OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
"""The files that hold one offset for each partition."""

HALF_WRITTEN_SUFFIX = ".tmp"
"""What a small file is called until it is complete and renamed into place."""

LONGEST_TOPIC_NAME = 249
LONGEST_FOLDER_NAME = 255

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


SINK_JOURNAL = "duralog-sink.journal"
"""What a write from Spark is about to append. Like all of the sink's names a file's, since Kafka does not start on a
directory with a folder in it that belongs to no partition. Files that it does not know it leaves alone."""
SINK_COMMITTED = "duralog-sink.committed"
"""The writes from Spark that must not happen twice."""
SCRAM_SALT_KEY = "duralog-scram-salts.key"
"""What the broker makes salts of unknown users from."""


class FileKind(Enum):
    """What a segment's file holds; the value is the file's suffix."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"


class FileState(Enum):
    """Where a segment's file is in its life; the value is a second suffix, after the kind's."""

    LIVE = ""
    DELETED = ".deleted"
    """To be removed after a delay, so that readers can finish."""
    CLEANED = ".cleaned"
    """Being written by the cleaner, not complete."""
    SWAP = ".swap"
    """Complete, waiting to replace the segments it was made from."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file named after an offset: a segment's base offset, or the offset a producer snapshot was taken at."""

    offset: int
    kind: FileKind
    state: FileState = FileState.LIVE

    @property
    def name(self) -> str:
        return f"{segment_stem(self.offset)}{self.kind.value}{self.state.value}"


def segment_stem(offset: int) -> str:
    """What the names of all files with this offset begin with."""
    return f"{_checked(offset, _INT64_MAX):020}"


_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)(\.[a-z]+)?")
_KINDS = {kind.value: kind for kind in FileKind}
_STATES = {state.value: state for state in FileState}


def parse_segment_file(name: str) -> SegmentFile | None:
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    offset = int(match[1])
    kind = _KINDS.get(match[2])
    state = _STATES.get(match[3] or "")
    if kind is None or state is None or offset > _INT64_MAX:
        return None
    return SegmentFile(offset, kind, state)


@dataclass(frozen=True, slots=True)
class StagedFileName:
    """A file of batches that one attempt at one task of a Spark write has made, until they are appended."""

    writer: str
    """Which write, or which streaming query: 32 hexadecimal digits."""
    batch: int
    """The micro-batch of a streaming query, else 0."""
    task: int
    attempt: str
    """32 hexadecimal digits that no other attempt has."""

    @property
    def name(self) -> str:
        batch, task = _checked(self.batch, _INT64_MAX), _checked(self.task, _INT32_MAX)
        return f"duralog-sink.{self.writer}.{batch}.{task}.{self.attempt}.staged"


_STAGED_FILE = re.compile(r"duralog-sink\.([0-9a-f]{32})\.(\d{1,19})\.(\d{1,10})\.([0-9a-f]{32})\.staged", re.ASCII)


def parse_staged_file(name: str) -> StagedFileName | None:
    match = _STAGED_FILE.fullmatch(name)
    if match is None or int(match[2]) > _INT64_MAX or int(match[3]) > _INT32_MAX:
        return None
    staged = StagedFileName(match[1], int(match[2]), int(match[3]), match[4])
    return staged if staged.name == name else None


class SnapshotState(Enum):
    """Where a KRaft metadata snapshot is in its life; the value is what its name ends in."""

    COMPLETE = ".checkpoint"
    DELETED = ".checkpoint.deleted"
    PARTIAL = ".checkpoint.part"
    """Being written. A random word before the suffix distinguishes attempts."""


@dataclass(frozen=True, slots=True)
class MetadataSnapshotFile:
    """A snapshot of the cluster metadata: all records before `end_offset`."""

    end_offset: int
    epoch: int
    state: SnapshotState = SnapshotState.COMPLETE

    @property
    def name(self) -> str:
        """The file's name; of a partial snapshot, the name without its random word."""
        end_offset = _checked(self.end_offset, _INT64_MAX)
        return f"{end_offset:020}-{_checked(self.epoch, _INT32_MAX):010}{self.state.value}"


_METADATA_SNAPSHOT_FILE = re.compile(r"([0-9]{20})-([0-9]{10})(-[^.]*)?(\.checkpoint(?:\.deleted|\.part)?)")


def parse_metadata_snapshot_file(name: str) -> MetadataSnapshotFile | None:
    match = _METADATA_SNAPSHOT_FILE.fullmatch(name)
    if match is None:
        return None
    end_offset, epoch, state = int(match[1]), int(match[2]), SnapshotState(match[4])
    if end_offset > _INT64_MAX or epoch > _INT32_MAX or (match[3] and state is not SnapshotState.PARTIAL):
        return None
    return MetadataSnapshotFile(end_offset, epoch, state)


class FolderState(Enum):
    """What a partition's folder is; the value is its suffix, after a dot and a 32-digit hexadecimal id."""

    LIVE = ""
    DELETED = "-delete"
    """The topic is deleted; the folder goes after a delay."""
    FUTURE = "-future"
    """A replica that is being moved here from another log directory."""
    STRAY = "-stray"
    """A partition that the cluster metadata does not place here."""


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    topic: str
    """By the name of the folder. In that of a deleted or stray folder, the topic may be cut off."""
    partition: int
    state: FolderState = FolderState.LIVE
    unique_id: str = ""
    """Distinguishes folders of one partition; empty for a live one."""

    @property
    def name(self) -> str:
        partition = _checked(self.partition, _INT32_MAX)
        if self.state is FolderState.LIVE:
            return f"{self.topic}-{partition}"
        if not _UNIQUE_ID.fullmatch(self.unique_id):
            raise ValueError(f"a unique id is 32 lower-case hexadecimal digits, not {self.unique_id!r}")
        suffix = f"-{partition}.{self.unique_id}{self.state.value}"
        # Kafka cuts the names of deleted and stray folders, but not of future ones.
        topic = self.topic if self.state is FolderState.FUTURE else self.topic[: LONGEST_FOLDER_NAME - len(suffix)]
        return topic + suffix


_UNIQUE_ID = re.compile(r"[0-9a-f]{32}")
_PARTITION_FOLDER = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")
_MARKED_FOLDER = re.compile(r"(.+)\.([0-9a-f]{32})(-delete|-future|-stray)")


def parse_partition_folder(name: str) -> PartitionFolder | None:
    """The partition a folder belongs to. The last hyphen divides topic and partition: both may look alike."""
    marked = _MARKED_FOLDER.fullmatch(name)
    plain, unique_id, suffix = (marked[1], marked[2], marked[3]) if marked else (name, "", "")
    match = _PARTITION_FOLDER.fullmatch(plain)
    if match is None or int(match[2]) > _INT32_MAX or topic_name_fault(match[1]) is not None:
        return None
    return PartitionFolder(match[1], int(match[2]), FolderState(suffix), unique_id)


_DIRECTORY_FILES = frozenset({META_PROPERTIES, CLEAN_SHUTDOWN, BOOTSTRAP_SNAPSHOT, *OFFSET_CHECKPOINTS})
_PARTITION_FILES = frozenset({PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT, QUORUM_STATE})


def has_partition_files(names: Iterable[str]) -> bool:
    """Whether a folder with these files is a partition's. The name of the folder is not enough: `photos-2024`."""
    return any(
        name in _PARTITION_FILES or parse_segment_file(name) or parse_metadata_snapshot_file(name) for name in names
    )


def is_log_directory(names: Collection[str], names_in: Callable[[str], Iterable[str]]) -> bool:
    """Whether a folder with these entries is a log directory. `names_in` lists one of the folders in it.

    It is one if it has a file that belongs to the directory as a whole, or a partition's folder with files of a log.
    """
    return not _DIRECTORY_FILES.isdisjoint(names) or any(
        parse_partition_folder(name) is not None and has_partition_files(names_in(name)) for name in names
    )


_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_fault(topic: str) -> str | None:
    """Why this cannot be a topic's name; None when it can."""
    if topic == "":
        return "a topic's name may not be empty"
    if topic in (".", ".."):
        return f"a topic may not be called {topic!r}"
    if len(topic) > LONGEST_TOPIC_NAME:
        return f"a topic's name may have {LONGEST_TOPIC_NAME} characters at most, this one has {len(topic)}"
    if not _TOPIC_NAME.fullmatch(topic):
        return f"a topic's name is made of ASCII letters, digits, '.', '_' and '-' only, not {topic!r}"
    return None


def collision_key(topic: str) -> str:
    """Kafka refuses a new topic whose key equals an existing topic's: their metrics would have one name."""
    return topic.replace(".", "_")


def _checked(number: int, largest: int) -> int:
    if not 0 <= number <= largest:
        raise ValueError(f"a file name cannot hold {number}: it must be from 0 to {largest}")
    return number
