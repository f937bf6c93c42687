"""AlterClientQuotas, versions 0 and 1: set and remove quotas of users, client ids and addresses.

Each entity is changed or refused on its own. An entity that is named twice, or that names a key twice, is refused.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from duralog.broker.quotas.client_quotas import ClientQuotas
from duralog.broker.quotas.entities import alteration_fault, entity_fields
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.storage.metadata.client_quotas import QuotaEntity

_DONE = Fault(codes.NONE, None)


def handle(runtime: Runtime, topics: Topics, quotas: ClientQuotas, request: Request) -> Answer:
    message = request.message
    later = DelayedAnswer()

    def work() -> dict[QuotaEntity, Fault]:
        counts = Counter(_entity(each) for each in message.entries)
        faults: dict[QuotaEntity, Fault] = {}
        changes: dict[QuotaEntity, dict[str, float | None]] = {}
        for each in message.entries:
            entity = _entity(each)
            values = {one.key: None if one.remove else one.value for one in each.ops}
            if counts[entity] > 1 or len(values) < len(each.ops):
                faults[entity] = Fault(codes.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(entity)}")
                continue
            fault = alteration_fault(entity, values)
            faults[entity] = fault or _DONE
            if fault is None:
                changes[entity] = values
        if not message.validate_only:
            runtime.store.alter_client_quotas(changes)
        return faults

    def then(faults: dict[QuotaEntity, Fault], error: Exception | None) -> None:
        if error is not None:
            raise error
        quotas.follow()
        later.answer({"entries": [_response(entity, fault) for entity, fault in faults.items()]})

    topics.change(work, then, later)
    return later


def _entity(entry: Any) -> QuotaEntity:
    """If a type is named twice, the last name counts, as in Kafka."""
    return frozenset({each.entity_type: each.entity_name for each in entry.entity}.items())


def _shown(entity: QuotaEntity) -> str:
    names = ", ".join(f"{kind}={name}" for kind, name in sorted(entity, key=lambda pair: pair[0]))
    return f"ClientQuotaEntity(entries={{{names}}})"


def _response(entity: QuotaEntity, fault: Fault) -> Fields:
    return {"error_code": fault.code, "error_message": fault.message, "entity": entity_fields(entity)}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {"entries": [_response(_entity(each), fault) for each in request.message.entries]}


API = Api(49, "AlterClientQuotas", 0, 1, handle, refuse)
