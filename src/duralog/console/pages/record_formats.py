"""The line above records: the formats of keys and values, and how they were detected."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import run

from duralog.console.facts.payloads import TopicFormats
from duralog.console.source import Source
from duralog.console.ui.elements import block, text


class RecordFormats:
    """One line that can be expanded. Hidden until the formats are known."""

    def __init__(self, source: Source, topic: str, on_formats: Callable[[TopicFormats], None] = lambda _: None) -> None:
        self._on_formats = on_formats
        self._source = source
        self._topic = topic
        self._shown: tuple[str, ...] = ()
        with block("details", "filter-help formats-line", marker="formats") as self._place:
            self._summary = text("summary", "", marker="formats-summary")
            self._sentences = block("div", marker="formats-findings")
        self._place.set_visibility(False)

    async def refresh(self) -> None:
        """Called after records were shown."""
        formats = await run.io_bound(self._source.payloads.formats, self._topic)
        if formats is None or self._place.is_deleted or self._shown == (formats.summary, *formats.findings):
            return
        self._shown = (formats.summary, *formats.findings)
        self._summary.text = formats.summary
        self._sentences.clear()
        with self._sentences:
            for sentence in formats.findings:
                text("p", sentence, "about")
        self._place.set_visibility(bool(formats.summary))
        self._on_formats(formats)
