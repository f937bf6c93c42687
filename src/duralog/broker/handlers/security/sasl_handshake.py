"""SaslHandshake, versions 0 and 1: how the client wants to log in. After version 0, tokens follow without a header."""

from __future__ import annotations

from duralog.broker.wire.error_codes import ILLEGAL_SASL_STATE
from duralog.broker.wire.request import Answer, Api, Fields, Request


def handle(request: Request) -> Answer:
    if request.login is None or not request.login.is_open:
        return refuse(request, ILLEGAL_SASL_STATE, None)
    answer: Answer = request.login.handshake(request.message.mechanism, request.version)
    return answer


def refuse(_: Request, error_code: int, __: str | None) -> Fields:
    return {"error_code": error_code, "mechanisms": []}


API = Api(17, "SaslHandshake", 0, 1, handle, refuse)
