"""Decoded keys and values, and the detected formats of a topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPayload:
    """A key or value that is written in a format with a decoder."""

    format: str
    """`avro`, `protobuf`, `json`, `long`."""
    text: str | None
    """As JSON. None if it did not decode: the bytes are shown, with the reason."""
    reason: str | None = None
    schema: str | None = None
    """Which schema wrote it: `orders-value version 2 (id 7)`, or `id 7` if the catalogue does not have it."""
    subject: str | None = None
    """Of the schema, if the catalogue has it."""
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFormats:
    """How the keys and values of a topic are shown."""

    findings: tuple[str, ...] = ()
    """The formats and how they were detected, or why they are shown as bytes. One sentence each."""
    summary: str = ""
    """`Keys: string. Values: avro.`"""
    decoded: tuple[str, ...] = ()
    """`key`, `value`: what is decoded."""
