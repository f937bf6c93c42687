"""Every exception that duralog raises deliberately.

An error that comes from bytes names the file, the position, what was expected and what was found, so that a user can
act on it without reading source. Code that has only a buffer raises without a file; the code that opened the file adds
it with `CorruptRecord.in_file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum


class DuralogError(Exception):
    """The base of all errors of this package."""


class InvalidRecord(DuralogError):
    """A record or batch that the caller asked to write breaks a rule of the format or of its topic."""

    def __init__(self, reason: str, *, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(reason)
        self.record_errors = tuple(record_errors)
        """If single records are invalid: their index in the batch, and the reason for each."""


class RecordTooLarge(InvalidRecord):
    """A batch is larger than its topic or a segment allows."""


class InvalidTimestamp(InvalidRecord):
    """A record's timestamp is too far from the clock, or of a type that only the log itself may set."""


class OffsetOutOfRange(DuralogError):
    """An offset below the log's start or above its end."""


class InvalidConfig(DuralogError):
    """A config name that does not exist, or a value that it does not allow."""


class StoreLocked(DuralogError):
    """Another process has the directory open for writing."""


class StorageError(DuralogError):
    """A file operation is refused: a full disk, a failing one, missing rights, or files of another process.

    The last case includes a forked child of the process that opened a store, and a store whose lock file was removed.
    """


class MissingExtra(DuralogError):
    """An optional package is not installed."""

    def __init__(self, purpose: str, package: str, *, extra: str) -> None:
        super().__init__(f"{purpose}, duralog needs {package}: pip install 'duralog[{extra}]'")


@contextmanager
def arrow_needed() -> Iterator[None]:
    """Use it around imports that need pyarrow: if it is not installed, the error names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise MissingExtra("for Arrow tables", "pyarrow", extra="arrow") from error


class SchemaError(DuralogError):
    """A schema that cannot be found, parsed, resolved or used, or a registry that does not return it."""


class CorruptPayload(DuralogError):
    """A key or value that does not decode by its schema. The record itself is sound."""


class UnknownTopic(DuralogError):
    """There is no such topic or partition."""


class InvalidAcl(DuralogError):
    """An access control entry, or a filter of entries, that Kafka does not accept."""


class InvalidTopic(DuralogError):
    """A topic's name or number of partitions is not allowed."""


class TopicExists(DuralogError):
    """A topic of this name, or of a colliding one, exists already."""


class ProducerFenced(DuralogError):
    """A newer instance of the producer has taken over, so this one's epoch is refused."""


class OutOfOrderSequence(DuralogError):
    """A batch of an idempotent producer does not follow the last one: something in between is missing."""


class CoordinatorFenced(DuralogError):
    """A newer transaction coordinator has written for this producer, so this one's marker is refused."""


class InvalidTransactionState(DuralogError):
    """A producer's request does not fit the state of its transaction."""


class CompactionStopped(DuralogError):
    """The compaction ended early because the log changed or the compaction was stopped. Nothing is lost; it can be
    repeated.
    """


class Fault(IntEnum):
    """Why bytes were refused. The kernels return these numbers; the reference raises them in `CorruptRecord`.

    Both sides check in the same order, so that they refuse the same bytes for the same reason.
    """

    NONE = 0
    PARTIAL_BATCH = 1
    """The batch runs past the end of the bytes: ordinary at the end of a file."""
    BATCH_LENGTH = 2
    """The length field is too small for the batch's format."""
    UNKNOWN_MAGIC = 3
    CRC_MISMATCH = 4
    UNKNOWN_CODEC = 5
    DECOMPRESSION = 6
    """The codec refused the bytes."""
    TOO_LARGE = 7
    """The bytes unpack to more than the ceiling allows."""
    RECORD_COUNT = 8
    """A negative count, or one that the bytes cannot hold."""
    VARINT = 9
    """A variable-length integer that is too long, or that the bytes end inside of."""
    RECORD_LENGTH = 10
    """A record's length is negative or runs past its batch."""
    FIELD_LENGTH = 11
    """A key, a value or a header runs past its record."""
    HEADER_COUNT = 12
    """A negative count of headers, or one that the record cannot hold."""
    HEADER_KEY = 13
    """A header without a key."""
    RECORD_NOT_CONSUMED = 14
    """The fields end before or after the record's declared end."""
    TRAILING_BYTES = 15
    """Bytes are left over after the last record of a batch."""
    NESTED_COMPRESSION = 16
    """A compressed message inside a compressed message."""
    INNER_MAGIC = 17
    """A message of another format version inside a compressed message."""
    INNER_OFFSET = 18
    """A compressed message's offset is smaller than its last inner one's."""
    FIELD_VALUE = 19
    """A field holds a value that its format does not allow."""
    UNLOADABLE = 20
    """A record of one of Kafka's own topics that no coordinator can load. Its batch is sound."""


class CorruptRecord(DuralogError):
    """Bytes that are not what their format demands."""

    def __init__(
        self,
        reason: str,
        *,
        fault: Fault = Fault.FIELD_VALUE,
        file: str | None = None,
        position: int | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        self.reason = reason
        self.fault = fault
        self.file = file
        self.position = position
        self.expected = expected
        self.found = found
        super().__init__(reason)

    def in_file(self, file: str, base_position: int = 0) -> CorruptRecord:
        """The same error, for a file in which the buffer begins at `base_position`."""
        position = None if self.position is None else self.position + base_position
        return CorruptRecord(
            self.reason,
            fault=self.fault,
            file=file,
            position=position,
            expected=self.expected,
            found=self.found,
        )

    def to_dict(self) -> dict[str, object]:
        """For JSON: unknown fields are left out."""
        fields: dict[str, object] = {"error": self.reason, "fault": self.fault.name, "file": self.file}
        if self.position is not None:
            fields["position"] = self.position
        if self.expected is not None:
            fields["expected"] = str(self.expected)
            fields["found"] = str(self.found)
        return fields

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}: "
        if self.position is not None:
            where += f"position {self.position}: "
        detail = ""
        if self.expected is not None:
            detail = f" (expected {self.expected}, found {self.found})"
        return f"{where}{self.reason}{detail}"
