"""DescribeUserScramCredentials, version 0: which users have SCRAM credentials, with which mechanism and iterations."""

from __future__ import annotations

from collections import Counter

from duralog.broker.runtime import Runtime
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request


def handle(runtime: Runtime, request: Request) -> Answer:
    found: dict[str, list[Fields]] = {}
    credentials = runtime.store.scram_credentials
    for (name, mechanism), credential in sorted(credentials.items(), key=lambda each: (each[0][0], each[0][1].value)):
        info = {"mechanism": mechanism.value, "iterations": credential.iterations}
        found.setdefault(name, []).append(info)
    asked = Counter(user.name for user in request.message.users or ())
    results = [_result(name, asked[name], found.get(name)) for name in asked or found]
    return {"error_code": codes.NONE, "error_message": "", "results": results}


def _result(name: str, times: int, infos: list[Fields] | None) -> Fields:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _failed(name, codes.DUPLICATE_RESOURCE, message)
    if infos is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return _failed(name, codes.RESOURCE_NOT_FOUND, message)
    return {"user": name, "error_code": codes.NONE, "error_message": "", "credential_infos": infos}


def _failed(name: str, error_code: int, message: str) -> Fields:
    return {"user": name, "error_code": error_code, "error_message": message, "credential_infos": []}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    # As in Kafka: an entry for each user, without its name.
    result = {"user": "", "error_code": error_code, "error_message": message, "credential_infos": []}
    results = [result for _ in request.message.users or ()]
    return {"error_code": error_code, "error_message": message, "results": results}


API = Api(50, "DescribeUserScramCredentials", 0, 0, handle, refuse)
