"""What is wrong with the directories of a cluster. A problem of one directory does not stop the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from duralog.format.topic_partition import TopicPartition


class ProblemKind(Enum):
    GIVEN_TWICE = "given-twice"
    """A directory was named twice."""
    UNREADABLE_DIRECTORY = "unreadable-directory"
    SAME_DIRECTORY = "same-directory"
    """Two directories are copies of each other."""
    TWICE_ON_NODE = "twice-on-node"
    """Two directories of a node have the same partitions."""
    OWNER_MISSING = "owner-missing"
    """A directory has no `meta.properties`, others have."""
    OWNER_DAMAGED = "owner-damaged"
    """The `meta.properties` of a directory cannot be read."""
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    """Offsets of a directory are not known."""
    EMPTY_FOLDER = "empty-folder"
    """A folder of a partition, or a file in its place, without a log."""
    NODE_MISSING = "node-missing"
    METADATA_OLDER = "metadata-older"
    """The cluster metadata is older than the logs."""
    METADATA_UNREADABLE = "metadata-unreadable"
    OTHER_TOPIC = "other-topic"
    """A folder belongs to another topic of the same name."""
    STRAY = "stray"
    """A folder of a topic or a replica that the metadata does not have."""
    UNREADABLE_COPY = "unreadable-copy"
    CUT = "cut"
    """A copy ends before its own high watermark."""
    NO_GOOD_COPY = "no-good-copy"
    REPLICA_MISSING = "replica-missing"
    BEING_WRITTEN = "being-written"
    BEING_MOVED = "being-moved"
    """A folder of a replica that was not moved to the end."""


NOTES = frozenset(
    {
        ProblemKind.GIVEN_TWICE,
        ProblemKind.OWNER_MISSING,
        ProblemKind.NODE_MISSING,
        ProblemKind.METADATA_OLDER,
        ProblemKind.BEING_WRITTEN,
        ProblemKind.BEING_MOVED,
    }
)
"""Not damage: what was given is incomplete, or was given twice."""


LOST_ADVICE = (
    "A backup may have them: give its directories, too. Otherwise duralog cluster heal takes the damage out of the"
    " logs, and duralog cluster restore --accept-loss copies what is left"
)
"""What to do about offsets that no copy has."""


@dataclass(frozen=True, slots=True)
class Problem:
    kind: ProblemKind
    directory: str
    """Its path or URL."""
    text: str
    """What is wrong, and what to do."""
    partition: TopicPartition | None = None

    def __str__(self) -> str:
        place = self.directory if self.partition is None else f"{self.directory}: {self.partition}"
        return f"{place}: {self.text}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "problem",
            "problem": self.kind.value,
            "directory": self.directory,
            "partition": None if self.partition is None else str(self.partition),
            "text": self.text,
        }
