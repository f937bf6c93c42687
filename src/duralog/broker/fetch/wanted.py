"""A partition as a fetch asks for it, and as it is answered."""

from __future__ import annotations

from typing import NamedTuple

from duralog.broker.topics.leadership import NO_EPOCH
from duralog.broker.topics.partition import Partition
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire import error_codes
from duralog.format.checkpoints import EpochStart
from duralog.format.index_entries import AbortedTransaction
from duralog.storage.disk.file_system import File

NO_OFFSET = -1


class Wanted:
    """A partition as a fetch, or a fetch session, asks for it."""

    __slots__ = (
        "leader_epoch",
        "max_bytes",
        "number",
        "offset",
        "partition",
        "seen_epoch",
        "sent_high_watermark",
        "sent_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes | None,
        number: int,
        offset: int,
        max_bytes: int,
        leader_epoch: int,
        seen_epoch: int,
    ) -> None:
        self.topic = topic
        """None if the id is unknown."""
        self.topic_id = topic_id
        """None if the client names the topic."""
        self.number = number
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        """The current one according to the client; -1 if it does not say."""
        self.seen_epoch = seen_epoch
        """The epoch of the last record that the client has; -1 if it does not say."""
        self.sent_high_watermark = NO_OFFSET
        self.sent_start_offset = NO_OFFSET
        self.partition: Partition | None = None

    @property
    def key(self) -> tuple[str | bytes | None, int]:
        """Two requests with the same key mean the same partition."""
        return (self.topic if self.topic_id is None else self.topic_id), self.number

    def ask_as(self, other: Wanted) -> None:
        """Adopt the values of a later request of the session."""
        self.offset = other.offset
        self.max_bytes = other.max_bytes
        self.leader_epoch = other.leader_epoch
        self.seen_epoch = other.seen_epoch

    def find(self, partitions: Partitions) -> Partition | None:
        """The partition, if it exists and is not offline."""
        if self.topic is None and self.topic_id is not None:
            self.topic = partitions.topic_name(self.topic_id)
        if self.topic is None:
            return None
        self.partition = partitions.get(self.topic, self.number)
        return self.partition


class FetchedPartition(NamedTuple):
    """The result of a partition. The defaults are those of one that cannot be read."""

    wanted: Wanted
    error_code: int = error_codes.NONE
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    start_offset: int = NO_OFFSET
    aborted: tuple[AbortedTransaction, ...] | None = None
    file: File | None = None
    position: int = 0
    size: int = 0
    diverging: EpochStart | None = None
    """Where the log and the client's records diverge."""
    leader_epoch: int = NO_EPOCH
    """For a client that assumes another leader; -1 for all others."""
