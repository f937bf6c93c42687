"""Logs to be read as they are now, in a directory that others write to; and where their transactions stand.

A log is loaded for one question and let go of: nothing stays open. Which transactions are open is the one thing that
takes reading batches, up to a whole active segment. So that is remembered, and only what has come since is read.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from duralog.console.facts.partitions import OpenTransactionFacts
from duralog.errors import CorruptRecord, Fault, StorageError, UnknownTopic
from duralog.format.filenames import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from duralog.format.producer_snapshot import encode_producer_snapshot
from duralog.storage.append.producer_batch import reader_of
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.disk.background import Clock, wall_clock_ms
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory, TopicPartition
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView
from duralog.storage.metadata.topics import Topic
from duralog.storage.partition_loading import PartitionLoader

_MOST_REMEMBERED = 256
_ATTEMPTS = 3

_Answer = TypeVar("_Answer")

FindTopic = Callable[[str], Topic | None]


class Stability(NamedTuple):
    last_stable_offset: int
    open_transactions: tuple[OpenTransactionFacts, ...]
    """The oldest first."""


class _Remembered(NamedTuple):
    active_base: int
    position: int
    end_offset: int
    state: ProducerState


class FreshLogs:
    """Any thread may ask."""

    def __init__(self, directory: str, find_topic: FindTopic, clock: Clock = wall_clock_ms) -> None:
        self._files = LocalFileSystem()
        self._directory = LogDirectory(self._files, directory)
        self._find_topic = find_topic
        self._clock = clock
        self._lock = threading.Lock()
        self._loader: tuple[object, PartitionLoader] | None = None
        self._states: OrderedDict[tuple[str, int, str | None], _Remembered] = OrderedDict()

    def ask(self, place: TopicPartition, question: Callable[[PartitionLog], _Answer]) -> _Answer:
        """Answer a question by the log as it is now. If files vanish meanwhile, it is asked again of a fresh log."""
        for attempt in range(_ATTEMPTS):
            try:
                with self._loaded(place) as log:
                    return question(log)
            except (StorageError, CorruptRecord) as error:
                # A compaction or retention may have taken the segments that were found. Damage stays damage.
                is_damage = isinstance(error, CorruptRecord) and error.fault is not Fault.PARTIAL_BATCH
                if is_damage or attempt == _ATTEMPTS - 1:
                    raise
            except OSError as error:
                raise StorageError(f"{self._directory.folder_of(place)}: cannot be read: {error.strerror}") from error
        raise AssertionError

    @contextmanager
    def _loaded(self, place: TopicPartition) -> Iterator[PartitionLog]:
        topic = self._find_topic(place.topic)
        if topic is None or not os.path.isdir(self._directory.folder_of(place)):
            raise UnknownTopic(f"there is no partition {place.partition} of {place.topic}")
        log = self._current_loader().load(place, topic)
        try:
            yield log
        finally:
            log.close()

    def _current_loader(self) -> PartitionLoader:
        """With the checkpoints as they are."""
        seen = tuple(
            self._files.entry(self._directory.path_of(name))
            for name in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)
        )
        with self._lock:
            if self._loader is None or self._loader[0] != seen:
                loader = PartitionLoader(
                    self._files,
                    self._directory,
                    producer_expiration_ms=_NEVER_MS,
                    clean=True,
                    read_only=True,
                    clock=self._clock,
                    later=_not_later,
                )
                self._loader = seen, loader
            return self._loader[1]

    def stability(self, log: PartitionLog) -> Stability:
        """REQUIRES: the log is one that `ask` gave."""
        view, topic = log.view, self._find_topic(log.topic)
        # With the id: a topic that was deleted and made again has nothing to do with the one before.
        key = log.topic, log.partition, None if topic is None else topic.topic_id
        with self._lock:
            # Taken out, since it changes while it is read on. Who asks meanwhile reads anew.
            known = self._states.pop(key, None)
        if known is None or not _goes_on(known, view):
            known = _read_anew(log, view)
        elif known.position < view.end_position:
            known = _read_on(known, view)
        entries = [entry for entry in known.state.entries() if entry.transaction_first_offset >= 0]
        with self._lock:
            self._states[key] = known
            while len(self._states) > _MOST_REMEMBERED:
                self._states.popitem(last=False)
        transactions = sorted(
            (
                OpenTransactionFacts(
                    producer_id=entry.producer_id,
                    producer_epoch=entry.producer_epoch,
                    first_offset=entry.transaction_first_offset,
                    last_append_ms=entry.timestamp_ms,
                )
                for entry in entries
            ),
            key=lambda transaction: transaction.first_offset,
        )
        first = max(transactions[0].first_offset, view.start_offset) if transactions else view.end_offset
        return Stability(min(first, view.end_offset), tuple(transactions))


_NEVER_MS = 2**62
"""A producer that has been silent for long may still have a transaction open."""


def _not_later(_delay_ms: int, _name: str, _work: Callable[[], None]) -> None:
    """Nothing is to be done later to a log that is only read."""


def _goes_on(known: _Remembered, view: LogView) -> bool:
    return (
        known.active_base == view.segments.active.base_offset
        and known.position <= view.end_position
        and known.end_offset <= view.end_offset
    )


def _read_anew(log: PartitionLog, view: LogView) -> _Remembered:
    snapshot = encode_producer_snapshot(log.producers())
    state = ProducerState.from_snapshot(snapshot, view.end_offset, now_ms=0)
    return _Remembered(view.segments.active.base_offset, view.end_position, view.end_offset, state)


def _read_on(known: _Remembered, view: LogView) -> _Remembered:
    for piece in view.segments.active.batches_from(known.position, end=view.end_position):
        if piece.fault is not None:
            raise piece.fault
        known.state.replay(piece.batches, reader_of(piece))
    return known._replace(position=view.end_position, end_offset=view.end_offset)
