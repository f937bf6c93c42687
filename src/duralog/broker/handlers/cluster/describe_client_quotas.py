"""DescribeClientQuotas, versions 0 and 1: the quotas of users, client ids and addresses that a filter selects."""

from __future__ import annotations

from duralog.broker.quotas.entities import Component, entity_fields, filter_fault, selected
from duralog.broker.runtime import Runtime
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request


def handle(runtime: Runtime, request: Request) -> Answer:
    message = request.message
    components = [Component(each.entity_type, each.match_type, each.match) for each in message.components]
    fault = filter_fault(components)
    if fault is not None:
        return refuse(request, fault.code, fault.message)
    return {
        "error_code": codes.NONE,
        "error_message": "",
        "entries": [
            {
                "entity": entity_fields(entity),
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            for entity, values in selected(runtime.store.client_quotas, components, strict=message.strict)
        ],
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request
    return {"error_code": error_code, "error_message": message, "entries": None}


API = Api(48, "DescribeClientQuotas", 0, 1, handle, refuse)
