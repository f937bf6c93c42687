"""Every job, in the order of the report. `limits` is measured first in each run."""

from __future__ import annotations

from bench.job import Job
from bench.jobs import (
    acls,
    append,
    avro,
    broker,
    cluster,
    compaction,
    console,
    decode,
    dump,
    encode,
    limits,
    map_fill,
    recovery,
    restore,
    scan,
    search,
    spark,
    startup,
    store_open,
    store_read,
)

LIMITS = limits.JOB
JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        scan.JOB,
        decode.JOB,
        *decode.COMPRESSED,
        *dump.JOBS,
        *encode.JOBS,
        *avro.JOBS,
        *append.JOBS,
        *store_read.JOBS,
        recovery.JOB,
        restore.JOB,
        *map_fill.JOBS,
        *compaction.JOBS,
        store_open.JOB,
        *cluster.JOBS,
        *spark.JOBS,
        *broker.JOBS,
        acls.JOB,
        console.JOB,
        search.JOB,
        startup.JOB,
    )
}
