"""Renders docs/scale.md from what the benchmarks measured (bench/results.json) and the prices below.

python docs/render_scale.py           writes it
python docs/render_scale.py --check   fails when it is stale
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rendering import main, table

from duralog.scanning.planning import DEFAULT_MAX_SLICE_BYTES
from duralog.scanning.remote_file import BLOCK_BYTES

TARGET = Path(__file__).with_name("scale.md")
RESULTS = Path(__file__).parents[1] / "bench" / "results.json"

PETABYTE = 1e15
SEGMENT_BYTES = 1 << 30
SLICE_BYTES = DEFAULT_MAX_SLICE_BYTES
REQUEST_BYTES = BLOCK_BYTES
"""Of one ranged GET."""
FILES_A_SEGMENT = 3
KEYS_A_LIST = 1000
CORES = 1000

DOLLARS_A_CORE_HOUR = 0.05
DOLLARS_A_MILLION_GETS = 0.40
DOLLARS_A_MILLION_PUTS_AND_LISTS = 5.00
"""What large providers ask, about, for a rented core with 4 GiB and for requests to their object stores."""

TEXT = """<!-- Made by render_scale.py from bench/results.json: run the benchmarks, then it. -->

# Scale

What more cores bring, as measured, and what a petabyte would take, as reckoned from it. The measurements are those of
[bench/RESULTS.md](../bench/RESULTS.md), on one machine with two cores; nothing here was run on a petabyte.

## From one core to two, and to worker processes

{scaling}

The aggregate and its data are described at [spark-scaling](../bench/results/spark-scaling.md), the compaction at
[spark-compact](../bench/results/spark-compact.md). Tasks share nothing but the disk: a slice of a partition is read by
one task, and a partition is compacted by one, so more cores help until there are as many as slices or partitions, or
until the disk or the network is the limit. The driver does the planning and the commits.

## A petabyte on an object store

A petabyte in segments of 1 GiB is {segments} segments. It is read once, in slices of 128 MiB: {slices} tasks.

What is presumed: a core reads as fast as here from the page cache, which takes {core_gbit:.1f} Gbit/s of network a core
for the aggregate. A core costs {core_price:.2f} dollars an hour, a million GETs {get_price:.2f} dollars, a million
LISTs or PUTs {put_price:.2f} dollars. Traffic within a region costs nothing, and storage is paid for anyway.

{costs}

How that comes about:

- *Core hours*: the bytes, divided by what a core does in a second, divided by 3,600. A core is taken to do half of what
  the two here do together.
- *Reading*: {gets} GETs of 8 MiB.
- *Listing*: {files} files, {keys} names in an answer, so {lists} LISTs.
- *Writing*: Parquet a third as large, in PUTs of 8 MiB.
- *Planning*, on the driver alone, before the first task: {plan_us:.0f} us a segment, as measured for 100,000 of them on
  a local disk, so {plan_minutes:.0f} minutes. Only the segments at the edges of a read by time or offset have their
  indexes read.

An hour out of a week is {hour_percent:.2f} % of the bytes ([spark-hour](../bench/results/spark-hour.md)), and costs as
much less. Compaction changes files in place and wants a file system; on an object store, `job snapshot` gives the same
final state of every key as a table.
"""


class Results:
    def __init__(self, path: Path) -> None:
        self._jobs = {job["name"]: job for job in json.loads(path.read_text(encoding="utf-8"))["jobs"]}

    def contender(self, job: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self._jobs[job]["contenders"] if one["name"] == name)
        return found

    def records(self, job: str) -> int:
        """How many records a segment of its run had: as many as the compacted directory."""
        return int(self._jobs[job]["run"]["records"])

    def median(self, job: str, name: str) -> float:
        return float(self.contender(job, name)["median"])


def render() -> str:
    results = Results(RESULTS)
    segments = PETABYTE / SEGMENT_BYTES
    row_bytes = _bytes_a_row(results)
    aggregate = results.median("spark-read", "duralog") * 1e6 * row_bytes / 2
    export = results.median("spark-parquet", "duralog, job export") * 1e6 * row_bytes / 2
    gets = PETABYTE / REQUEST_BYTES
    lists = segments * FILES_A_SEGMENT / KEYS_A_LIST
    plan_seconds = results.median("spark-plan", "duralog") / 100_000 * segments
    rows = [
        _cost("an aggregate over every value", aggregate, gets, lists),
        _cost("export to Parquet", export, gets, lists + PETABYTE / 3 / REQUEST_BYTES),
    ]
    return TEXT.format(
        scaling=_scaling(results),
        segments=f"{segments:,.0f}",
        slices=f"{PETABYTE / SLICE_BYTES:,.0f}",
        core_gbit=aggregate * 8 / 1e9,
        core_price=DOLLARS_A_CORE_HOUR,
        get_price=DOLLARS_A_MILLION_GETS,
        put_price=DOLLARS_A_MILLION_PUTS_AND_LISTS,
        costs=table(("work", "a core", "core hours", f"on {CORES:,} cores", "cores", "requests", "together"), rows),
        files=f"{segments * FILES_A_SEGMENT:,.0f}",
        keys=f"{KEYS_A_LIST:,}",
        lists=f"{lists:,.0f}",
        gets=f"{gets:,.0f}",
        plan_us=plan_seconds / segments * 1e6,
        plan_minutes=plan_seconds / 60,
        hour_percent=results.median("spark-hour", "duralog"),
    )


def _bytes_a_row(results: Results) -> float:
    """Of the events that the read is measured with, by what the compaction of the like of them counts."""
    compacted = results.contender("spark-compact", "duralog, 2 cores")
    return float(compacted["amount"]) / results.records("spark-compact")


def _cost(work: str, bytes_a_second: float, gets: float, puts: float) -> tuple[str, ...]:
    hours = PETABYTE / bytes_a_second / 3600
    compute = hours * DOLLARS_A_CORE_HOUR
    requests = (gets * DOLLARS_A_MILLION_GETS + puts * DOLLARS_A_MILLION_PUTS_AND_LISTS) / 1e6
    return (
        work,
        f"{bytes_a_second / 1e6:,.0f} MB/s",
        f"{hours:,.0f}",
        f"{hours / CORES:.1f} h",
        f"{compute:,.0f} dollars",
        f"{requests:,.0f} dollars",
        f"**{compute + requests:,.0f} dollars**",
    )


def _scaling(results: Results) -> str:
    rows = []
    for name in ("duralog, local[1]", "duralog, local[2]", "duralog, local-cluster"):
        one = results.contender("spark-scaling", name)
        rate, ratio = f"{one['median']:.2f} M rows/s", f"{one['speed_ratio']:.2f}"
        rows.append(("aggregate over all rows", name.removeprefix("duralog, "), rate, ratio))
    for name in ("duralog, 1 core", "duralog, 2 cores"):
        one = results.contender("spark-compact", name)
        rate, ratio = f"{one['median']:,.0f} MB/s", f"{one['speed_ratio']:.2f}"
        rows.append(("compaction of eight partitions", name.removeprefix("duralog, "), rate, ratio))
    return table(("work", "on", "speed", "times as fast as one core"), rows)


if __name__ == "__main__":
    sys.exit(main(Path(__file__), __doc__, TARGET, render))
