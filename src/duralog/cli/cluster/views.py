"""What the `duralog cluster` commands print: tables and sentences for people, or one JSON object a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duralog.cli.voice.tables import Table, plural, size_text
from duralog.config.error_text import printable

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.operations.cluster.explain import ExplainReport
    from duralog.operations.cluster.verify import ClusterVerifyReport, ComparedPartition, CopyFinding
    from duralog.scanning.cluster.explained import ExplainedCopy, ExplainedPartition

_COPIES = {
    "node": 6,
    "role": -9,
    "start": 12,
    "end": 12,
    "same to": 12,
    "epoch": 6,
    "high watermark": 14,
    "directory": -40,
}
_PARTITIONS = {
    "partition": -32,
    "node": 6,
    "copies": 6,
    "batches": 10,
    "bytes": 16,
    "start": 12,
    "high watermark": 14,
    "findings": 8,
}


class Explained:
    def __init__(self, output: Output) -> None:
        self._output = output

    def add(self, found: ExplainedPartition) -> None:
        output = self._output
        if output.as_json:
            output.object(found.to_dict())
            return
        if output.quiet:
            return
        output.heading(printable(str(found.partition)))
        chosen = found.chosen
        output.line(
            printable(
                f"read from node {_known(chosen.node_id)}: {found.reason}; offsets {found.start_offset} to"
                f" {found.high_watermark - 1}, high watermark {found.high_watermark} ({found.high_watermark_source})"
                if found.high_watermark > found.start_offset
                else f"node {_known(chosen.node_id)}: {found.reason}; there is nothing to read"
            )
        )
        table = Table(output, _COPIES, least=("high watermark", "epoch", "start"))
        table.begin()
        for copy in found.copies:
            table.row(_cells(copy))
        table.end()
        for node in found.missing_nodes:
            output.note(
                str(found.partition), f"node {node} has a replica by the cluster metadata, but no copy is given"
            )
        for problem in found.problems:
            output.note(problem.directory, problem.text)

    def end(self, report: ExplainReport) -> None:
        output = self._output
        for problem in report.problems:
            if output.as_json:
                output.object(problem.to_dict())
            else:
                output.note(problem.directory, problem.text)
        if output.as_json:
            output.object(report.to_dict())
            return
        unreadable = f"; {plural(report.unreadable, 'partition')} cannot be read" if report.unreadable else ""
        output.heading(
            f"{plural(report.partitions, 'partition')} in {_directories(report.directories)} of"
            f" {plural(report.nodes, 'node')}{unreadable}"
        )


class Verified:
    def __init__(self, output: Output) -> None:
        self._output = output
        self._table = Table(output, _PARTITIONS, least=("start", "batches", "copies"))
        self._has_begun = False

    def add(self, found: ComparedPartition) -> None:
        output = self._output
        if output.as_json:
            output.object(found.to_dict())
            for each in found.findings:
                self._finding(each)
            for each in found.notes:
                self._note(each)
            return
        if output.quiet:
            return
        if not self._has_begun:
            self._has_begun = True
            self._table.begin()
        self._table.row(
            [
                printable(str(found.explained.partition)),
                _known(found.explained.chosen.node_id),
                str(len(found.explained.copies)),
                f"{found.batches:,}",
                f"{found.size_bytes:,}",
                str(found.explained.start_offset),
                str(found.explained.high_watermark),
                f"{found.finding_count:,}" if found.finding_count else "-",
            ]
        )

    def end(self, report: ClusterVerifyReport) -> None:
        output = self._output
        if self._has_begun:
            self._table.end()
        findings, notes = list(report.findings), list(report.notes)
        if not output.as_json:
            findings = [each for found in report.partitions for each in found.findings] + findings
            notes = [each for found in report.partitions for each in found.notes] + notes
            if not output.quiet and (findings or notes):
                output.line("")
        for each in findings:
            self._finding(each)
        for each in notes:
            self._note(each)
        if output.as_json:
            output.object(report.to_dict())
            return
        rate = report.size_bytes / report.seconds if report.seconds else 0
        verdict = plural(report.finding_count, "finding") if report.finding_count else "no findings"
        output.heading(
            f"{plural(len(report.partitions), 'partition')}, {_copies(report.copies)} in"
            f" {_directories(report.directories)} of {plural(report.nodes, 'node')}, {size_text(report.size_bytes)}"
            f" in {report.seconds:.2f} s ({size_text(int(rate))}/s): {verdict}"
        )

    def _finding(self, found: CopyFinding) -> None:
        if self._output.as_json:
            self._output.object(found.to_dict())
        self._output.damage(str(found))

    def _note(self, found: CopyFinding) -> None:
        if self._output.as_json:
            self._output.object({**found.to_dict(), "kind": "note"})
        else:
            place = found.directory if found.partition is None else f"{found.directory}: {found.partition}"
            self._output.note(place, f"{found.finding}: {found.text}")


def _cells(copy: ExplainedCopy) -> list[str]:
    role = "leader" if copy.is_leader else "in sync" if copy.is_in_sync else "-"
    return [
        f"{'*' if copy.is_chosen else ''}{_known(copy.node_id)}",
        role,
        str(copy.start_offset),
        str(copy.end_offset),
        str(copy.same_to),
        str(copy.leader_epoch),
        "-" if copy.high_watermark is None else str(copy.high_watermark),
        printable(copy.directory),
    ]


def _known(node_id: int | None) -> str:
    return "?" if node_id is None else str(node_id)


def _directories(count: int) -> str:
    return "1 directory" if count == 1 else f"{count:,} directories"


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count:,} copies"
