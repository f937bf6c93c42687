"""`duralog job NAME DIR`. Each module that is imported here registers its command."""

from __future__ import annotations

from duralog.cli.compact.command import compact
from duralog.cli.job import export, reindex, snapshot, upgrade
from duralog.cli.job.spark_job import add_alias, job_app
from duralog.cli.repair import repair
from duralog.cli.retain import retain
from duralog.cli.stats.command import stats
from duralog.cli.verify import MORE_ARGUMENTS, verify

__all__ = ["export", "job_app", "reindex", "snapshot", "upgrade"]

add_alias(compact, without=("threads", "explain", "records", "now"), summary="Compact compacted topics.")
add_alias(repair, without=())
add_alias(retain, without=())
add_alias(stats, without=("threads", "partition", "html"), summary="Count records, keys and bytes of topics.")
add_alias(verify, settings=MORE_ARGUMENTS)
