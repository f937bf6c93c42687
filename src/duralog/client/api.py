"""A request of Kafka's protocol and its response."""

from __future__ import annotations

from dataclasses import dataclass

from duralog.format.internal.message_schema import Message


@dataclass(frozen=True, slots=True)
class Api:
    """One version of an API."""

    key: int
    version: int
    request: Message
    response: Message
