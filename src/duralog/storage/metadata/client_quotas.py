"""The quotas of users, client ids and addresses in the cluster metadata. In Kafka: `ClientQuotasImage`.

An entity is one or two named things that a quota is for: `{"user": "ada"}`, or `{"user": "ada", "client-id": None}`. A
name of None means the default: every user, client id or address that has no quota of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from duralog.errors import CorruptRecord

QuotaEntity = frozenset[tuple[str, str | None]]
"""Pairs of type and name: the order in which a client names them has no meaning."""
QuotaValues = Mapping[str, float]
"""By the quota's key, such as `producer_byte_rate`."""
ClientQuotas = Mapping[QuotaEntity, QuotaValues]
QuotaChanges = Mapping[QuotaEntity, Mapping[str, float | None]]
"""None removes a quota."""


def apply_client_quota(quotas: dict[QuotaEntity, dict[str, float]], fields: Mapping[str, Any]) -> None:
    """Apply a CLIENT_QUOTA_RECORD."""
    entity = frozenset((each["entity_type"], each["entity_name"]) for each in fields["entity"])
    if not entity:
        raise CorruptRecord("a CLIENT_QUOTA_RECORD has no entity", expected="an entity", found="none")
    values = quotas.setdefault(entity, {})
    if fields["remove"]:
        values.pop(fields["key"], None)
    else:
        values[fields["key"]] = fields["value"]
    if not values:
        del quotas[entity]


def quota_fields(quotas: ClientQuotas, changes: QuotaChanges) -> Iterable[dict[str, Any]]:
    """The fields of the records that make these changes. What is removed and was not there needs none."""
    for entity, values in changes.items():
        pairs = [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity, key=lambda pair: pair[0])]
        present = quotas.get(entity, {})
        for key, value in values.items():
            if value is not None and present.get(key) != value:
                yield {"entity": pairs, "key": key, "value": value, "remove": False}
            elif value is None and key in present:
                yield {"entity": pairs, "key": key, "value": 0.0, "remove": True}
