"""Apache Kafka's log storage in Python: the same files on disk, byte for byte.

Start with `duralog.open(directory)`. Modules that need numpy or compiled kernels are loaded at their first use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from duralog.errors import (
    CompactionStopped,
    CoordinatorFenced,
    CorruptPayload,
    CorruptRecord,
    DuralogError,
    InvalidConfig,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    InvalidTransactionState,
    MissingExtra,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    RecordTooLarge,
    SchemaError,
    StorageError,
    StoreLocked,
    TopicExists,
    UnknownTopic,
    arrow_needed,
)
from duralog.format.record import Record, TimestampType

if TYPE_CHECKING:
    from duralog.config import BrokerConfig
    from duralog.scanning.tables.scan import Scan, scan
    from duralog.statistics.on_threads import stats_on_threads as stats
    from duralog.statistics.report import StatsReport
    from duralog.storage.checks.verification import Verification
    from duralog.storage.compaction.cleaner_state import CleanerTotals, PartitionState
    from duralog.storage.compaction.report import CompactionProgress, CompactionReport
    from duralog.storage.disk.parallel import Progress
    from duralog.storage.log.partition_log import PartitionLog
    from duralog.storage.log.retention import BUILT_IN_POLICIES, AgingLog, Removable, RetentionPolicy, RetentionReport
    from duralog.storage.segment.lookup import TimestampedOffset
    from duralog.storage.store import Store

__version__ = "0.1.0.dev0"

__all__ = [
    "BUILT_IN_POLICIES",
    "AgingLog",
    "BrokerConfig",
    "CleanerTotals",
    "CompactionProgress",
    "CompactionReport",
    "CompactionStopped",
    "CoordinatorFenced",
    "CorruptPayload",
    "CorruptRecord",
    "DuralogError",
    "InvalidConfig",
    "InvalidRecord",
    "InvalidTimestamp",
    "InvalidTopic",
    "InvalidTransactionState",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "PartitionLog",
    "PartitionState",
    "ProducerFenced",
    "Progress",
    "Record",
    "RecordTooLarge",
    "Removable",
    "RetentionPolicy",
    "RetentionReport",
    "Scan",
    "SchemaError",
    "StatsReport",
    "StorageError",
    "Store",
    "StoreLocked",
    "TimestampType",
    "TimestampedOffset",
    "TopicExists",
    "UnknownTopic",
    "Verification",
    "__version__",
    "open",
    "scan",
    "stats",
]

_LOADED_LATER = {
    "BUILT_IN_POLICIES": "duralog.storage.log.retention",
    "AgingLog": "duralog.storage.log.retention",
    "BrokerConfig": "duralog.config",
    "CleanerTotals": "duralog.storage.compaction.cleaner_state",
    "CompactionProgress": "duralog.storage.compaction.report",
    "CompactionReport": "duralog.storage.compaction.report",
    "PartitionLog": "duralog.storage.log.partition_log",
    "PartitionState": "duralog.storage.compaction.cleaner_state",
    "Progress": "duralog.storage.disk.parallel",
    "Removable": "duralog.storage.log.retention",
    "RetentionPolicy": "duralog.storage.log.retention",
    "RetentionReport": "duralog.storage.log.retention",
    "StatsReport": "duralog.statistics.report",
    "Scan": "duralog.scanning.tables.scan",
    "Store": "duralog.storage.store",
    "TimestampedOffset": "duralog.storage.segment.lookup",
    "Verification": "duralog.storage.checks.verification",
    "scan": "duralog.scanning.tables.scan",
    "stats": "duralog.statistics.on_threads:stats_on_threads",
}
"""By public name: the module, and after a colon the name in it if that differs."""


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module 'duralog' has no attribute {name!r}")
    module, _, inner = _LOADED_LATER[name].partition(":")
    try:
        with arrow_needed():
            value = getattr(import_module(module), inner or name)
    except MissingExtra as error:
        # The name exists; calling it raises an error that names the missing package.
        return partial(_raise, error)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion: those that were not used yet are not in `globals()`."""
    return sorted({*__all__, "__doc__", "__file__", "__name__", "__path__"})


def _raise(error: MissingExtra, *_: object, **__: object) -> None:
    raise error


def open(
    directory: str | bytes | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    config: Mapping[str, object] | BrokerConfig | None = None,
    read_only: bool = False,
    *,
    retention_policies: Sequence[RetentionPolicy] | None = None,
    show_progress: Callable[[Progress], None] | None = None,
) -> Store:
    """Open a log directory, Kafka's or duralog's, or several of one node. For writing, missing directories are created.

    Several are given as a list, or by one of them and `log.dirs` in `config`. The first, or `metadata.log.dir`, has the
    metadata log.
    `config` has Kafka's broker configs by name; topics that set none themselves use these. For the contents of a
    `server.properties`, give `BrokerConfig.from_properties(contents)`. Topics without metadata, which have only
    folders, keep their records forever unless `config` sets a retention. A retention that it sets, as
    `log.retention.hours`, applies as in Kafka. Without one, records that were older than seven days at the opening are
    held (`Store.held`). Read-only opening takes no lock and changes nothing: use it for backups. `retention_policies`
    replace the built-in ones. `show_progress` is called with the loading progress. The store belongs to the process
    that opens it: a forked child must open the directory itself.
    """
    from duralog.config import BrokerConfig
    from duralog.storage.log.retention import BUILT_IN_POLICIES
    from duralog.storage.store import Store

    if isinstance(directory, str | bytes | os.PathLike):
        paths: str | list[str] = os.fsdecode(directory)
    else:
        paths = [os.fsdecode(each) for each in directory]
    return Store(
        paths,
        config=config if isinstance(config, BrokerConfig) else BrokerConfig.of(config or {}),
        read_only=read_only,
        retention_policies=BUILT_IN_POLICIES if retention_policies is None else retention_policies,
        show_progress=show_progress,
    )
