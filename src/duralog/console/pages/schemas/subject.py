"""`/subjects/{subject}?version=3&against=2`: its versions, the text of one, and its differences from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nicegui import run, ui
from starlette.requests import Request

from duralog.console.drawing.record_rows import merged
from duralog.console.drawing.schema_comparison import Comparison, compare
from duralog.console.drawing.schema_difference import laid_out
from duralog.console.drawing.shown_bytes import Form, shown, visible
from duralog.console.drawing.words import SUBJECTS_PATH, bytes_text, counted, subject_path, topic_path
from duralog.console.facts.schemas import SubjectsView, topic_of
from duralog.console.pages.schemas.comparison import show_comparison
from duralog.console.ui.data_table import Column, DataTable, TableRows, number_column
from duralog.console.ui.elements import block, heading, problem, section, text
from duralog.console.ui.layout import Console
from duralog.console.ui.schema_elements import SchemaText
from duralog.schemas.registered_schema import SchemaType, SubjectVersion

_MOST_USERS = 50
_DIGITS = 10


def register(console: Console) -> None:
    @console.page(f"{SUBJECTS_PATH}/{{subject:path}}")
    def subject_page(subject: str, request: Request) -> None:
        crumbs = (("Schemas", SUBJECTS_PATH),)
        with console.frame(subject, marker="page-subject", here="schemas", crumbs=crumbs):
            _SubjectPage(console, subject, dict(request.query_params))


class _SubjectPage:
    def __init__(self, console: Console, subject: str, query: Mapping[str, str]) -> None:
        self._source = console.source
        self._subject = subject
        self._query = query
        self._about = heading(subject, "Reading the schemas …")
        self._body = block("div")
        ui.timer(0, self._load, once=True)

    async def _load(self) -> None:
        view = await run.io_bound(self._source.payloads.subjects)
        if view is None or self._is_closed():
            return
        versions = view.catalogue.versions(self._subject, deleted=True)
        if view.trouble is not None or not versions:
            self._about.text = ""
            with self._body:
                problem("Not found", view.trouble or f"There is no subject {visible(self._subject)} in {view.origin}.")
            return
        living = [each for each in versions if not each.deleted] or versions
        chosen = _of(versions, self._query.get("version")) or living[-1]
        before = [each for each in versions if each.version < chosen.version]
        other = _of(versions, self._query.get("against")) or (before[-1] if before else None)
        compared: Comparison | None = None
        if other is not None and other != chosen:
            compared = await run.io_bound(compare, view, chosen, other)
            if self._is_closed():
                return
        level, whose = view.level(self._subject)
        where = {"default": "the default", "all subjects": "set for all subjects"}.get(whose, f"set for the {whose}")
        self._about.text = f"{chosen.schema.type}, {counted(len(versions), 'version')}; compatibility {level} ({where})"
        with self._body:
            self._links(view)
            with section("Versions", marker="versions-part"):
                _versions_table(self._subject, chosen).show(versions[::-1])
            if compared is not None:
                show_comparison(self._subject, versions, compared)
            _schema_part(view, chosen)

    def _is_closed(self) -> bool:
        """Whether the reader has left the page while it waited for a worker thread."""
        return self._body.is_deleted

    def _links(self, view: SubjectsView) -> None:
        topic = topic_of(self._subject, frozenset(each.name for each in self._source.overview().topics))
        users = _referrers(view, self._subject)
        if topic is None and not users:
            return
        with block("div", "actions"):
            if topic is not None:
                text("a", f"Topic {topic}", "quiet-button", marker="subject-topic", href=topic_path(topic))
            if users:
                text("span", "Referenced by", "below")
            for name in users[:_MOST_USERS]:
                text("a", visible(name), "quiet-button", href=subject_path(name))


def _schema_part(view: SubjectsView, chosen: SubjectVersion) -> None:
    schema = chosen.schema
    about = ", ".join(
        part
        for part in (
            f"id {schema.id}",
            f"GUID {schema.guid}" if schema.guid is not None else "",
            str(schema.type),
            bytes_text(len(schema.text.encode("utf-8", "replace"))),
            "soft-deleted" if chosen.deleted else "",
        )
        if part
    )
    with section(f"Version {chosen.version}", about, marker="schema-part"):
        if schema.references:
            with block("ul", "plain-list", marker="references"):
                for reference in schema.references:
                    with block("li"):
                        text("span", f"imports {visible(reference.name)} from ")
                        version = None if reference.version == -1 else reference.version
                        label = "latest version" if version is None else f"version {version}"
                        is_there = bool(view.catalogue.versions(reference.subject, deleted=True))
                        name = f"{visible(reference.subject)} {label}"
                        if is_there:
                            text("a", name, href=subject_path(reference.subject, version))
                        else:
                            text("span", f"{name}, which is gone", "tone bad")
        laid = laid_out(schema.type, schema.text)
        form = Form.TEXT if schema.type is SchemaType.PROTOBUF else Form.JSON
        what = shown(laid.encode("utf-8", "replace"), form)
        SchemaText(merged(what.tokens), copy=schema.text)
        if what.is_cut:
            text("p", "The rest is too long to be shown here: Copy has all of it.", "about")


def _versions_table(subject: str, chosen: SubjectVersion) -> DataTable[SubjectVersion]:
    return DataTable(
        "versions",
        "Versions",
        (
            Column(
                name="version",
                label="Version",
                cell=lambda row: {
                    "text": str(row.version),
                    "href": subject_path(subject, row.version),
                    **({"sub": "shown below"} if row.version == chosen.version else {}),
                },
                sort=lambda row: row.version,
            ),
            number_column("id", "Id", lambda row: row.schema.id),
            Column(name="type", label="Type", cell=lambda row: str(row.schema.type), wide=True),
            number_column("references", "References", lambda row: len(row.schema.references), wide=True),
            Column(
                name="state",
                label="State",
                cell=lambda row: {"text": "soft-deleted", "tone": "warn"} if row.deleted else "",
            ),
            Column(
                name="compare",
                label="Compare",
                cell=lambda row: (
                    ""
                    if row.version == chosen.version
                    else {
                        "text": f"with version {chosen.version}",
                        "href": subject_path(subject, chosen.version, row.version),
                    }
                ),
            ),
        ),
        TableRows(key=lambda row: str(row.version), on_a_page=10),
    )


def _of(versions: Sequence[SubjectVersion], number: str | None) -> SubjectVersion | None:
    """The version in the address; None if there is none."""
    if number is None or not (number.isascii() and number.isdecimal()) or len(number) > _DIGITS:
        return None
    return next((each for each in versions if each.version == int(number)), None)


def _referrers(view: SubjectsView, subject: str) -> list[str]:
    """The subjects that import this one."""
    catalogue = view.catalogue
    return [
        name
        for name in catalogue.subjects(deleted=True)
        if any(
            reference.subject == subject
            for version in catalogue.versions(name, deleted=True)
            for reference in version.schema.references
        )
    ]
