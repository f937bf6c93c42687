"""One partition of a directory that somebody may have open, looked at again where its files have changed meanwhile.

A read-only store knows the files that were there when it loaded the log. Retention and compaction of the directory's
owner take them away, or put others into their places; then the log is loaded anew. What is wrong with it for good is
raised in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TypeVar

from duralog.errors import DuralogError
from duralog.storage.disk.log_directory import TopicPartition
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

Found = TypeVar("Found")

_ATTEMPTS = 4


def look_at(store: Store, partition: TopicPartition, look: Callable[[PartitionLog], Found]) -> Found:
    """What `look` finds in the log. REQUIRES: the store is read-only, and on a local disk."""
    with ExitStack() as opened:
        for _ in range(_ATTEMPTS - 1):
            with suppress(DuralogError):
                return look(store.partition(*partition))
            store = opened.enter_context(Store(store.path, config=store.config, read_only=True))
        return look(store.partition(*partition))
