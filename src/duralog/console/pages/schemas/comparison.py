"""The comparison of two versions on a subject's page: verdicts, fields, and the texts side by side."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from duralog.console.drawing.schema_comparison import Comparison, Verdict
from duralog.console.drawing.schema_difference import Change, FieldChange
from duralog.console.drawing.shown_bytes import visible
from duralog.console.drawing.words import counted, subject_path
from duralog.console.ui.data_table import Column, DataTable, TableRows
from duralog.console.ui.elements import block, section, text
from duralog.console.ui.schema_elements import SchemaDifference
from duralog.schemas.registered_schema import SubjectVersion

_TONES = {Change.ADDED: "good", Change.REMOVED: "bad", Change.CHANGED: "warn"}
_VALUE = "(event) => emit(event.target.value)"


def show_comparison(subject: str, versions: Sequence[SubjectVersion], compared: Comparison) -> None:
    older, newer = compared.older, compared.newer
    with section(f"From version {older.version} to {newer.version}", marker="comparison-part"):
        _choices(subject, versions, compared)
        with block("div", "verdicts"):
            _level(compared)
            for verdict in compared.verdicts:
                _verdict(verdict)
        if compared.trouble is not None:
            text("p", f"Not compared by meaning: {compared.trouble}", "tone warn", marker="comparison-trouble")
        if compared.fields:
            counts = [
                counted(sum(each.change is change for each in compared.fields), f"field {change}").replace(
                    f"field {change}s", f"fields {change}"
                )
                for change in Change
                if any(each.change is change for each in compared.fields)
            ]
            text("p", ", ".join(counts), "about", marker="field-counts")
            _fields_table().show(list(compared.fields))
        elif compared.trouble is None:
            text("p", "No field was added, removed or changed.", "about", marker="field-counts")
        if any(line.kind not in ("same", "skipped") for line in compared.lines):
            SchemaDifference(compared.lines, f"Version {older.version}", f"Version {newer.version}")
        else:
            text("p", "The texts are the same.", "about")


def _choices(subject: str, versions: Sequence[SubjectVersion], compared: Comparison) -> None:
    def go(old: object, new: object) -> None:
        numbers = [str(each.version) for each in versions]
        if str(old) in numbers and str(new) in numbers:
            ui.navigate.to(subject_path(subject, int(str(new)), int(str(old))))

    with block("div", "compare-choices"):
        for label, marker, chosen, handler in (
            ("From", "compare-from", compared.older, lambda event: go(event.args, compared.newer.version)),
            ("To", "compare-to", compared.newer, lambda event: go(compared.older.version, event.args)),
        ):
            with block("label", "field"):
                text("span", label)
                with block("select", marker=marker) as choice:
                    for each in reversed(versions):
                        deleted = ", soft-deleted" if each.deleted else ""
                        option = text(
                            "option", f"version {each.version} (id {each.schema.id}{deleted})", value=str(each.version)
                        )
                        if each.version == chosen.version:
                            option.props["selected"] = True
                choice.on("change", handler, js_handler=_VALUE)


def _level(compared: Comparison) -> None:
    if compared.is_level_met is None:
        words, tone = f"{compared.level}: not known", "quiet"
    elif compared.is_level_met:
        words, tone = f"{compared.level}: compatible", "good"
    else:
        words, tone = f"{compared.level}: not compatible", "bad"
    with block("div", f"compatibility {tone}", marker="verdict-level"):
        text("strong", words)
        text("span", "by the level of the subject")


def _verdict(verdict: Verdict) -> None:
    found = verdict.problems
    tone = "quiet" if found is None else "bad" if found else "good"
    with block("div", f"compatibility {tone}", marker="verdict"):
        text("strong", {"quiet": "not known", "bad": "no", "good": "yes"}[tone])
        text("span", verdict.question)
        if found:
            with block("ul"):
                for each in found:
                    text("li", visible(each))


def _fields_table() -> DataTable[FieldChange]:
    return DataTable(
        "fields",
        "Fields that differ",
        (
            Column(
                name="change",
                label="Change",
                cell=lambda row: {"text": str(row.change), "tone": _TONES[row.change]},
                sort=lambda row: str(row.change),
            ),
            Column(name="path", label="Field", cell=lambda row: row.path, sort=lambda row: row.path, mono=True),
            Column(name="declared", label="Declared as", cell=_declared, mono=True),
        ),
        TableRows(key=lambda row: row.path, on_a_page=20),
    )


def _declared(row: FieldChange) -> str:
    return f"{row.before} → {row.after}" if row.change is Change.CHANGED else row.after or row.before
