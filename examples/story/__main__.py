"""Tells the story, in about a minute on two cores once the kernels are compiled.

    python -m examples.story [--data FOLDER] [--records 3000000] [--products 200000] [--master local[2]]

The folder gets the log, the snapshot and `report.html`. A folder of an earlier run is made anew; any other one that is
not empty is left alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from examples.own_folder import make_anew
from examples.story.chapters import (
    TOPIC,
    count_per_hour,
    folder_bytes,
    segment_files,
    stream_changes,
    write_changes,
)
from examples.story.telling import Compacted, Step, Story, html, step_lines, table_lines

Result = TypeVar("Result")


class Narrator:
    """Runs the steps, and says what each took."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def step(self, name: str, work: Callable[[], Result], records: Callable[[Result], int] | None = None) -> Result:
        print(f"{name} ...", end=" ", flush=True)
        began = time.monotonic()
        result = work()
        done = Step(name=name, seconds=time.monotonic() - began, records=None if records is None else records(result))
        self.steps.append(done)
        print(done.text, flush=True)
        return result


def tell(folder: Path, *, records: int, products: int, master: str) -> Story:
    """All steps, and the report in the folder."""
    from duralog.spark.jobs.compact import compact
    from duralog.spark.jobs.snapshot import snapshot
    from duralog.spark.jobs.verify import verify
    from duralog.spark.session import active_session, local_session

    log = str(folder / "log")
    narrator = Narrator()
    written = narrator.step(
        "write the changes", lambda: write_changes(log, records, products), lambda written: written.records
    )
    running = active_session()
    spark = running or narrator.step(
        "start Spark", lambda: local_session(master, "duralog-story", {"spark.driver.memory": "1g"})
    )
    try:
        streamed = narrator.step(
            "stream them",
            lambda: stream_changes(spark, log, str(folder / "checkpoint"), records),
            lambda streamed: streamed.records,
        )
        before = segment_files(log)
        job = narrator.step(
            "compact",
            lambda: compact(spark, log, topics=[TOPIC], roll=True),
            lambda job: job.totals()["records_before"],
        )
        after = segment_files(log)
        per_hour_after = narrator.step(
            "count what is left", lambda: count_per_hour(spark, log), lambda counts: sum(counts)
        )
        taken = narrator.step(
            "take a snapshot",
            lambda: snapshot(spark, log, str(folder / "snapshot"), topics=[TOPIC]),
            lambda taken: taken.tables[0].records_read,
        )
        rows = spark.read.parquet(taken.tables[0].path).count()
        checked = narrator.step("verify", lambda: verify(spark, log), lambda checked: checked.totals.counts.records)
        cores = spark.sparkContext.defaultParallelism
    finally:
        if running is None:
            spark.stop()
    story = Story(
        cores=cores,
        written=written,
        streamed=streamed,
        compacted=Compacted(
            records_before=job.totals()["records_before"],
            records_after=job.totals()["records_after"],
            superseded=job.totals()["superseded_records"],
            kept_tombstones=sum(report.kept_tombstones for report in job.reports),
            expired_tombstones=job.totals()["expired_tombstones"],
        ),
        before=before,
        after=after,
        per_hour_after=per_hour_after,
        snapshot_rows=rows,
        snapshot_bytes=folder_bytes(taken.tables[0].path),
        findings=checked.totals.errors,
        steps=narrator.steps,
        seconds=narrator.seconds,
    )
    (folder / "report.html").write_text(html(story), encoding="utf-8")
    return story


def check(story: Story) -> None:
    """What was written is what was streamed, and what the snapshot has."""
    wrong = []
    if (story.streamed.records, story.streamed.deletions) != (story.written.records, story.written.deletions):
        wrong.append(f"{story.streamed.records:,} records were streamed")
    if story.snapshot_rows != story.written.live_keys:
        wrong.append(f"the snapshot has {story.snapshot_rows:,} rows, there are {story.written.live_keys:,} products")
    if sum(story.per_hour_after) != story.compacted.records_after:
        wrong.append(f"{sum(story.per_hour_after):,} records are left, by the query")
    if story.findings:
        wrong.append(f"{story.findings} findings: duralog verify tells them")
    if wrong:
        sys.exit("\n".join(wrong))


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.story", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=os.path.join("build", "story"), help="where everything goes")
    parser.add_argument("--records", type=_count, default=3_000_000)
    parser.add_argument("--products", type=_count, default=200_000)
    parser.add_argument("--master", default="local[*]", help="where Spark runs")
    arguments = parser.parse_args()
    folder = Path(arguments.data)
    make_anew(folder)
    story = tell(folder, records=arguments.records, products=arguments.products, master=arguments.master)
    print()
    print("\n".join(table_lines(story)))
    print()
    print("\n".join(step_lines(story.steps)))
    print()
    print(
        f"{story.compacted.records_before:,} records became {story.compacted.records_after:,}; the snapshot has"
        f" {story.snapshot_rows:,} rows; {story.findings} findings by verify; {story.seconds:.0f} s in all"
    )
    check(story)
    print(f"report: {folder / 'report.html'}")


if __name__ == "__main__":
    main()
