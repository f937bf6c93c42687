"""Running a compaction from the page: a confirmation, the progress, then the result.

The latest run of the process is shown on every page, also after a reload.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from nicegui import ui

from duralog.broker.security.web_users import Role
from duralog.config.error_text import describe, printable
from duralog.console.drawing.compaction_figures import overall_share, progress_words, result_bars, result_figures
from duralog.console.facts.runs import RunState
from duralog.console.source import ChangesNotAllowed, CompactionRun
from duralog.console.ui.elements import block, command_line, note_list, section, text
from duralog.console.ui.figures import FigureList, draw_bar
from duralog.console.ui.layout import Console, live
from duralog.console.viewers import is_allowed, viewer_here
from duralog.errors import DuralogError

_logger = logging.getLogger(__name__)

_REFRESH_SECONDS = 0.3
_NEEDS_ROLE = (
    "To start a compaction here, a user needs the role change. On the machine of the directory, this command does it:"
)


class CompactionRunPart:
    def __init__(self, console: Console, topic: str, partition: int, *, when_over: Callable[[], None]) -> None:
        self._source = console.source
        self._topic = topic
        self._partition = partition
        self._when_over = when_over
        self._shown_run: CompactionRun | None = None
        """The run whose result is on the page."""
        self._was_seen_running = False
        with section("Run") as self._section:
            self._why_not = text("p", "", "about", marker="run-refused")
            with block("div") as self._command:
                command_line(self._source.compaction_command(topic, partition), marker="run-command")
            self._button = text("button", "Compact now …", "button", type="button", marker="run")
            self._button.on("click", js_handler="() => document.querySelector('dialog.confirm').showModal()")
            with block("div", "run-state") as self._running:
                self._bar = block("progress", max="1", value="0", marker="run-progress", aria_label="Compaction")
                self._words = text("p", "", "about", marker="run-words", role="status")
            self._result = block("div", "run-result", marker="run-result")
            self._error = text("p", "", "tone bad", marker="run-error", role="alert")
        self._confirm()
        self._refresh()
        live(self._refresh, _REFRESH_SECONDS)

    def set_visibility(self, is_visible: bool) -> None:
        self._section.set_visibility(is_visible)

    def _confirm(self) -> None:
        with block("dialog", "keys confirm", marker="run-dialog", aria_label="Compact now"):
            text("h2", f"Compact {self._topic}-{self._partition}?")
            text(
                "p",
                "Records that a later one of the same key has superseded are removed permanently, and so are expired"
                " tombstones. This cannot be undone.",
                "about",
            )
            with block("form", "row", method="dialog"):
                text("button", "Compact", "button", value="go", marker="run-confirm").on("click", self._start)
                text("button", "Cancel", "quiet-button", value="cancel", marker="run-cancel")

    def _start(self) -> None:
        try:
            if not is_allowed(Role.CHANGE):
                raise ChangesNotAllowed(_NEEDS_ROLE)
            self._source.compact(self._topic, self._partition)
            if (viewer := viewer_here()) is not None:
                name = printable(viewer.user.name)
                _logger.info("%s started a compaction of %s-%d", name, self._topic, self._partition)
        except (DuralogError, OSError) as error:
            ui.notify(printable(describe(error)), type="negative", position="bottom")
        self._refresh()

    def _refresh(self) -> None:
        why_not = self._source.why_no_compaction(self._topic, self._partition)
        if why_not is None and not is_allowed(Role.CHANGE):
            why_not = _NEEDS_ROLE
        latest = self._source.compaction()
        view = None if latest is None else latest.progress()
        is_ours = view is not None and (view.topic, view.partition) == (self._topic, self._partition)
        is_running = is_ours and view is not None and view.state is RunState.RUNNING
        self._why_not.text = "" if why_not is None or is_running else why_not
        self._why_not.set_visibility(bool(self._why_not.text))
        self._command.set_visibility(why_not is not None and not is_running)
        self._button.set_visibility(why_not is None)
        self._running.set_visibility(is_running)
        if latest is None or view is None or not is_ours:
            return
        if is_running:
            self._was_seen_running = True
            self._bar.props["value"] = f"{overall_share(view):.3f}"
            self._words.text = progress_words(view)
            self._error.text = ""
        elif self._shown_run is not latest:
            self._shown_run = latest
            self._show_end(latest)

    def _show_end(self, ended: CompactionRun) -> None:
        self._error.text = ended.error or ""
        self._result.clear()
        result = ended.result
        if result is not None:
            with self._result:
                if result.rounds:
                    before, after = result_bars(result)
                    draw_bar("Before", before)
                    draw_bar("After", after)
                    FigureList("").show(result_figures(result))
                if result.notes or result.damage:
                    note_list([*result.notes, *result.damage])
        if self._was_seen_running:
            self._was_seen_running = False
            self._when_over()
