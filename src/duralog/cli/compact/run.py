"""Runs a compaction for `duralog compact`, and shows what it did."""

from __future__ import annotations

import time
from typing import Any

import typer

from duralog.cli.compact.advice import verdict
from duralog.cli.voice.failures import FAILURE
from duralog.cli.voice.output import Output
from duralog.cli.voice.screen import Screen
from duralog.cli.voice.tables import plural, size_text, write_table
from duralog.config.error_text import printable
from duralog.errors import InvalidConfig
from duralog.operations.compact import CompactRequest, compact
from duralog.operations.compacted_logs import NotCompacted
from duralog.operations.workers import Workers
from duralog.reports.compact import CompactReport, PartitionCompaction
from duralog.storage.compaction.report import CompactionReport

_NAMES = (
    *("partition", "records", "kept", "bytes", "left", "freed", "seconds", "speed"),
    *("keyless", "expired", "aborted", "rounds"),
)
_LEAST = ("keyless", "aborted", "rounds", "seconds", "expired", "left", "speed")
_SUMMARY = (
    *("compacted", "idle", "failed", "damaged", "records_before", "records_after", "bytes_before", "bytes_after"),
    *("seconds", "freed_bytes"),
)
_MOST_IDLE = 8
"""The reasons why there is nothing to do are shown for at most this many logs."""


def run_compact(request: CompactRequest, workers: Workers, screen: Screen) -> None:
    """Ends the command with an exit code if something failed or is damaged."""
    shown = _Shown(screen, request)
    try:
        report = compact(request, workers, on_progress=screen.bar.show, on_partition=shown.add)
    except NotCompacted as error:
        raise not_compacted(error) from None
    except KeyboardInterrupt:
        shown.end_interrupted()
        raise
    note_no_logs(screen.output, report.path, len(report.partitions), report.not_compacted)
    shown.end(report)
    if not report.is_well:
        raise typer.Exit(FAILURE)


def not_compacted(error: NotCompacted) -> InvalidConfig:
    return InvalidConfig(
        f"{error}: --config cleanup.policy=compact treats it as if it were, for this run. Records without a key are "
        f"removed then: run --explain first"
    )


def note_no_logs(output: Output, path: str, found: int, not_compacted: int | None) -> None:
    """If there is nothing to compact, say why. Spark does not count the partitions that are `not_compacted`."""
    if found:
        return
    if not_compacted is None:
        if not output.as_json:
            output.note(path, "none of its partitions is of a compacted topic")
    elif not not_compacted:
        output.note(path, "there is no partition in it")
    else:
        output.note(
            path,
            f"no partition of its {not_compacted} is of a compacted topic; to treat a topic as one, give --topic and"
            " --config cleanup.policy=compact",
        )


class _Shown:
    """In JSON each partition as it comes, for people a table at the end. Failures are shown as they come."""

    def __init__(self, screen: Screen, request: CompactRequest) -> None:
        self._screen = screen
        self._request = request
        self._output = screen.output
        self._done: list[PartitionCompaction] = []
        self._began = time.monotonic()

    def add(self, done: PartitionCompaction) -> None:
        self._done.append(done)
        if done.failure is not None:
            self._screen.say_error(done.partition, done.failure)
        if self._output.as_json:
            self._output.object(done.to_dict())

    def end_interrupted(self) -> None:
        """What was done so far, if anything."""
        if self._done:
            seconds = time.monotonic() - self._began
            self.end(CompactReport(path=self._request.logs.path, partitions=self._done, seconds=seconds))

    def end(self, compacted: CompactReport) -> None:
        """A table of what was compacted, damage, why there was nothing to do, and a line about all."""
        output = self._output
        if output.as_json:
            output.object(_summary_object(compacted))
            return
        rows = [_cells(report) for report in compacted.reports if report.rounds]
        if rows and not output.quiet:
            write_table(output, _NAMES, rows, right=_NAMES[1:], least=_LEAST)
        idle = [report for report in compacted.reports if not report.rounds]
        silent = {(report.topic, report.partition) for report in idle[_MOST_IDLE:]}
        for report in compacted.reports:
            for damage in (*report.left_segments, *report.corrupt_batches):
                output.damage(damage)
            notes = report.notes if report.idle is None else [verdict(report.idle)]
            for note in notes if (report.topic, report.partition) not in silent else ():
                output.note(f"{report.topic}-{report.partition}", note)
        if len(idle) > _MOST_IDLE:
            output.note(
                f"and {len(idle) - _MOST_IDLE:,} more", "nothing can be compacted; duralog compact --explain shows why"
            )
        output.heading(_summary_line(compacted))


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


def _summary_object(compacted: CompactReport) -> dict[str, Any]:
    totals: dict[str, float] = {**compacted.totals(), "seconds": round(compacted.seconds, 3)}
    return {"kind": "summary", **{name: totals[name] for name in _SUMMARY}}


def _summary_line(compacted: CompactReport) -> str:
    totals, is_dry_run = compacted.totals(), compacted.is_rehearsal
    words = [f"{plural(totals['compacted'], 'partition')} {'would be ' if is_dry_run else ''}compacted"]
    if totals["idle"]:
        words.append(f"{totals['idle']:,} with nothing to do")
    if totals["failed"]:
        words.append(f"{totals['failed']:,} failed")
    if totals["damaged"]:
        words.append(f"{totals['damaged']:,} with damage that was left as it is: duralog verify shows more")
    line = ", ".join(words)
    if totals["compacted"]:
        gone = totals["records_before"] - totals["records_after"]
        verb = "would be removed" if is_dry_run else "removed"
        line += (
            f"; {gone:,} of {plural(totals['records_before'], 'record')} {verb},"
            f" {size_text(totals['freed_bytes'])} freed in {compacted.seconds:.2f} s"
        )
    return line
