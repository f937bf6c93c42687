"""AlterUserScramCredentials, version 0: sets and removes SCRAM credentials. In Kafka: `ScramControlManager`.

The client sends the password after all iterations, never the password itself; the keys are derived here. What is valid
is written as one batch on a worker thread, one request at a time: whether a user exists must not change between the
check and the write. A user that the request names twice is refused as a whole.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.storage.metadata.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    ScramChanges,
    ScramCredential,
    ScramMechanism,
    ScramUser,
)

_Refusal = tuple[int, str]


def handle(runtime: Runtime, topics: Topics, request: Request) -> Answer:
    message = request.message
    asked = [*message.deletions, *message.upsertions]
    if not asked:
        return {"results": []}

    later = DelayedAnswer()

    def work() -> dict[str, _Refusal]:
        changes, refused = _checked(runtime, message)
        runtime.store.alter_scram_credentials(changes)
        return refused

    def then(refused: dict[str, _Refusal], error: Exception | None) -> None:
        if error is not None:
            raise error
        names = dict.fromkeys(each.name for each in asked)
        later.answer({"results": [_result(name, refused.get(name)) for name in names]})

    topics.change(work, then, later)
    return later


def _checked(runtime: Runtime, message: Any) -> tuple[ScramChanges, dict[str, _Refusal]]:
    changes: dict[ScramUser, ScramCredential | None] = {}
    refused: dict[str, _Refusal] = {}
    credentials = runtime.store.scram_credentials
    times = Counter(each.name for each in (*message.deletions, *message.upsertions))
    for name, count in times.items():
        if count > 1:
            refused[name] = codes.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
    for deletion in message.deletions:
        fault = _fault(deletion)
        if fault is None and (deletion.name, ScramMechanism(deletion.mechanism)) not in credentials:
            fault = codes.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        if fault is not None:
            refused.setdefault(deletion.name, fault)
        else:
            changes[deletion.name, ScramMechanism(deletion.mechanism)] = None
    for upsertion in message.upsertions:
        fault = _fault(upsertion) or _iterations_fault(upsertion.iterations)
        if fault is not None:
            refused.setdefault(upsertion.name, fault)
        else:
            mechanism = ScramMechanism(upsertion.mechanism)
            changes[upsertion.name, mechanism] = ScramCredential.of_salted(
                mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations
            )
    return {user: changed for user, changed in changes.items() if user[0] not in refused}, refused


def _fault(asked: Any) -> _Refusal | None:
    if not asked.name:
        return codes.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if asked.mechanism not in [mechanism.value for mechanism in ScramMechanism]:
        return codes.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _iterations_fault(iterations: int) -> _Refusal | None:
    if iterations > MOST_ITERATIONS:
        return codes.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if iterations < LEAST_ITERATIONS:
        return codes.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    return None


def _result(name: str, refusal: _Refusal | None) -> Fields:
    error_code, message = refusal or (codes.NONE, None)
    return {"user": name, "error_code": error_code, "error_message": message}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    asked = [*request.message.deletions, *request.message.upsertions]
    return {
        "results": [
            {"user": name, "error_code": error_code, "error_message": message}
            for name in dict.fromkeys(each.name for each in asked)
        ]
    }


API = Api(51, "AlterUserScramCredentials", 0, 0, handle, refuse)
