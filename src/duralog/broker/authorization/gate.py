"""The gate between dispatch and the handlers: each request passes the rule of its API first, and changes are recorded.

A handler whose API every client may use, and that changes nothing to be recorded, is not wrapped. Without an authorizer
and without an audit log, none is: the gate costs nothing then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from duralog.broker.audit.changes import CHANGES
from duralog.broker.audit.recorder import AuditRecorder
from duralog.broker.authorization.rule_kinds import Amend, Guard, anyone, in_handler
from duralog.broker.authorization.rules import RULES
from duralog.broker.net.log_lines import error_text, logger, one_line
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, RawAnswer, Request, Silence

Handle = Callable[[Request], Answer]


class Gate:
    def __init__(self, guard: Guard | None, recorder: AuditRecorder | None) -> None:
        """Without a guard everything is allowed; without a recorder nothing is recorded."""
        self._guard = guard
        self._recorder = recorder

    def __call__(self, api: Api, handle: Handle) -> Handle:
        """The wrapped handler."""
        if self._recorder is not None and api.name in CHANGES:
            handle = partial(_recorded, api, handle, self._recorder)
        if self._guard is not None:
            rule = RULES[api.name]
            if rule not in (anyone, in_handler):
                handle = partial(_guarded, api, handle, self._guard)
        return handle


def _guarded(api: Api, handle: Handle, guard: Guard, request: Request) -> Answer:
    verdict = RULES[api.name](guard, api, request)
    if verdict is None:
        return handle(request)
    if not callable(verdict):
        return verdict
    return _amended(handle(request), verdict)


def _recorded(api: Api, handle: Handle, recorder: AuditRecorder, request: Request) -> Answer:
    message = request.message

    def record(answer: Fields) -> Fields:
        try:
            recorder.changed(request, CHANGES[api.name](message, answer))
        except Exception as error:  # The change is made, and its client gets the answer.
            logger.error("%s", one_line(f"{api.name} is not in the audit log: {error_text(error)}"))
        return answer

    return _amended(handle(request), record)


def _amended(answer: Answer, amend: Amend) -> Answer:
    if isinstance(answer, DelayedAnswer):
        answer.amend(partial(_amend_fields, amend))
        return answer
    return _amend_fields(amend, answer)


def _amend_fields(amend: Amend, answer: Fields | RawAnswer | Silence) -> Fields | RawAnswer | Silence:
    return amend(answer) if isinstance(answer, Mapping) else answer
