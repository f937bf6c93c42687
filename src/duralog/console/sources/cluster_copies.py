"""Compares the copies of a cluster's partitions, on its own thread: `duralog cluster verify` for a page.

One comparison runs at a time. It only reads, so it need not be stopped when the console ends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from duralog.config.error_text import describe
from duralog.config.plurals import plural
from duralog.config.progress import Progress
from duralog.console.facts.copies import CopiesRow, CopiesView, CopyFindingRow, CopyMark
from duralog.errors import DuralogError
from duralog.operations.cluster.copy_states import DAMAGED, EQUAL, OTHER, SHORT, STATES, node_name, states_of
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.verify import ClusterVerifyReport, CopyFinding, verify_cluster

_TONES = {EQUAL: "good", SHORT: "quiet", OTHER: "warn", DAMAGED: "bad"}
_WORDS = {EQUAL: "equal", SHORT: "ends early", OTHER: "other history", DAMAGED: "damaged"}
_MOST_ROWS = 5_000
_MOST_FINDINGS = 1_000
assert set(_TONES) == set(_WORDS) == set(STATES)


class ComparedDirectories:
    """Log directories of several nodes: paths, globs and manifests."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._lock = threading.Lock()
        self._view = CopiesView()

    @property
    def place(self) -> str:
        return ", ".join(self._paths)

    def view(self) -> CopiesView:
        return self._view

    def compare(self) -> None:
        with self._lock:
            if self._view.is_running:
                return
            self._view = CopiesView(is_running=True)
        threading.Thread(target=self._run, name="duralog-compare", daemon=True).start()

    def _run(self) -> None:
        try:
            view = _view_of(verify_cluster(ClusterRequest(paths=self._paths), on_progress=self._show))
        except (DuralogError, OSError) as error:
            view = CopiesView(summary=describe(error))
        except BaseException:
            self._view = CopiesView(summary="The comparison failed: see the standard error of the console.")
            raise
        self._view = view

    def _show(self, progress: Progress) -> None:
        if progress.total:
            self._view = CopiesView(is_running=True, share=progress.done / progress.total)


def _view_of(report: ClusterVerifyReport) -> CopiesView:
    shown = sorted(report.partitions, key=lambda found: (not found.finding_count, found.explained.partition))
    rows = []
    for found, states in zip(shown, states_of(shown), strict=True):
        chosen = node_name(found.explained.chosen.node_id)
        marks = {
            node: CopyMark(_TONES[state], _WORDS[state], about, is_chosen=node == chosen)
            for node, (state, about) in states.items()
        }
        rows.append(CopiesRow(str(found.explained.partition), marks, found.finding_count))
    findings = [each for found in report.partitions for each in found.findings] + list(report.findings)
    notes = [each for found in report.partitions for each in found.notes] + list(report.notes)
    listed = [*(_row(each, is_note=False) for each in findings), *(_row(each, is_note=True) for each in notes)]
    nodes = {node for row in rows for node in row.marks}
    copies = "1 copy" if report.copies == 1 else f"{report.copies:,} copies"
    partitions = plural(len(report.partitions), "partition")
    verdict = plural(report.finding_count, "finding") if report.finding_count else "no findings"
    cut = [
        f" The first {most:,} {name} are listed."
        for most, name, count in (
            (_MOST_ROWS, "partitions", len(rows)),
            (_MOST_FINDINGS, "findings and notes", len(listed)),
        )
        if count > most
    ]
    return CopiesView(
        summary=f"{copies} of {partitions} compared: {verdict}.{''.join(cut)}",
        nodes=tuple(sorted(nodes, key=lambda node: (node == "?", node.rjust(12)))),
        rows=tuple(rows[:_MOST_ROWS]),
        findings=tuple(listed[:_MOST_FINDINGS]),
    )


def _row(found: CopyFinding, *, is_note: bool) -> CopyFindingRow:
    return CopyFindingRow(
        partition="" if found.partition is None else str(found.partition),
        node=node_name(found.node_id),
        finding=found.finding,
        offsets="" if found.first_offset is None else f"{found.first_offset} to {found.last_offset}",
        text=found.text,
        place=found.file or found.directory,
        is_note=is_note,
    )
