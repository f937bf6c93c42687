"""Runs `duralog compact --explain`: for each log what is new, what would be removed, what prevents it, and what to
do.
"""

from __future__ import annotations

import dataclasses

import typer

from duralog.cli.compact.facts import DUE_ADVICE, summary_line, write_explanation
from duralog.cli.compact.objects import explained_object
from duralog.cli.compact.run import not_compacted, note_no_logs
from duralog.cli.voice.failures import FAILURE
from duralog.cli.voice.screen import Screen
from duralog.operations.compacted_logs import NotCompacted
from duralog.operations.explain import ExplainedPartition, ExplainRequest, explain


def run_explain(request: ExplainRequest, screen: Screen) -> None:
    """Ends the command with an exit code if a log cannot be read or is damaged."""
    output = screen.output

    def show(done: ExplainedPartition) -> None:
        if done.failure is not None:
            screen.say_error(done.partition, done.failure)
        if output.as_json:
            output.object(explained_object(done, request.now_ms))
        elif done.explanation is not None:
            write_explanation(done.explanation, done.config, request.now_ms, output)

    try:
        report = explain(request, on_progress=screen.bar.show, on_partition=show)
    except NotCompacted as error:
        raise not_compacted(error) from None
    note_no_logs(output, report.path, len(report.partitions), report.not_compacted)
    if output.as_json:
        output.object({"kind": "summary", **dataclasses.asdict(report.totals)})
    elif report.partitions:
        output.heading(summary_line(report.totals))
        if report.totals.due:
            output.columns(DUE_ADVICE)
    if not report.is_well:
        raise typer.Exit(FAILURE)
