"""`/configs`: all configs of the broker, or those that a broker would have that is started on the directory."""

from __future__ import annotations

from nicegui import run, ui

from duralog.config import BROKER_CONFIGS
from duralog.config.entries import ALL_BROKERS_SOURCE, THIS_BROKER_SOURCE
from duralog.config.error_text import describe, printable
from duralog.console.changes.topic_forms import broker_config_form
from duralog.console.drawing.config_rows import ConfigRow, config_rows
from duralog.console.drawing.words import counted
from duralog.console.facts.overview import SourceKind
from duralog.console.ui.change_dialog import open_change
from duralog.console.ui.config_table import ConfigTable
from duralog.console.ui.elements import block, heading, text
from duralog.console.ui.layout import Console, live
from duralog.errors import DuralogError

_STORED = frozenset({THIS_BROKER_SOURCE, ALL_BROKERS_SOURCE})
_REFRESH_SECONDS = 30.0
"""For what others change: it opens the directory, or asks the broker."""


def register(console: Console) -> None:
    @console.page("/configs")
    def configs_page() -> None:
        with console.frame("Configs", marker="page-configs", here="configs"):
            _ConfigsPage(console)


class _ConfigsPage:
    def __init__(self, console: Console) -> None:
        self._console = console
        is_directory = console.source.overview().kind == SourceKind.DIRECTORY
        self._about = heading(
            "Configs of the broker",
            "The configs of a broker that is started on this directory without a server.properties."
            if is_directory
            else "",
        )
        with block("section", "part", marker="configs-part") as self._part:
            self._note = text("p", "Reading the configs …", "about loading", marker="configs-note", role="status")
            self._table = ConfigTable("broker-configs", "Configs", self._edit)
            self._table.set_visibility(False)
        ui.timer(0, self._load, once=True)
        live(self._load, _REFRESH_SECONDS)

    async def _load(self) -> None:
        try:
            entries = await run.io_bound(self._console.changer.broker_configs)
        except (DuralogError, OSError) as error:
            self._say(printable(describe(error)))
            return
        if entries is None or self._part.is_deleted:
            return  # The console is being stopped.
        rows = config_rows(entries, BROKER_CONFIGS, stored=_STORED)
        changed = sum(not row.is_default for row in rows)
        self._say(f"{counted(len(rows), 'config')}, {changed} of them not at Kafka's default.")
        self._table.show(rows)
        self._table.set_visibility(True)

    def _say(self, sentence: str) -> None:
        self._note.classes(remove="loading")
        self._note.text = sentence

    async def _edit(self, row: ConfigRow) -> None:
        await open_change(
            self._console,
            self._part,
            lambda: broker_config_form(row.name, row.typed, row.explanation, is_set=row.is_set_here),
            self._load,
        )
