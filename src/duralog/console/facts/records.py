"""Records for pages, each truncated to a size for the browser, and the progress of a search."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from duralog.console.facts.payloads import ShownPayload
from duralog.console.facts.runs import RunState

SHOWN_BYTES = 16 << 10
"""The most bytes of a key, a value and a header's value in a page; `Source.record` returns more."""
SHOWN_HEADERS = 100


class RecordKind(StrEnum):
    DATA = "data"
    ABORTED = "aborted"
    """Of a transaction that was aborted: a `read_committed` consumer never sees it."""
    OPEN = "open"
    """Of a transaction that is not decided yet."""
    MARKER = "marker"
    """Written by the log itself where a transaction ended; `marker` says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    offset: int
    timestamp_ms: int
    """-1 if it has none."""
    timestamp_type: str
    """`CreateTime`, `LogAppendTime` or `NoTimestampType`."""
    key: bytes | None
    """Cut to `SHOWN_BYTES`, as is the value: `key_bytes` and `value_bytes` are their sizes."""
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The first ones, cut as well: `header_count` is their number."""
    key_bytes: int
    value_bytes: int
    header_count: int
    size_bytes: int
    """Of key, value and headers together."""
    is_tombstone: bool
    codec: str | None
    """Of its batch; None through a broker."""
    kind: RecordKind = RecordKind.DATA
    marker: str | None = None
    """`commit of producer 4, epoch 1`."""
    producer_id: int | None = None
    decoded_key: ShownPayload | None = None
    """None if it is shown as it is."""
    decoded_value: ShownPayload | None = None

    @property
    def is_cut(self) -> bool:
        """Whether `Source.record` has more of it."""
        is_short = len(self.key or b"") < self.key_bytes or len(self.value or b"") < self.value_bytes
        is_short = is_short or len(self.headers) < self.header_count
        return is_short or any(len(value or b"") == SHOWN_BYTES for _, value in self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    records: tuple[ShownRecord, ...]
    """By offset, also on a page that was read backwards."""
    first_offset: int
    """The page covers the offsets from here up to, not including, `next_offset`: missing offsets are gaps in the
    log."""
    next_offset: int
    """Where the next page starts."""
    previous_offset: int | None
    """The page before is below it: ask for it with `backwards`. None at the start of the log."""
    start_offset: int
    """Of the log, as are the end and the last stable offset."""
    end_offset: int
    last_stable_offset: int | None
    note: str | None = None
    """Why the page is shorter, or starts elsewhere, than requested; damage that was found."""

    @property
    def is_at_end(self) -> bool:
        return self.next_offset >= self.end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    state: RunState
    offset: int
    """The search has read up to here."""
    end_offset: int
    records_read: int
    bytes_read: int
    share: float
    """0 to 1."""
    found: int
    error: str | None = None
