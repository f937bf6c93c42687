"""Every job, in the order of the report. `limits` is measured in each run, before the others."""

from __future__ import annotations

from bench.job import Job
from bench.jobs import decode, dump, encode, limits, scan, startup

LIMITS = limits.JOB
JOBS: dict[str, Job] = {
    job.name: job for job in (scan.JOB, decode.JOB, *decode.COMPRESSED, *dump.JOBS, *encode.JOBS, startup.JOB)
}
