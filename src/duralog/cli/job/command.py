"""`duralog job NAME PATH`. Each module that is imported here registers its command."""

from __future__ import annotations

from duralog.cli.job import compact, export, reindex, repair, retain, snapshot, stats, upgrade, verify
from duralog.cli.job.spark_job import job_app

__all__ = ["compact", "export", "job_app", "reindex", "repair", "retain", "snapshot", "stats", "upgrade", "verify"]
