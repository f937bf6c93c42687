"""Maintenance of logs as Spark jobs, on one machine or a cluster.

    from duralog.spark.jobs import verify
    report = verify(spark, "data")

Every job is a function of a session, a path and options, and returns a report: values, `to_dict()` for JSON and, where
a query makes sense, `frame(spark)`. A job is loaded at its first use.

A job's module has the name of its function. Here the name means the function, also after the module was imported.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duralog.reports.repair import RepairReport as RepairReport
    from duralog.reports.retain import RetainReport as RetainReport
    from duralog.reports.verify import VerifyReport as VerifyReport
    from duralog.spark.jobs.compact import CompactJobReport as CompactJobReport
    from duralog.spark.jobs.compact import compact as compact
    from duralog.spark.jobs.export import ExportReport as ExportReport
    from duralog.spark.jobs.export import export as export
    from duralog.spark.jobs.reindex import ReindexReport as ReindexReport
    from duralog.spark.jobs.reindex import reindex as reindex
    from duralog.spark.jobs.repair import repair as repair
    from duralog.spark.jobs.retain import retain as retain
    from duralog.spark.jobs.snapshot import snapshot as snapshot
    from duralog.spark.jobs.snapshots.report import SnapshotReport as SnapshotReport
    from duralog.spark.jobs.stats import stats as stats
    from duralog.spark.jobs.upgrade import UpgradeReport as UpgradeReport
    from duralog.spark.jobs.upgrade import upgrade as upgrade
    from duralog.spark.jobs.verify import verify as verify
    from duralog.statistics.report import StatsReport as StatsReport

_MODULES = {
    "CompactJobReport": "duralog.spark.jobs.compact",
    "ExportReport": "duralog.spark.jobs.export",
    "ReindexReport": "duralog.spark.jobs.reindex",
    "RepairReport": "duralog.reports.repair",
    "RetainReport": "duralog.reports.retain",
    "SnapshotReport": "duralog.spark.jobs.snapshots.report",
    "StatsReport": "duralog.statistics.report",
    "UpgradeReport": "duralog.spark.jobs.upgrade",
    "VerifyReport": "duralog.reports.verify",
    "compact": "duralog.spark.jobs.compact",
    "export": "duralog.spark.jobs.export",
    "reindex": "duralog.spark.jobs.reindex",
    "repair": "duralog.spark.jobs.repair",
    "retain": "duralog.spark.jobs.retain",
    "snapshot": "duralog.spark.jobs.snapshot",
    "stats": "duralog.spark.jobs.stats",
    "upgrade": "duralog.spark.jobs.upgrade",
    "verify": "duralog.spark.jobs.verify",
}
"""By public name: the module that has it."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return __all__


class _Jobs(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # Importing a module makes it an attribute of its package.
        if isinstance(value, ModuleType) and name in _MODULES:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Jobs
