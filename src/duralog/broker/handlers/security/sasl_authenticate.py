"""SaslAuthenticate, versions 0 to 2: a token of the mechanism that SaslHandshake has chosen."""

from __future__ import annotations

from duralog.broker.wire.error_codes import ILLEGAL_SASL_STATE
from duralog.broker.wire.request import Answer, Api, Fields, Request

_AFTER = "SaslAuthenticate request received after successful authentication"


def handle(request: Request) -> Answer:
    if request.login is None or not request.login.is_open:
        return refuse(request, ILLEGAL_SASL_STATE, _AFTER)
    answer: Answer = request.login.authenticate(request.message.auth_bytes)
    return answer


def refuse(_: Request, error_code: int, message: str | None) -> Fields:
    return {"error_code": error_code, "error_message": message, "auth_bytes": b"", "session_lifetime_ms": 0}


API = Api(36, "SaslAuthenticate", 0, 2, handle, refuse)
