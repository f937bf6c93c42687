"""Small elements of pages, plain HTML with classes of the stylesheet.

Untrusted data goes into text and single properties (`element.props["title"] = name`), never into a string that
`props()` or `ui.html` would parse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments

from duralog.console.drawing.shown_bytes import visible

Made = TypeVar("Made", bound=Element)


def block(tag: str, classes: str = "", *, marker: str | None = None, **attributes: str) -> Element:
    """An element of HTML. `aria_label` becomes `aria-label`; a marker is its `data-testid`."""
    return _adorned(ui.element(tag), classes, marker, attributes)


def text(tag: str, content: str, classes: str = "", *, marker: str | None = None, **attributes: str) -> TextElement:
    """An element of HTML with text in it, escaped. `.text = ...` changes it."""
    return _adorned(TextElement(tag=tag, text=content), classes, marker, attributes)


def _adorned(element: Made, classes: str, marker: str | None, attributes: Mapping[str, str]) -> Made:
    if classes:
        element.classes(classes)
    if marker is not None:
        element.props["data-testid"] = marker
    for name, value in attributes.items():
        element.props[name.rstrip("_").replace("_", "-")] = value
    return element


def heading(title: str, about: str = "", *, marker: str = "title") -> TextElement:
    """The heading of a page. Returns the line below it."""
    with block("div", "heading"):
        text("h1", visible(title), marker=marker)
        return text("p", about, "about")


@contextmanager
def section(title: str, about: str = "", *, marker: str | None = None) -> Iterator[Element]:
    """A part of a page with a heading of its own."""
    with block("section", "part", marker=marker) as element:
        name = text("h2", title)
        element.props["aria-labelledby"] = name.html_id
        if about:
            text("p", about, "about")
        yield element


class Tile:
    """A figure with its name and a smaller line below, inside of `block("dl", "tiles")`."""

    def __init__(self, label: str, marker: str, *, below: str | None = None) -> None:
        """`marker` finds the figure, `below` the line below it."""
        with block("div", "tile"):
            text("dt", label)
            with block("dd"):
                self._figure = text("span", "", "figure", marker=marker)
                self._below = text("span", "", "below", marker=below)

    def show(self, figure: str, below: str = "") -> None:
        self._figure.text = figure
        self._below.text = below


def empty_state(sentence: str, command: str = "", *, marker: str = "empty") -> Element:
    """Shown for empty content: the reason, and a command."""
    with block("div", "empty", marker=marker) as element:
        text("p", sentence)
        if command:
            command_line(command)
    return element


def command_line(command: str, *, marker: str = "command") -> TextElement:
    """A command with a copy button."""
    with block("div", "command"):
        element = text("code", command, marker=marker)
        copy_button("event.currentTarget.previousElementSibling", aria_label="Copy the command")
    return element


def copy_button(element: str, *, aria_label: str) -> TextElement:
    """Copies the text of an element, which is an expression of JavaScript with `event`."""

    def say(event: GenericEventArguments) -> None:
        ui.notify("Copied" if event.args is True else "Not copied: select it instead", position="bottom", timeout=1000)

    button = text("button", "Copy", "quiet-button", type="button", aria_label=aria_label)
    return button.on("click", say, js_handler=f"async (event) => emit(await duralog.copy({element}.textContent))")


def problem(title: str, sentence: str) -> None:
    with block("div", "empty problem", marker="problem", role="alert"):
        text("h1", title)
        text("p", sentence, marker="problem-sentence")
        text("a", "Back to the overview", "button", href="/")


def note_list(notes: Sequence[str], *, tone: str = "", marker: str = "notes") -> Element:
    """A list of notes, or with the tone `bad`, of problems."""
    with block("ul", f"notes {tone}".strip(), marker=marker) as element:
        for sentence in notes:
            text("li", sentence)
    return element
