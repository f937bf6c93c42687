"""One partition's log: append, read, look up, roll, flush, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duralog.storage.leader_epochs import LeaderEpochs
    from duralog.storage.producer_state import ProducerState
    from duralog.storage.segments import Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """What recovery found in a partition's folder, ready to be served.

    There is at least one segment; the last one is active, and its indexes are at full size unless the log is
    read-only. A new partition has one empty segment.
    """

    folder: str
    segments: Segments
    log_start_offset: int
    end_offset: int
    recovery_point: int
    """Everything below this offset is on disk for good."""
    producer_state: ProducerState
    """Up to `end_offset`."""
    leader_epochs: LeaderEpochs
