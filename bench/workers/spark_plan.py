"""The planning of a read, without Spark: `segments DIRECTORY PASSES` or `hour DIRECTORY PASSES`.

The first plans a whole directory of very many segments. The second an hour in the middle of the week, and its amount
is the share of the bytes that would be read.
"""

from __future__ import annotations

import sys

from bench.store_data import TOPIC
from bench.workers.make_events import FIRST_TIME_MS, WEEK_MS
from bench.workers.process_tree import Stopwatch
from duralog.scanning.planning import Plan
from duralog.spark import explain

HOUR_MS = 3_600_000


def main(what: str, directory: str, passes: int) -> None:
    options = {"subscribe": TOPIC}
    if what == "hour":
        start = FIRST_TIME_MS + WEEK_MS // 2
        options |= {"startingTimestamp": str(start), "endingTimestamp": str(start + HOUR_MS)}
    for _ in range(passes):
        with Stopwatch() as watch:
            plan = explain(directory, options)
            assert isinstance(plan, Plan), "one directory is not a cluster"
            watch.amount = plan.planned_bytes / plan.total_bytes if what == "hour" else plan.segments_planned


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
