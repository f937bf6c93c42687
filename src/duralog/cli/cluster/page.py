"""The page of `duralog cluster verify --html`: a picture of all copies, then what is wrong with them.

The picture has a row for each partition and a column for each node. Partitions with findings come first; beyond a
limit, the rest is left out. Each mark is a copy; its colour shows the worst finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from duralog.cli.stats.html_report import Section, Table, Tile, page
from duralog.cli.stats.svg_charts import WIDTH, svg, text_mark
from duralog.cli.voice.tables import size_text
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.operations.cluster.copy_states import DAMAGED, EQUAL, OTHER, SHORT, STATES, node_name, states_of

if TYPE_CHECKING:
    from duralog.operations.cluster.verify import ClusterVerifyReport, ComparedPartition, CopyFinding

_MOST_ROWS = 400
_MOST_FINDINGS = 500
_ROW, _HEAD, _LABELS = 16, 22, 250
_LABEL_CHARACTERS = 40
_CLASSES = {EQUAL: "clean", SHORT: "kept", DAMAGED: "dirty", OTHER: "active"}
"""The classes of the page's style."""


def cluster_page(report: ClusterVerifyReport, where: str, now_ms: int) -> str:
    findings = [each for found in report.partitions for each in found.findings] + list(report.findings)
    notes = [each for found in report.partitions for each in found.notes] + list(report.notes)
    rows = sorted(report.partitions, key=lambda found: (not found.finding_count, found.explained.partition))
    tiles = (
        Tile("findings", f"{report.finding_count:,}", "nothing is wrong" if report.is_sound else "see below"),
        Tile("partitions", f"{len(report.partitions):,}"),
        Tile("copies", f"{report.copies:,}", f"in {report.directories:,} directories of {report.nodes:,} nodes"),
        Tile("bytes", size_text(report.size_bytes), "of all copies"),
    )
    left_out = len(rows) - _MOST_ROWS
    sections = [
        Section(
            "Partitions by copies",
            "A row for each partition, those with findings first, and a column for each node. The copy that consumers"
            " were served has a dot." + (f" {left_out:,} more partitions are not shown." if left_out > 0 else ""),
            chart=_picture(rows[:_MOST_ROWS]),
            kinds=tuple((_CLASSES[state], text) for state, text in STATES.items()),
            table=Table(("state", "copies"), _counted(rows), numbers=("copies",)),
        )
    ]
    if findings:
        sections.append(Section("Findings", _shown(findings), table=_table(findings), table_is_open=True))
    if notes:
        sections.append(Section("Notes", "For information: nothing is wrong.", table=_table(notes)))
    when = format_time(now_ms)[:19].replace("T", " ")
    subtitle = f"Compared by duralog cluster verify on {when} UTC, every batch of every copy: {printable(where)}"
    return page("The copies of a cluster", subtitle, tiles, sections)


def _picture(rows: Sequence[ComparedPartition]) -> str:
    states = states_of(rows)
    nodes = sorted({node for each in states for node in each}, key=lambda node: (node == "?", node.rjust(12)))
    if not nodes:
        return ""
    step = min(48.0, (WIDTH - _LABELS - 8) / len(nodes))
    size = min(_ROW - 4, max(step - 3, 1))
    marks = [
        text_mark(_LABELS + (place + 0.5) * step, 14, node, "tick middle")
        for place, node in enumerate(nodes)
        if place % max(1, round(24 / step)) == 0
    ]
    for number, (found, of_nodes) in enumerate(zip(rows, states, strict=True)):
        top = _HEAD + number * _ROW
        name = printable(str(found.explained.partition))
        shown = name if len(name) <= _LABEL_CHARACTERS else f"{name[:18]}\u2026{name[-20:]}"
        marks.append(text_mark(_LABELS - 8, top + 10, shown, "tick end"))
        for place, node in enumerate(nodes):
            if node not in of_nodes:
                continue
            state, text = of_nodes[node]
            left = _LABELS + (place + 0.5) * step - size / 2
            tip = escape(printable(f"{name}, node {node}: {text}"))
            marks.append(
                f'<rect class="{_CLASSES[state]}" x="{left:.5g}" y="{top}" width="{size:.4g}"'
                f' height="{_ROW - 4}" rx="2">'
                f"<title>{tip}</title></rect>"
            )
            if node == node_name(found.explained.chosen.node_id):
                middle = left + size / 2
                marks.append(
                    f'<circle cx="{middle:.5g}" cy="{top + _ROW / 2 - 2:g}" r="{min(2.5, size / 3):.3g}" fill="white"/>'
                )
    return svg(WIDTH, _HEAD + len(rows) * _ROW, "the state of every copy", marks)


def _counted(rows: Sequence[ComparedPartition]) -> list[tuple[str, str]]:
    counts = Counter(state for each in states_of(rows) for state, _ in each.values())
    return [(text, f"{counts[state]:,}") for state, text in STATES.items()]


def _shown(findings: Sequence[CopyFinding]) -> str:
    return f"The first {_MOST_FINDINGS} of {len(findings):,}." if len(findings) > _MOST_FINDINGS else ""


def _table(found: Sequence[CopyFinding]) -> Table:
    rows = [
        (
            "" if each.partition is None else printable(str(each.partition)),
            node_name(each.node_id),
            each.finding,
            "" if each.first_offset is None else f"{each.first_offset} to {each.last_offset}",
            printable(each.text),
            printable(each.file or each.directory),
        )
        for each in found[:_MOST_FINDINGS]
    ]
    return Table(("partition", "node", "finding", "offsets", "what is wrong", "where"), rows)
