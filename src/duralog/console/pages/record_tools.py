"""The tools above the records: go to an offset, time or key, page, scroll along the log, and follow its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from duralog.console.drawing.reader_zone import NotATime
from duralog.console.drawing.record_place import NotAPlace, Place, place_of
from duralog.console.drawing.words import number_text
from duralog.console.facts.records import RecordPage
from duralog.console.ui.elements import block, text
from duralog.console.ui.reader_zone import zone_here

_LONGEST = 5_000
_STEPS = 1_000
"""Of the slider along the log."""
_VALUE = "(event) => emit(event.target.value)"
Go = Callable[[Place], Awaitable[None]]


class RecordTools:
    def __init__(
        self, go: Go, turn: Callable[[bool], Awaitable[None]], follow: Callable[[], Awaitable[None]], search_path: str
    ) -> None:
        """`search_path` is the page that searches and downloads the records of the partition."""
        self._go = go
        self._zone = zone_here()
        self._page: RecordPage | None = None
        with block("div", "record-tools"):
            with block("div", "jumps"):
                self._fields = {
                    "offset": self._field("offset", "Go to offset", "0", "jump-offset", inputmode="numeric"),
                    "time": self._field("time", "Go to time", "-1h, 2026-01-31 12:00", "jump-time"),
                    "key": self._field("key", "Find key", "user-17 or 0x00ff", "find-key", data_search=""),
                }
            with block("div", "turns"):
                oldest = self._button("⇤", "Oldest records", "oldest")
                oldest.on("click", self._to_oldest)
                self._older = self._button("‹ Older", "Older page (p)", "older")
                self._older.on("click", lambda: turn(False))
                self._newer = self._button("Newer ›", "Newer page (n)", "newer")
                self._newer.on("click", lambda: turn(True))
                newest = self._button("⇥", "Newest records", "newest")
                newest.on("click", lambda: go(Place()))
                self._follow = self._button("Follow", "Follow the tail (f)", "follow")
                self._follow.props["aria-pressed"] = "false"
                self._follow.on("click", lambda: follow())
                text("a", "Search …", "quiet-button", marker="search-records", href=search_path)
        with block("div", "along") as self._along:
            self._start = text("span", "", "below")
            self._slider = block(
                "input",
                type="range",
                min="0",
                max=str(_STEPS),
                step="1",
                marker="position",
                aria_label="Place in the log",
            )
            self._slider.on("change", self._slid, js_handler=_VALUE)
            self._end = text("span", "", "below")

    def show_place(self, place: Place) -> None:
        for name, value in (
            ("offset", place.offset),
            ("time", place.time and self._zone.typed(place.time)),
            ("key", place.key),
        ):
            shown = "" if value is None or (name == "offset" and place.is_backwards) else str(value)
            # Sent only if it differs, so that input in progress is not lost.
            if self._fields[name].props.get("value", "") != shown:
                self._fields[name].props["value"] = shown
        self._follow.props["aria-pressed"] = "true" if place.is_followed else "false"
        self._along.set_visibility(place.key is None and self._page is not None)
        if place.key is not None:
            self._enable(self._older, False)
            self._enable(self._newer, False)

    def show_page(self, page: RecordPage) -> None:
        self._page = page
        self._along.set_visibility(page.end_offset > page.start_offset)
        self._start.text, self._end.text = number_text(page.start_offset), number_text(page.end_offset)
        span = max(page.end_offset - page.start_offset, 1)
        at = page.next_offset if page.is_at_end else page.first_offset
        self._slider.props["value"] = str((at - page.start_offset) * _STEPS // span)
        self._enable(self._older, page.previous_offset is not None)
        self._enable(self._newer, not page.is_at_end)

    def _field(self, name: str, label: str, placeholder: str, marker: str, **attributes: str) -> Element:
        with block("label", "field"):
            text("span", label)
            field = block(
                "input", marker=marker, placeholder=placeholder, autocomplete="off", spellcheck="false", **attributes
            )
        return field.on("keydown.enter", lambda event: self._entered(name, event), js_handler=_VALUE)

    async def _entered(self, name: str, event: GenericEventArguments) -> None:
        typed = str(event.args)[:_LONGEST]
        try:
            if name == "time" and typed.strip():
                typed = self._zone.link(typed)
            await self._go(place_of({name: typed}))
        except (NotAPlace, NotATime) as error:
            ui.notify(str(error), type="warning", position="bottom")

    async def _to_oldest(self) -> None:
        await self._go(Place(offset=0 if self._page is None else self._page.start_offset))

    async def _slid(self, event: GenericEventArguments) -> None:
        page, step = self._page, str(event.args)
        if page is None or not step.isdecimal() or len(step) > 5:
            return
        if int(step) >= _STEPS:
            await self._go(Place())
        else:
            await self._go(
                Place(offset=page.start_offset + (page.end_offset - page.start_offset) * int(step) // _STEPS)
            )

    def _button(self, label: str, tip: str, marker: str) -> Element:
        return text("button", label, "quiet-button", type="button", marker=marker, title=tip, aria_label=tip)

    def _enable(self, button: Element, is_on: bool) -> None:
        if is_on:
            button.props.pop("disabled", None)
            button.update()
        else:
            button.props["disabled"] = True
