"""What recovery hands to a log: everything that a partition's folder holds, ready to be served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duralog.storage.append.producer_snapshots import ProducerSnapshots
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.log.leader_epochs import LeaderEpochs
from duralog.storage.segment.segments import Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """There is at least one segment; the last one is active, and writable unless the log is read-only."""

    folder: str
    segments: Segments
    log_start_offset: int
    end_offset: int
    recovery_point: int
    """Everything below this offset is on disk for good."""
    read_producers: Callable[[], ProducerState]
    """What is known of them, up to `end_offset`. Of a log that is only read, this takes reading some of it."""
    producer_snapshots: ProducerSnapshots
    leader_epochs: LeaderEpochs
    check_lock: Callable[[], None] = lambda: None
    """Raises `LockLost` if the lock of the directory does not keep other processes out any more."""
