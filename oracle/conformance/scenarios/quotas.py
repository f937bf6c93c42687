"""Quotas of users, client ids and addresses: set, described, removed, and what is refused."""

from __future__ import annotations

import math

from oracle.conformance.dialog import Dialog, records
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.scenarios.fetching import wanted
from oracle.conformance.scenarios.producing import data
from oracle.conformance.wire import Fields

_EXACT, _DEFAULT, _ANY = 0, 1, 2

Entity = dict[str, str | None]
Component = tuple[str, int, str | None]


def alter(dialog: Dialog, version: int, *entries: tuple[Entity, dict[str, float | None]], **fields: bool) -> Fields:
    """A value of None removes the key."""
    asked = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [
                {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
                for key, value in values.items()
            ],
        }
        for entity, values in entries
    ]
    pending = dialog.on().send("alter_client_quotas", version, entries=asked, **({"validate_only": False} | fields))
    answer = pending.take()
    for entry in answer["entries"]:
        entry["entity"].sort(key=repr)
    pending.write_down(answer | {"entries": sorted(answer["entries"], key=repr)})
    return answer


def describe(dialog: Dialog, version: int, *components: Component, strict: bool = False) -> None:
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    pending = dialog.on().send("describe_client_quotas", version, components=asked, strict=strict)
    answer = pending.take()
    for entry in answer["entries"] or ():
        entry["entity"].sort(key=repr)
        entry["values"].sort(key=repr)
    entries = answer["entries"]
    pending.write_down(answer | {"entries": None if entries is None else sorted(entries, key=repr)})


def settled(dialog: Dialog, entity: Entity, present: bool) -> None:
    """Kafka's broker follows its controller: wait until it shows the entity, or shows it no more."""
    components = [
        {"entity_type": kind, "match_type": _DEFAULT if name is None else _EXACT, "match": name}
        for kind, name in entity.items()
    ]
    for _ in dialog.tries():
        answer = dialog.connection("").ask("describe_client_quotas", 1, {"components": components, "strict": True})
        if bool(answer["entries"]) == present:
            return


@each_version(0, 1)
def client_quotas(dialog: Dialog, version: int) -> None:
    name = dialog.name
    rate, percentage = "producer_byte_rate", "request_percentage"
    entities: list[Entity] = [
        {"user": name},
        {"client-id": name},
        {"user": name, "client-id": name},
        {"user": name, "client-id": None},
        {"ip": "192.0.2.1"},
    ]
    for number, entity in enumerate(entities):
        key = "connection_creation_rate" if "ip" in entity else rate
        alter(dialog, version, (entity, {key: 1000.0 * (number + 1)}))
        settled(dialog, entity, True)
    alter(dialog, version, ({"user": name}, {percentage: 55.5, rate: None, "consumer_byte_rate": 1e6}))
    alter(dialog, version, ({"user": name}, {percentage: 50.0}), validate_only=True)
    alter(dialog, version, ({"user": name}, {"controller_mutation_rate": 0.25, "no-such": None}))
    alter(dialog, version, ({"user": name}, {"controller_mutation_rate": 0.25}))
    for _ in dialog.tries():
        components = [{"entity_type": "user", "match_type": _EXACT, "match": name}]
        answer = dialog.connection("").ask("describe_client_quotas", 1, {"components": components, "strict": True})
        if len(answer["entries"][0]["values"]) == 3:
            break
    for strict in (False, True):
        describe(dialog, version, ("user", _EXACT, name), strict=strict)
        describe(dialog, version, ("client-id", _EXACT, name), strict=strict)
        describe(dialog, version, ("user", _EXACT, name), ("client-id", _EXACT, name), strict=strict)
        describe(dialog, version, ("user", _EXACT, name), ("client-id", _DEFAULT, None), strict=strict)
        describe(dialog, version, ("user", _EXACT, name), ("client-id", _ANY, None), strict=strict)
        describe(dialog, version, ("user", _DEFAULT, None), strict=strict)
        describe(dialog, version, ("ip", _ANY, None), strict=strict)
        describe(dialog, version, strict=strict)
    describe(dialog, version, ("user", _EXACT, f"{name}-missing"))
    for entity in entities:
        key = "connection_creation_rate" if "ip" in entity else rate
        keys: dict[str, float | None] = {key: None}
        if entity == {"user": name}:
            keys = dict.fromkeys((percentage, "consumer_byte_rate", "controller_mutation_rate"))
        alter(dialog, version, (entity, keys))
        settled(dialog, entity, False)
    describe(dialog, version)


@scenario
def quotas_that_are_refused(dialog: Dialog) -> None:
    name = dialog.name
    rate = "producer_byte_rate"
    user: Entity = {"user": name}
    alter(dialog, 1)
    alter(dialog, 1, ({}, {rate: 1000.0}))
    alter(dialog, 1, (user, {}))
    alter(dialog, 1, ({"user": ""}, {rate: 1000.0}))
    alter(dialog, 1, ({"client-id": ""}, {rate: 1000.0}))
    alter(dialog, 1, ({"ip": ""}, {"connection_creation_rate": 1000.0}))
    alter(dialog, 1, ({"team": name}, {rate: 1000.0}))
    alter(dialog, 1, ({"team": name, "user": name}, {rate: 1000.0}))
    alter(dialog, 1, ({"": name}, {rate: 1000.0}))
    alter(dialog, 1, ({"ip": "192.0.2.7", "user": name}, {"connection_creation_rate": 5.0}))
    alter(dialog, 1, ({"ip": "192.0.2.7", "client-id": name}, {"connection_creation_rate": 5.0}))
    alter(dialog, 1, ({"ip": "192.0.2.7"}, {rate: 5.0}))
    alter(dialog, 1, ({"ip": "192.0.2.300"}, {"connection_creation_rate": 5.0}))
    alter(dialog, 1, ({"ip": "no such host"}, {"connection_creation_rate": 5.0}))
    alter(dialog, 1, (user, {"connection_creation_rate": 5.0}))
    alter(dialog, 1, (user, {"no_such_rate": 5.0}))
    alter(dialog, 1, (user, {"no_such_rate": None}))
    alter(dialog, 1, (user, {"": 5.0}))
    for key in (rate, "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
        for value in (0.0, -1.0, 0.5, 1.5, 1e30, math.nan, math.inf, 2.0**63, 2.0**53 + 2):
            alter(dialog, 1, (user, {key: value}), validate_only=True)
    for value in (0.0, -1.0, 0.5, 1.5, 2147483647.0, 2147483648.0, math.nan):
        alter(dialog, 1, ({"ip": "192.0.2.7"}, {"connection_creation_rate": value}), validate_only=True)
    alter(dialog, 1, (user, {"no_such_rate": 5.0}), ({"user": f"{name}-2"}, {rate: 5000.0}), validate_only=True)
    alter(dialog, 1, (user, {rate: 5.0}), (user, {rate: None}), validate_only=True)
    alter(dialog, 1, (user, {"SCRAM-SHA-256": 5.0}), validate_only=True)
    double = [{"entity_type": "user", "entity_name": name}, {"entity_type": "user", "entity_name": "other"}]
    asked = [{"entity": double, "ops": [{"key": rate, "value": 1000.0, "remove": False}]}]
    dialog.ask("alter_client_quotas", 1, entries=asked, validate_only=True)
    ops = [{"key": rate, "value": 1000.0, "remove": False}, {"key": rate, "value": 2000.0, "remove": False}]
    dialog.ask("alter_client_quotas", 1, entries=[{"entity": double[:1], "ops": ops}], validate_only=True)

    describe(dialog, 1, ("user", _EXACT, None))
    describe(dialog, 1, ("user", _EXACT, ""))
    describe(dialog, 1, ("", _EXACT, name))
    describe(dialog, 1, ("team", _EXACT, name))
    describe(dialog, 1, ("team", _ANY, None))
    describe(dialog, 1, ("user", _DEFAULT, name))
    describe(dialog, 1, ("user", _ANY, name))
    describe(dialog, 1, ("user", 7, None))
    describe(dialog, 1, ("user", -1, None))
    describe(dialog, 1, ("user", _EXACT, name), ("user", _EXACT, name))
    describe(dialog, 1, ("user", _EXACT, name), ("user", _DEFAULT, None))
    describe(dialog, 1, ("ip", _EXACT, "192.0.2.7"), ("user", _EXACT, name))
    describe(dialog, 1, ("ip", _EXACT, "192.0.2.7"), ("client-id", _DEFAULT, None))


def limited(dialog: Dialog, what: str, api: str, version: int, fields: Fields) -> Fields:
    """As the client that has a quota, on a connection of its own: the one before may be muted.

    For how long depends on the clock; whether does not.
    """
    connection = dialog.fresh_connection()
    try:
        sent = connection.send(api, version, fields, client_id=dialog.name)
        answer = connection.receive(api, version, sent)
    finally:
        connection.close()
    dialog.note(what, answer | {"throttle_time": answer["throttle_time"] > 0})
    return answer


@scenario
def bytes_above_the_quotas(dialog: Dialog) -> None:
    """What is produced is written, and the client waits; what is fetched is not sent before its time."""
    name = dialog.name
    dialog.create_topic(name)
    batch = records(1000)
    alter(dialog, 1, ({"client-id": name}, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0}))
    settled(dialog, {"client-id": name}, True)
    for what in ("the first produce", "the next one"):
        assert limited(dialog, what, "produce", 9, asked_to_produce(name, batch))["throttle_time"] > 0
    for what in ("the first fetch", "the next one"):
        asked = {"replica_id": -1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": [wanted(name, (0, 0))]}
        limited(dialog, what, "fetch", 11, asked)
    alter(dialog, 1, ({"client-id": name}, {"producer_byte_rate": None, "consumer_byte_rate": None}))
    settled(dialog, {"client-id": name}, False)
    limited(dialog, "without a quota", "produce", 9, asked_to_produce(name, batch))


def asked_to_produce(topic: str, batch: bytes) -> Fields:
    return {"acks": 1, "timeout": 30_000, "topic_data": [data(topic, (0, batch))]}


@scenario
def partitions_above_the_quota(dialog: Dialog) -> None:
    """Newer clients are refused, older ones wait. Each on a connection of its own: the one before is muted."""
    name = dialog.name
    alter(dialog, 1, ({"client-id": name}, {"controller_mutation_rate": 0.01}))
    settled(dialog, {"client-id": name}, True)

    def ask(what: str, api: str, version: int, **fields: object) -> None:
        limited(dialog, what, api, version, {"timeout": 30_000, **fields})

    def new(suffix: str) -> list[Fields]:
        return [{"name": f"{name}-{suffix}", "num_partitions": 2, "replication_factor": 1}]

    ask("within the quota", "create_topics", 7, topics=new("a"))
    ask("above it", "create_topics", 7, topics=new("b"))
    ask("above it, and older", "create_topics", 5, topics=new("c"))
    growth = [{"name": f"{name}-a", "count": 3, "assignments": None}]
    ask("more partitions", "create_partitions", 3, topics=growth)
    ask("more partitions, and older", "create_partitions", 2, topics=growth)
    ask("deleted", "delete_topics", 5, topic_names=[f"{name}-a"])
    ask("deleted, and older", "delete_topics", 4, topic_names=[f"{name}-a"])
    alter(dialog, 1, ({"client-id": name}, {"controller_mutation_rate": None}))
    settled(dialog, {"client-id": name}, False)
