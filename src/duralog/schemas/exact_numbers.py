"""Numbers of JSON with all their digits, for what has more of them than a double."""

from __future__ import annotations

import json
from typing import Any


class Exact(float):
    """A number with its text: what a decimal is made of."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Exact:
        made = super().__new__(cls, text)
        made.text = text
        return made


def parse_json(text: str) -> Any:
    """As `json.loads`, with `Exact` for numbers that are not whole."""
    return json.loads(text, parse_float=Exact)
