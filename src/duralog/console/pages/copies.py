"""`/copies`: the copies of a cluster's partitions, a row for each partition and a column for each node.

The page exists if the console was started with `--copies`. A button starts a comparison, which reads every byte.
"""

from __future__ import annotations

from duralog.config.error_text import printable
from duralog.console.facts.copies import ClusterCopies, CopiesRow, CopiesView, CopyFindingRow
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows
from duralog.console.ui.elements import block, heading, section, text
from duralog.console.ui.layout import Console, PageMissing, live

_Finding = tuple[int, CopyFindingRow]


def register(console: Console) -> None:
    @console.page("/copies")
    def copies_page() -> None:
        if console.copies is None:
            raise PageMissing("there is no such page")
        with console.frame("Copies", marker="page-copies", here="copies"):
            _CopiesPage(console.copies)


class _CopiesPage:
    def __init__(self, copies: ClusterCopies) -> None:
        self._copies = copies
        self._shown: CopiesView | None = None
        heading("Copies", f"Replicas of partitions in {printable(copies.place)}.")
        with block("div", "row"):
            self._button = text("button", "Compare", "button", marker="compare", type="button")
            self._button.on("click", self._compare)
            self._summary = text("p", "", "about", marker="copies-summary")
        self._tables = block("div")
        self._refresh()
        live(self._refresh)

    def _compare(self) -> None:
        self._copies.compare()
        self._refresh()

    def _refresh(self) -> None:
        view = self._copies.view()
        if view is self._shown:
            return
        self._shown = view
        if view.is_running:
            self._summary.text = f"Comparing every batch: {view.share:.0%}"
            return
        self._summary.text = printable(view.summary) or "Compare reads every byte of every copy, and changes nothing."
        self._tables.clear()
        if view.rows:
            with self._tables:
                _tables(view)


def _tables(view: CopiesView) -> None:
    about = "A column for each node. The copy that consumers were served has a dot. Hover over a copy for its offsets."
    with section("Partitions by copies", about):
        columns: list[Column[CopiesRow]] = [
            Column(
                name="partition",
                label="Partition",
                cell=lambda row: printable(row.partition),
                sort=lambda row: row.partition,
                mono=True,
            ),
            *(_of_node(node) for node in view.nodes),
            Column(
                name="findings",
                label="Findings",
                cell=lambda row: f"{row.findings:,}",
                sort=lambda row: row.findings,
                numeric=True,
            ),
        ]
        rows: TableRows[CopiesRow] = TableRows(
            key=lambda row: row.partition, search=lambda row: row.partition, search_from=10
        )
        DataTable("copies", "Partitions by copies", columns, rows).show(view.rows)
    if view.findings:
        with section("Findings and notes"):
            _findings_table().show(tuple(enumerate(view.findings)))


def _of_node(node: str) -> Column[CopiesRow]:
    def cell(row: CopiesRow) -> Cell:
        mark = row.marks.get(node)
        if mark is None:
            return ""
        word = f"● {mark.word}" if mark.is_chosen else mark.word
        return {"text": word, "tone": mark.tone, "title": printable(mark.about)}

    return Column(name=f"node-{node}", label=f"Node {node}", cell=cell)


def _findings_table() -> DataTable[_Finding]:
    columns: list[Column[_Finding]] = [
        Column(
            name="partition",
            label="Partition",
            cell=lambda row: {"text": printable(row[1].partition), "sub": row[1].node and f"node {row[1].node}"},
            mono=True,
        ),
        Column(name="finding", label="Finding", cell=_kind),
        Column(
            name="text",
            label="What is wrong",
            cell=lambda row: {"text": printable(row[1].text), "sub": printable(row[1].place)},
        ),
    ]
    rows: TableRows[_Finding] = TableRows(
        key=lambda row: str(row[0]), search=lambda row: f"{row[1].partition} {row[1].text}", search_from=10
    )
    return DataTable("findings", "Findings and notes", columns, rows)


def _kind(row: _Finding) -> Cell:
    return {"text": row[1].finding, "sub": row[1].offsets, "tone": "quiet" if row[1].is_note else "bad"}
