"""What a log is opened with: what recovery found in its folder, and what it gets from its process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from duralog.storage.append.producer_snapshots import ProducerSnapshots
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.flush_times import FlushTimes
from duralog.storage.log.leader_epochs import LeaderEpochs
from duralog.storage.log.rolling import RandomBelow
from duralog.storage.segment.segments import Segments

RunLater = Callable[[int, str, Callable[[], None]], None]
"""Runs a function after a delay in milliseconds. The name is for error messages."""

OnFailure = Callable[[str, BaseException], None]
"""Called with the folder of a log and the error after which it is unknown what is on disk, under the log's lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A loaded log. It has at least one segment; the last one is active, and writable unless the log is read-only."""

    folder: str
    segments: Segments
    log_start_offset: int
    end_offset: int
    recovery_point: int
    """Everything below this offset is durable."""
    read_producers: Callable[[], ProducerState]
    """Returns the producer state at `end_offset`. For a read-only log, this reads part of the log."""
    producer_snapshots: ProducerSnapshots
    read_leader_epochs: Callable[[], LeaderEpochs]
    """For a read-only log, this reads the file."""
    check_lock: Callable[[], None] = lambda: None
    """Raises `LockLost` if the lock of the directory no longer keeps other processes out."""


def _at_once(_delay_ms: int, _name: str, work: Callable[[], None]) -> None:
    work()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnvironment:
    """What a log uses of its process."""

    file_system: FileSystem
    clock: Clock
    run_later: RunLater = _at_once
    """For work that no caller waits for: flushing after a roll, removing the files of deleted segments."""
    random_below: RandomBelow = random.randrange
    on_failure: OnFailure | None = None
    flush_times: FlushTimes = field(default_factory=FlushTimes)
