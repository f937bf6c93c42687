"""Loads logs as they are now, in a directory that another process may write to, with their open transactions.

A log is loaded for one use and closed again. To find the open transactions, batches have to be read,
up to a whole active segment. So the state of the producers is kept, and only new batches are read.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from duralog.console.facts.partitions import OpenTransactionFacts
from duralog.errors import CorruptRecord, Fault, StorageError, UnknownTopic
from duralog.format.producer_snapshot import encode_producer_snapshot
from duralog.format.topic_partition import TopicPartition
from duralog.storage.append.producer_batch import reader_of
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView
from duralog.storage.store import Store

_MOST_REMEMBERED = 256
_ATTEMPTS = 3

_Answer = TypeVar("_Answer")


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

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._states: OrderedDict[tuple[str, int, str | None], _Remembered] = OrderedDict()

    def ask(self, place: TopicPartition, question: Callable[[PartitionLog], _Answer]) -> _Answer:
        """Call `question` with the current log. If files vanish meanwhile, the log is loaded again, and the call
        repeated.
        """
        folder = os.path.join(self._store.directory_of(*place), str(place))
        for attempt in range(_ATTEMPTS):
            if not os.path.isdir(folder):
                raise UnknownTopic(f"there is no partition {place.partition} of {place.topic}")
            try:
                with self._store.loaded(*place) as log:
                    return question(log)
            except (StorageError, CorruptRecord) as error:
                # A compaction or retention may have taken the segments that were found. Damage stays damage.
                is_damage = isinstance(error, CorruptRecord) and error.fault is not Fault.PARTIAL_BATCH
                if is_damage or attempt == _ATTEMPTS - 1:
                    raise
            except OSError as error:
                raise StorageError(f"{folder}: cannot be read: {error.strerror}") from error
        raise AssertionError

    def stability(self, log: PartitionLog) -> Stability:
        """REQUIRES: the log is one that `ask` gave."""
        view, topic = log.view, self._store.find_topic(log.topic)
        # With the id: a topic that was deleted and created again is another one.
        key = log.topic, log.partition, None if topic is None else topic.topic_id
        with self._lock:
            # Removed while it is brought up to date, which changes it. Another thread starts from the log meanwhile.
            known = self._states.pop(key, None)
        if known is None or not _can_continue(known, view):
            known = _read_state(log, view)
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
                )
                for entry in entries
            ),
            key=lambda transaction: transaction.first_offset,
        )
        first = max(transactions[0].first_offset, view.start_offset) if transactions else view.end_offset
        return Stability(min(first, view.end_offset), tuple(transactions))


def _can_continue(known: _Remembered, view: LogView) -> bool:
    return (
        known.active_base == view.segments.active.base_offset
        and known.position <= view.end_position
        and known.end_offset <= view.end_offset
    )


def _read_state(log: PartitionLog, view: LogView) -> _Remembered:
    snapshot = encode_producer_snapshot(log.producers())
    state = ProducerState.from_snapshot(snapshot, view.end_offset, now_ms=0)
    return _Remembered(view.segments.active.base_offset, view.end_position, view.end_offset, state)


def _read_on(known: _Remembered, view: LogView) -> _Remembered:
    for piece in view.segments.active.batches_from(known.position, end=view.end_position):
        if piece.fault is not None:
            raise piece.fault
        known.state.replay(piece.batches, reader_of(piece))
    return known._replace(position=view.end_position, end_offset=view.end_offset)
