"""The panel of the opened record: read completely if it is small, in the forms that the reader has chosen.

A result for a record that is no longer open is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import run

from duralog.config.error_text import describe, printable
from duralog.console.drawing.record_rows import panel_of
from duralog.console.drawing.shown_bytes import Form
from duralog.console.drawing.words import number_text
from duralog.console.facts.records import ShownRecord
from duralog.console.pages.record_resend import OpenedRecord, offer_resend
from duralog.console.ui.layout import Console
from duralog.console.ui.partition_elements import Handler, RecordPanel
from duralog.console.ui.reader_zone import zone_here
from duralog.errors import DuralogError

_WHOLE_AT_ONCE_BYTES = 256 << 10
"""A record up to this size is read whole when it is opened."""

Adorn = Callable[[dict[str, Any], ShownRecord], None]


class RecordView:
    def __init__(
        self, console: Console, topic: str, *, on_close: Handler, say: Callable[[str], None], adorn: Adorn | None = None
    ) -> None:
        """`say` shows a problem. `adorn` changes the content of the panel."""
        self._source = console.source
        self._topic = topic
        self._say = say
        self._adorn = adorn
        self._zone = zone_here()
        self._opened: OpenedRecord | None = None
        self._record: ShownRecord | None = None
        self._forms: dict[str, Form] = {}
        self._panel = RecordPanel(on_close=on_close, on_form=self._choose_form, on_more=self._read_whole)
        offer_resend(console, self._panel, lambda: self._opened)

    def close(self) -> None:
        self._opened = self._record = None
        self._forms = {}
        self._panel.show(None)

    async def open(self, partition: int, offset: int, known: ShownRecord | None) -> None:
        """`known` is the record as the list has it, maybe cut; None if it is not in the list."""
        opened = OpenedRecord(self._topic, partition, offset)
        if opened != self._opened:
            self._forms = {}
        self._opened = opened
        if known is None or (known.is_cut and known.size_bytes <= _WHOLE_AT_ONCE_BYTES):
            await self._read_whole()
        else:
            await self._show(known)

    async def _read_whole(self) -> None:
        opened = self._opened
        if opened is None:
            return
        try:
            record = await run.io_bound(self._read, opened)
        except (DuralogError, OSError) as error:
            self._say(printable(describe(error)))
            return
        if opened != self._opened:
            return
        if record is None:
            self._say(f"There is no record at offset {number_text(opened.offset)} of partition {opened.partition}.")
            self._panel.show(None)
            return
        await self._show(record)

    def _read(self, opened: OpenedRecord) -> ShownRecord | None:
        """On a worker thread."""
        record = self._source.record(*opened)
        if record is None:
            return None
        (decoded,) = self._source.payloads.decoded(opened.topic, opened.partition, [record])
        return decoded

    async def _show(self, record: ShownRecord) -> None:
        # Laying out a large document takes too long for the event loop.
        opened, self._record = self._opened, record
        if opened is None:
            return
        panel = await run.io_bound(panel_of, self._topic, opened.partition, record, self._forms, self._zone)
        if panel is not None and opened == self._opened:
            if self._adorn is not None:
                self._adorn(panel, record)
            self._panel.show(panel)

    async def _choose_form(self, part: str, form: str) -> None:
        if part in ("key", "value") and form in set(Form) and self._record is not None:
            self._forms = {**self._forms, part: Form(form)}
            await self._show(self._record)
