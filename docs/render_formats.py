"""Renders docs/formats.md: hand-written text around tables that come from the package's own declarations.

python docs/render_formats.py           writes it
python docs/render_formats.py --check   fails when it is stale
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from rendering import main, table

from duralog.format import layout
from duralog.format.internal.coordinator_records import RecordType
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.internal.message_schema import Message, describe
from duralog.format.internal.metadata_records import METADATA_TYPES
from duralog.format.internal.share_records import SHARE_GROUP_STATE_TYPES
from duralog.format.internal.transaction_records import TRANSACTION_STATE_TYPES
from duralog.format.layout import LAYOUTS, Layout

TARGET = Path(__file__).with_name("formats.md")
TEMPLATE = Path(__file__).with_name("formats.template.md")
_MARKER = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)


def render() -> str:
    """The whole document. Every layout must be shown: a new one fails until the template has a place for it."""
    tables = {name: layout_table(value) for name, value in vars(layout).items() if isinstance(value, Layout)}
    assert len(tables) == len(LAYOUTS)
    tables["CONSUMER_OFFSETS_TYPES"] = coordinator_table(CONSUMER_OFFSETS_TYPES.values())
    tables["TRANSACTION_STATE_TYPES"] = coordinator_table(TRANSACTION_STATE_TYPES.values())
    tables["SHARE_GROUP_STATE_TYPES"] = coordinator_table(SHARE_GROUP_STATE_TYPES.values())
    tables["METADATA_TYPES"] = metadata_table(METADATA_TYPES)
    template = TEMPLATE.read_text(encoding="utf-8")
    shown = _MARKER.findall(template)
    if sorted(shown) != sorted(tables):
        raise SystemExit(f"{TEMPLATE.name} must show each of these once: {sorted(set(shown) ^ set(tables)) or shown}")
    notice = f"<!-- Made from {TEMPLATE.name} by render_formats.py: change that, or the declarations. -->\n\n"
    return notice + _MARKER.sub(lambda match: tables[match[1]], template)


def layout_table(shown: Layout) -> str:
    rows = [(str(getattr(shown.at, f.name)), str(f.size), f"`{f.name}`", f.type, f.doc) for f in shown.fields]
    return f"**{shown.title}**, {shown.size} bytes\n\n" + table(("at", "bytes", "field", "type", "meaning"), rows)


def coordinator_table(types: Iterable[RecordType]) -> str:
    rows = [
        (str(t.id), t.name, f"`{describe(t.key, 0)}`", versions(t.value), f"`{newest(t.value)}`")
        for t in sorted(types, key=lambda t: t.id)
    ]
    return table(("type", "name", "key", "versions", "value, newest version"), rows)


def metadata_table(types: dict[int, Message]) -> str:
    rows = [
        (str(number), types[number].name, versions(types[number]), f"`{newest(types[number])}`") for number in types
    ]
    return table(("type", "name", "versions", "fields, newest version"), rows)


def versions(message: Message) -> str:
    return "0" if message.last_version == 0 else f"0-{message.last_version}"


def newest(message: Message) -> str:
    return describe(message, message.last_version)


if __name__ == "__main__":
    sys.exit(main(Path(__file__), __doc__, TARGET, render))
