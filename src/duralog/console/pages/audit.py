"""`/audit`: the newest entries of the broker's audit log, for users with the role `administer`.

Without that role, or without `--audit-log`, the page does not exist: the answer does not reveal whether there is a
file.
"""

from __future__ import annotations

from typing import Any

from nicegui import run, ui

from duralog.broker.audit.log import read_last
from duralog.config.error_text import describe, printable
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows
from duralog.console.ui.elements import heading, text
from duralog.console.ui.layout import Console, PageMissing, live

_MOST_ENTRIES = 500
_SECONDS = 5.0

Entry = dict[str, Any]


def register(console: Console) -> None:
    @console.page("/audit")
    def audit_page() -> None:
        if not console.shows_audit_log():
            raise PageMissing("there is no such page")
        with console.frame("Audit", marker="page-audit", here="audit"):
            _AuditPage(console)


class _AuditPage:
    def __init__(self, console: Console) -> None:
        self._console = console
        heading("Audit")
        self._note = text("p", "Looking …", "about", marker="audit-note")
        self._table: DataTable[tuple[int, Entry]] = DataTable(
            "audit",
            "Entries",
            (
                Column(name="time", label="Time", cell=_text_of("time"), sort=lambda row: -row[0], mono=True),
                Column(name="event", label="Event", cell=_event),
                Column(name="principal", label="Principal", cell=_text_of("principal")),
                Column(name="host", label="Host", cell=_text_of("host"), wide=True),
                Column(name="api", label="Request", cell=_text_of("api")),
                Column(name="resource", label="Resource", cell=_resource),
                Column(name="result", label="Result", cell=_text_of("result")),
                Column(name="detail", label="Detail", cell=_text_of("detail"), wide=True),
            ),
            TableRows(
                key=lambda row: str(row[0]),
                search=lambda row: " ".join(map(str, row[1].values())),
                search_from=10,
                sort="time",
                descending=True,
            ),
        )
        ui.timer(0, self._load, once=True)
        live(self._load, _SECONDS)

    async def _load(self) -> None:
        path = self._console.audit_log
        # The role may have been revoked since the page was opened.
        if path is None or not self._console.shows_audit_log():
            self._table.show(())
            self._note.text = "The audit log is for users with the role administer."
            return
        try:
            entries = await run.io_bound(read_last, path, _MOST_ENTRIES)
        except OSError as error:
            self._note.text = printable(describe(error))
            return
        self._note.text = (
            f"The last {len(entries)} entries of {printable(path)}, the newest first."
            if entries
            else f"There is no entry in {printable(path)}: see duralog.audit.log.file of the broker."
        )
        self._table.show(tuple(enumerate(entries or ())))


def _text_of(name: str) -> Any:
    def cell(row: tuple[int, Entry]) -> Cell:
        return str(row[1].get(name, ""))

    return cell


def _event(row: tuple[int, Entry]) -> Cell:
    event = str(row[1].get("event", ""))
    if event == "dropped":
        return {"text": f"{row[1].get('count', '')} entries were lost", "tone": "bad"}
    return {"text": event, "tone": "quiet" if event == "change" else "warn"}


def _resource(row: tuple[int, Entry]) -> Cell:
    kind, name = row[1].get("resource_type", ""), row[1].get("resource", "")
    return {"text": str(name), "sub": str(kind).lower()} if kind else str(name)
