"""`duralog compact` without `--explain`: one log after the other, each with all threads.

A log that cannot be compacted costs the others nothing. What is done when the command is interrupted stays done.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from duralog.cli.common.failures import describe, printable, say
from duralog.cli.common.output import Output
from duralog.cli.common.tables import plural, size_text, write_table
from duralog.cli.compact.advice import verdict
from duralog.cli.compact.objects import failure_object, report_object
from duralog.cli.compact.view import CompactionView
from duralog.config import TopicConfig
from duralog.errors import DuralogError
from duralog.storage.compaction.cleaner import reports_only
from duralog.storage.compaction.report import CompactionProgress, CompactionReport
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store

_NAMES = (
    *("partition", "records", "kept", "bytes", "left", "freed", "seconds", "speed"),
    *("keyless", "expired", "aborted", "rounds"),
)
_LEAST = ("keyless", "aborted", "rounds", "seconds", "expired", "left", "speed")
_MOST_IDLE = 8
"""Of so many logs it is told why there is nothing to do, no more."""
_LARGEST_MAP_BYTES = 2**31 - 1


@dataclass(slots=True)
class CompactionTotals:
    """What became of some partitions, or would."""

    compacted: int = 0
    idle: int = 0
    failed: int = 0
    damaged: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0
    is_rehearsal: bool = False
    """Nothing was changed."""

    def add(self, report: CompactionReport) -> None:
        if not report.rounds:
            self.idle += 1
            return
        self.compacted += 1
        self.damaged += bool(report.corrupt_batches or report.left_segments)
        self.records_before += report.records_before
        self.records_after += report.records_after
        self.bytes_before += report.bytes_before
        self.bytes_after += report.bytes_after


def compact_all(
    store: Store,
    partitions: Sequence[tuple[str, int, TopicConfig]],
    output: Output,
    view: CompactionView,
    tasks: Scheduler,
    *,
    roll: bool,
    again: bool,
    threads: int,
    memory_bytes: int | None,
) -> bool:
    """Returns whether all went well. Without `memory_bytes` a log has all the memory that the cleaner may have."""
    if memory_bytes is None:
        memory_bytes = min(store.config.log_cleaner_dedupe_buffer_size, _LARGEST_MAP_BYTES)

    def show(progress: CompactionProgress) -> None:
        tasks.run_due()  # Files of old segments go at once: there may be no room for the whole log twice.
        view.show(progress)

    totals = CompactionTotals()
    reports: list[CompactionReport] = []
    began = time.monotonic()
    try:
        for topic, number, config in partitions:
            view.begin(f"{topic}-{number}")
            try:
                log = store.partition(topic, number)
                log.update_config(config.with_overrides({"file.delete.delay.ms": 0}))
                if roll:
                    log.roll()
                with reports_only():
                    report = store.compact(
                        topic, number, workers=threads, memory_bytes=memory_bytes, again=again, on_progress=show
                    )
            except Exception as error:  # Whatever it is, the others are compacted all the same.
                totals.failed += 1
                view.hide()
                told = describe(error) if isinstance(error, DuralogError | OSError) else repr(error)
                say(f"error: {printable(f'{topic}-{number}: {told}')}")
                if output.as_json:
                    output.object(failure_object(topic, number, error))
                continue
            totals.add(report)
            reports.append(report)
            if output.as_json:
                output.object(report_object(report))
    finally:
        totals.seconds = time.monotonic() - began
        if output.as_json:
            output.object(summary_object(totals))
        else:
            write_reports(reports, totals, output)
    return not totals.failed and not totals.damaged


def write_reports(reports: Sequence[CompactionReport], totals: CompactionTotals, output: Output) -> None:
    """A table of what was compacted, damage, why there was nothing to do, and a line about all."""
    rows = [_cells(report) for report in reports if report.rounds]
    if rows and not output.quiet:
        write_table(output, _NAMES, rows, right=_NAMES[1:], least=_LEAST)
    idle = [report for report in reports if not report.rounds]
    silent = {(report.topic, report.partition) for report in idle[_MOST_IDLE:]}
    for report in reports:
        for damage in (*report.left_segments, *report.corrupt_batches):
            output.damage(damage)
        notes = report.notes if report.idle is None else [verdict(report.idle)]
        for note in notes if (report.topic, report.partition) not in silent else ():
            output.note(f"{report.topic}-{report.partition}", note)
    if len(idle) > _MOST_IDLE:
        output.note(f"and {len(idle) - _MOST_IDLE:,} more", "nothing can be compacted; --explain tells why")
    output.heading(_summary_line(totals))


def _cells(report: CompactionReport) -> list[str]:
    freed = report.bytes_before - report.bytes_after
    return [
        printable(f"{report.topic}-{report.partition}"),
        f"{report.records_before:,}",
        f"{report.records_after:,}",
        size_text(report.bytes_before),
        size_text(report.bytes_after),
        size_text(freed),
        f"{report.seconds:.2f}",
        f"{size_text(_rate(report.bytes_before, report.seconds))}/s",
        f"{report.keyless_records:,}" if report.keyless_records else "-",
        f"{report.expired_tombstones:,}" if report.expired_tombstones else "-",
        f"{report.aborted_records:,}" if report.aborted_records else "-",
        str(report.rounds),
    ]


def _rate(size_bytes: int, seconds: float) -> int:
    return int(size_bytes / seconds) if seconds else 0


def summary_object(totals: CompactionTotals) -> dict[str, Any]:
    return {
        "kind": "summary",
        **{name: value for name, value in dataclasses.asdict(totals).items() if name != "is_rehearsal"},
        "freed_bytes": totals.bytes_before - totals.bytes_after,
    }


def _summary_line(totals: CompactionTotals) -> str:
    words = [f"{plural(totals.compacted, 'partition')} {'would be ' if totals.is_rehearsal else ''}compacted"]
    if totals.idle:
        words.append(f"{totals.idle:,} with nothing to do")
    if totals.failed:
        words.append(f"{totals.failed:,} failed")
    if totals.damaged:
        words.append(f"{totals.damaged:,} with damage that was left as it is: duralog verify tells more")
    line = ", ".join(words)
    if totals.compacted:
        gone = totals.records_before - totals.records_after
        freed = size_text(totals.bytes_before - totals.bytes_after)
        went = "would go" if totals.is_rehearsal else "went"
        line += (
            f"; {gone:,} of {plural(totals.records_before, 'record')} {went}, {freed} freed in {totals.seconds:.2f} s"
        )
    return line
