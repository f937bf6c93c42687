"""`/acls`: the access control entries of the broker, or those in the metadata of the directory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import run, ui

from duralog.config.error_text import describe, printable
from duralog.console.changes.acl_forms import add_acl_form, can_be_named, remove_acl_form
from duralog.console.drawing.words import counted
from duralog.console.facts.acls import AclFacts, AclsView
from duralog.console.facts.overview import SourceKind
from duralog.console.ui.change_dialog import change_button, open_change
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows
from duralog.console.ui.elements import block, heading, text
from duralog.console.ui.layout import Console, live
from duralog.errors import DuralogError

_REFRESH_SECONDS = 15.0
"""For what others change: it opens the directory, or asks the broker."""
_DISABLED = (
    "This broker has no authorizer (SECURITY_DISABLED): there are no ACLs, and everyone who can connect may do"
    " everything. Set authorizer.class.name and start it again: see docs/security.md."
)
_OF_DIRECTORY = "The ACLs in this directory. A broker on it enforces them if authorizer.class.name is set."


def register(console: Console) -> None:
    @console.page("/acls")
    def acls_page(q: str = "") -> None:
        with console.frame("ACLs", marker="page-acls", here="acls"):
            _AclsPage(console, q)


class _AclsPage:
    def __init__(self, console: Console, query: str) -> None:
        self._console = console
        is_directory = console.source.overview().kind == SourceKind.DIRECTORY
        heading("Access control lists", _OF_DIRECTORY if is_directory else "")
        self._actions = block("div", "actions")
        with self._actions:
            change_button(console, "Add …", "add-acl", add_acl_form, when_done=self._load)
        with block("section", "part", marker="acls-part") as self._part:
            self._note = text("p", "Reading the ACLs …", "about loading", marker="acls-note", role="status")
            self._table = _table(query, self._remove)
        self._show(False)
        ui.timer(0, self._load, once=True)
        live(self._load, _REFRESH_SECONDS)

    async def _load(self) -> None:
        try:
            view = await run.io_bound(self._console.changer.acls)
        except (DuralogError, OSError) as error:
            self._say(printable(describe(error)))
            return
        if view is None or self._part.is_deleted:
            return  # The console is being stopped.
        self._say(_about(view))
        self._table.show(view.entries)
        self._show(not view.is_disabled)

    def _show(self, is_visible: bool) -> None:
        self._actions.set_visibility(is_visible)
        self._table.set_visibility(is_visible)

    def _say(self, sentence: str) -> None:
        self._note.classes(remove="loading")
        self._note.text = sentence

    async def _remove(self, entry: AclFacts) -> None:
        await open_change(self._console, self._part, lambda: remove_acl_form(entry), self._load)


def _about(view: AclsView) -> str:
    if view.is_disabled:
        return _DISABLED
    principals = len({entry.principal for entry in view.entries})
    return f"{counted(len(view.entries), 'ACL')} of {counted(principals, 'principal')}."


def _table(query: str, on_remove: Callable[[AclFacts], Awaitable[None]]) -> DataTable[AclFacts]:
    return DataTable(
        "acls",
        "ACLs",
        (
            Column(name="principal", label="Principal", cell=_principal, sort=_by_principal),
            Column(name="permission", label="Permission", cell=_permission, sort=lambda row: row.permission),
            Column(name="operation", label="Operation", cell=_operation, sort=lambda row: row.operation),
            Column(name="resource", label="Resource", cell=_resource, sort=_by_resource),
            Column(name="pattern", label="Pattern", cell=lambda row: row.pattern, wide=True),
            Column(name="host", label="Host", cell=lambda row: row.host, sort=lambda row: row.host, wide=True),
            Column(name="remove", label="", cell=_remove_cell),
        ),
        TableRows(key=str, search=_searched, query=query, sort="principal"),
        empty="There are no ACLs: only super.users may do anything, unless allow.everyone.if.no.acl.found is set.",
        on_act=on_remove,
    )


def _by_principal(row: AclFacts) -> tuple[str, ...]:
    return row.principal, row.resource_type, row.resource_name, row.pattern, row.operation, row.permission, row.host


def _by_resource(row: AclFacts) -> tuple[str, ...]:
    return row.resource_type, row.resource_name, row.pattern, row.principal, row.operation, row.permission, row.host


def _searched(row: AclFacts) -> str:
    return " ".join((*_by_principal(row), _operation(row), _kind(row)))


def _principal(row: AclFacts) -> Cell:
    return {"text": row.principal, "narrow": "" if row.host == "*" else f"from {row.host}"}


def _permission(row: AclFacts) -> Cell:
    return {"text": row.permission, "tone": "bad" if row.permission == "deny" else ""}


def _operation(row: AclFacts) -> str:
    return row.operation.replace("_", " ")


def _kind(row: AclFacts) -> str:
    return row.resource_type.replace("_", " ")


def _resource(row: AclFacts) -> Cell:
    return {"text": row.resource_name, "sub": _kind(row), "narrow": "" if row.pattern == "literal" else row.pattern}


def _remove_cell(row: AclFacts) -> Cell:
    if not can_be_named(row):
        return {"text": "", "title": "duralog acl has no option for this type of resource: use kafka-acls."}
    return {"text": "Remove", "act": f"Remove the ACL of {row.principal} for {row.operation} on {row.resource_name}"}
