"""Entities of quotas, and filters of them: Kafka's rules, with Kafka's texts."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from duralog.broker.topics.topic_faults import Fault
from duralog.broker.wire import error_codes as codes
from duralog.storage.metadata.client_quotas import ClientQuotas, QuotaEntity, QuotaValues

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_LARGEST_LONG, _LARGEST_INT = float(2**63 - 1), float(2**31 - 1)
_OF_CLIENTS = {
    PRODUCER_BYTE_RATE: (_LARGEST_LONG, "a LONG"),
    CONSUMER_BYTE_RATE: (_LARGEST_LONG, "a LONG"),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_OF_ADDRESSES = {CONNECTION_CREATION_RATE: (_LARGEST_INT, "an INT")}
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def alteration_fault(entity: QuotaEntity, changes: Mapping[str, float | None]) -> Fault | None:
    """Why quotas cannot be changed in this way. May ask a name service: not for the event loop."""
    reason = _entity_fault(entity)
    if reason is None:
        kinds = _OF_ADDRESSES if any(kind == IP for kind, _ in entity) else _OF_CLIENTS
        reasons = (_value_fault(kinds, key, value) for key, value in changes.items() if value is not None)
        reason = next(filter(None, reasons), None)
    return None if reason is None else Fault(codes.INVALID_REQUEST, reason)


def _entity_fault(entity: QuotaEntity) -> str | None:
    if not entity:
        return "Invalid empty client quota entity"
    for kind, name in sorted(entity, key=lambda pair: pair[0]):
        if kind not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    names = dict(entity)
    if IP in names and len(names) > 1:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    address = names.get(IP)
    if address is not None and not _is_address(address):
        return f"{address} is not a valid IP or resolvable host."
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        try:
            return bool(socket.getaddrinfo(text, None))
        except (OSError, ValueError):
            return False
    return True


def _value_fault(kinds: Mapping[str, tuple[float, str] | None], key: str, value: float) -> str | None:
    if key not in kinds:
        return f"Invalid configuration key {key}"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    whole = kinds[key]
    if whole is not None:
        largest, kind = whole
        if value > largest:
            return f"Proposed value for {key} is too large for {kind}."
        # What is not a number is accepted, as in Kafka, and limits nothing.
        if value == value and value != int(value):
            return f"{key} cannot be a fractional value."
    return None


class Component(NamedTuple):
    """One part of a filter: entities whose name of this type is that, the default, or any."""

    kind: str
    match_type: int
    match: str | None

    def accepts(self, names: Mapping[str, str | None]) -> bool:
        if self.kind not in names:
            return False
        return self.match_type == _SPECIFIED or names[self.kind] == self.match


def filter_fault(components: Sequence[Component]) -> Fault | None:
    seen: set[str] = set()
    for kind, match_type, match in components:
        if kind == "":
            return Fault(codes.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            return Fault(codes.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            return Fault(codes.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        seen.add(kind)
        reason = _match_fault(match_type, match)
        if reason is not None:
            return Fault(codes.INVALID_REQUEST, reason)
    if IP in seen and len(seen) > 1:
        return Fault(
            codes.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component.",
        )
    return None


def _match_fault(match_type: int, match: str | None) -> str | None:
    if match_type == _EXACT:
        return "Request specified MATCH_TYPE_EXACT, but set match string to null." if match is None else None
    if match_type == _DEFAULT:
        return None if match is None else "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
    if match_type == _SPECIFIED:
        return None if match is None else "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
    return f"Unknown match type {match_type}"


def selected(
    quotas: ClientQuotas, components: Sequence[Component], *, strict: bool
) -> Iterator[tuple[QuotaEntity, QuotaValues]]:
    """The quotas that a filter selects; if it is strict, only those that have no other parts."""
    for entity, values in quotas.items():
        names = dict(entity)
        if all(each.accepts(names) for each in components) and (not strict or len(names) == len(components)):
            yield entity, values


def entity_fields(entity: Iterable[tuple[str, str | None]]) -> list[Mapping[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity, key=lambda pair: pair[0])]
