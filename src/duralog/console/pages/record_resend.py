"""The button of an opened record that sends it again: a form filled with it, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nicegui import run

from duralog.console.changes.forms import Form
from duralog.console.changes.record_forms import is_whole, resend_form
from duralog.console.ui.change_dialog import open_change, typed_time_here
from duralog.console.ui.layout import Console
from duralog.console.ui.partition_elements import RecordPanel
from duralog.errors import DuralogError


class OpenedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int


def offer_resend(console: Console, panel: RecordPanel, opened: Callable[[], OpenedRecord | None]) -> None:
    """`opened` is the record that the panel shows now."""

    async def form() -> Form:
        place = opened()
        parse_when = typed_time_here()
        record = None if place is None else await run.io_bound(console.source.record, *place)
        if place is None or record is None:
            raise DuralogError("the record no longer exists")
        if not is_whole(record):
            raise DuralogError("the record is too large to be sent from here: use duralog consume and produce")
        names = [topic.name for topic in console.source.overview().topics if not topic.is_internal]
        return resend_form(place.topic, names, record, parse_when=parse_when)

    parent = panel.parent_slot
    assert parent is not None
    panel.props["canResend"] = True
    panel.on("resend", lambda: open_change(console, parent.parent, form))
