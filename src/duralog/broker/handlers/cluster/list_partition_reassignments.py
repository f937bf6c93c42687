"""ListPartitionReassignments, version 0: none is in progress, since there is one node. Unknown topics are left out."""

from __future__ import annotations

from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request


def handle(request: Request) -> Answer:
    return refuse(request, codes.NONE, None)


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request
    return {"error_code": error_code, "error_message": message, "topics": []}


API = Api(46, "ListPartitionReassignments", 0, 0, handle, refuse)
