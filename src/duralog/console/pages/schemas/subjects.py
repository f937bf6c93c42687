"""`/subjects`: all subjects, of the topic `_schemas` or of a registry."""

from __future__ import annotations

from dataclasses import dataclass

from nicegui import run, ui

from duralog.console.drawing.words import SUBJECTS_PATH, counted, subject_path, topic_path
from duralog.console.facts.schemas import SubjectsView, topic_of
from duralog.console.pages.schemas import subject as subject_page
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows, number_column
from duralog.console.ui.elements import block, empty_state, heading, note_list, section, text
from duralog.console.ui.layout import Console, live
from duralog.schemas.registered_schema import SubjectVersion

_REFRESH_SECONDS = 5.0
_MOST_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    versions: tuple[SubjectVersion, ...]
    """Also soft-deleted ones, oldest first."""
    level: str
    whose: str
    """Where the level is set."""
    topic: str | None

    @property
    def living(self) -> tuple[SubjectVersion, ...]:
        return tuple(each for each in self.versions if not each.deleted)

    @property
    def latest(self) -> SubjectVersion:
        return (self.living or self.versions)[-1]


def register(console: Console) -> None:
    @console.page(SUBJECTS_PATH)
    def subjects_page(q: str = "") -> None:
        with console.frame("Schemas", marker="page-subjects", here="schemas"):
            _SubjectsPage(console, q)

    subject_page.register(console)


class _SubjectsPage:
    def __init__(self, console: Console, query: str) -> None:
        self._source = console.source
        self._shown: SubjectsView | None = None
        self._about = heading("Schemas", "Reading the schemas …")
        with block("div", "actions"):
            text("button", "Read again", "quiet-button", type="button", marker="read-again").on("click", self._again)
        self._notes = block("div")
        with section("Subjects", marker="subjects-part") as self._part:
            self._table = _table(query)
        self._part.set_visibility(False)
        self._nothing = block("div")
        ui.timer(0, self._load, once=True)
        live(self._load, _REFRESH_SECONDS)

    async def _again(self) -> None:
        self._source.payloads.forget()
        await self._load()

    async def _load(self) -> None:
        view = await run.io_bound(self._source.payloads.subjects)
        if view is None or self._part.is_deleted or view == self._shown:
            return
        self._shown = view
        topics = frozenset(topic.name for topic in self._source.overview().topics)
        catalogue = view.catalogue
        rows = [
            _Row(name, tuple(catalogue.versions(name, deleted=True)), *view.level(name), topic_of(name, topics))
            for name in catalogue.subjects(deleted=True)
        ]
        self._about.text = (
            f"{counted(len(rows), 'subject')}, {counted(len(catalogue), 'schema')} of {view.origin}"
            if view.trouble is None and view.is_there
            else ""
        )
        self._table.show(rows)
        self._part.set_visibility(bool(rows))
        self._notes.clear()
        with self._notes:
            if view.trouble is not None:
                note_list([f"The schemas cannot be read: {view.trouble}"], tone="bad", marker="schemas-trouble")
            if catalogue.problems:
                note_list([f"{problem[:1].upper()}{problem[1:]}." for problem in catalogue.problems[:_MOST_PROBLEMS]])
        self._nothing.clear()
        if not rows and view.trouble is None:
            with self._nothing:
                _nothing(view)


def _nothing(view: SubjectsView) -> None:
    if view.is_there:
        empty_state(f"There is no schema in {view.origin} yet.")
    else:
        empty_state(
            "There is no topic _schemas here. If schemas are in a registry, start the console with its address:",
            "duralog console DIR --schema-registry http://localhost:8081",
        )


def _table(query: str) -> DataTable[_Row]:
    return DataTable(
        "subjects",
        "Subjects",
        (
            Column(name="name", label="Subject", cell=_name_cell, sort=lambda row: row.name),
            Column(
                name="type",
                label="Type",
                cell=lambda row: str(row.latest.schema.type),
                sort=lambda row: str(row.latest.schema.type),
            ),
            number_column("versions", "Versions", lambda row: len(row.versions), wide=True),
            Column(
                name="latest",
                label="Latest",
                cell=lambda row: {
                    "text": f"version {row.latest.version}",
                    "href": subject_path(row.name, row.latest.version),
                },
                sort=lambda row: row.latest.version,
                wide=True,
            ),
            number_column("id", "Id", lambda row: row.latest.schema.id, hint="Of the latest version", wide=True),
            Column(
                name="level",
                label="Compatibility",
                cell=lambda row: {
                    "text": row.level,
                    "tone": "quiet" if row.whose != "subject" else "",
                    "title": "The default" if row.whose == "default" else f"Set for: {row.whose}",
                },
                sort=lambda row: row.level,
            ),
            number_column("references", "References", lambda row: len(row.latest.schema.references), wide=True),
            Column(name="topic", label="Topic", cell=_topic_cell, sort=lambda row: row.topic or "", wide=True),
        ),
        TableRows(
            key=lambda row: row.name,
            search=lambda row: f"{row.name} {row.latest.schema.type} {row.topic or ''}",
            query=query,
            sort="name",
        ),
        empty="No subject yet.",
    )


def _name_cell(row: _Row) -> Cell:
    cell: dict[str, str] = {"text": row.name, "href": subject_path(row.name)}
    deleted = len(row.versions) - len(row.living)
    if deleted:
        cell["sub"] = "soft-deleted" if not row.living else f"{counted(deleted, 'version')} soft-deleted"
    return cell


def _topic_cell(row: _Row) -> Cell:
    return "" if row.topic is None else {"text": row.topic, "href": topic_path(row.topic)}
