"""Topics that the broker creates without CreateTopics: for a client that asks for one, and its own internal ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from duralog.broker.audit.recorder import AuditRecorder, Changed
from duralog.broker.topics.topics import TopicCallback, TopicView
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Request


def recorded_creation(audit: AuditRecorder, request: Request) -> Callable[[str, TopicView | Exception], None]:
    """Puts topics that are created for a request into the audit log, by their names."""
    # The request may be answered before: keep who sent it, and not what.
    sender = replace(request, message=None, body=memoryview(b""))

    def record(name: str, result: TopicView | Exception) -> None:
        audit.changed(sender, [_created(name, result)])

    return record


def recorded_for_itself(audit: AuditRecorder, cause: str, name: str) -> TopicCallback:
    """Puts a topic that a part of the broker needs for itself into the audit log."""

    def record(result: TopicView | Exception) -> None:
        audit.changed_itself(cause, _created(name, result))

    return record


def _created(name: str, result: TopicView | Exception) -> Changed:
    if isinstance(result, Exception):
        return Changed("TOPIC", name, codes.code_of(result))
    return Changed("TOPIC", name, codes.NONE, f"{len(result.partitions)} partitions")
