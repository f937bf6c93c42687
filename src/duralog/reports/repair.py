"""The report of `repair`: the changes of a log directory, done or planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duralog.errors import CorruptRecord
from duralog.storage.repair.folder_changes import Action
from duralog.storage.repair.partition_repair import PartitionRepair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ACTIONS_SCHEMA = "topic string, partition int, kind string, action string, file string, detail string, bytes bigint"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    path: str
    dry_run: bool
    repairs: Sequence[PartitionRepair]
    """The results of all checked partitions, including sound ones."""
    actions: Sequence[Action]
    """On the files of the directory itself."""
    left: Sequence[CorruptRecord]
    """Findings of the directory that `repair` cannot fix."""
    seconds: float

    @property
    def is_well(self) -> bool:
        """Nothing is left to do."""
        return not self.left and not any(repaired.left or repaired.failure for repaired in self.repairs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 3),
            "per_partition": [repaired.to_dict() for repaired in self.repairs],
            "actions": [action.to_dict() for action in self.actions],
            "left": [str(error) for error in self.left],
        }

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each action, for each finding that is left (`kind` is `left`), and for each failure (`failure`)."""
        return spark.createDataFrame(list(self._rows()), ACTIONS_SCHEMA)

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for repaired in self.repairs:
            place = repaired.partition.topic, repaired.partition.partition
            for action in repaired.actions:
                yield *place, "action", action.verb, action.file, action.detail, action.bytes
            for error in repaired.left:
                yield *place, "left", None, error.file, str(error), 0
            if repaired.failure is not None:
                yield *place, "failure", None, repaired.folder, repaired.failure, 0
        for action in self.actions:
            yield None, None, "action", action.verb, action.file, action.detail, action.bytes
        for error in self.left:
            yield None, None, "left", None, error.file, str(error), 0
