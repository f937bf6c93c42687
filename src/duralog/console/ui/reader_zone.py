"""The time zone of the reader of a page: its browser keeps the name in a cookie (`assets/console.js`)."""

from __future__ import annotations

from nicegui import ui

from duralog.console.drawing.reader_zone import IN_UTC, ReaderZone, zone_of

COOKIE = "duralog-zone"


def zone_here() -> ReaderZone:
    """The zone of the page that is being built, or whose event is being handled. UTC until the browser has sent its
    zone.
    """
    client = ui.context.client
    return IN_UTC if client._request is None else zone_of(client.request.cookies.get(COOKIE))
