"""Describing and changing configs of topics, of the broker and of groups."""

from __future__ import annotations

from typing import Any

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.wire import Fields

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(dialog: Dialog, version: int, *resources: dict[str, Any], **fields: Any) -> Fields:
    """The entries in order of their names: Kafka's order is that of a hash table. The texts for people are left out."""
    pending = dialog.on().send("describe_configs", version, resources=list(resources), **fields)
    answer = pending.take()
    results = sorted(answer["results"], key=lambda each: (each["resource_type"], each["resource_name"]))
    for result in results:
        result["configs"].sort(key=lambda each: each["name"])
        for config in result["configs"]:
            if config.get("documentation"):
                config["documentation"] = "documented"
    pending.write_down(answer | {"results": results})
    return answer


def resource(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) if keys else None}


@each_version(1, 4)
def describe_configs(dialog: Dialog, version: int) -> None:
    name = dialog.name
    dialog.create_topic(name, retention_ms=5000, cleanup_policy="compact", max_message_bytes=77777)
    describe(dialog, version, resource(TOPIC, name))
    describe(dialog, version, resource(TOPIC, name), include_synonyms=True)
    describe(
        dialog, version, resource(TOPIC, name, "retention.ms", "segment.ms", "no.such.config"), include_synonyms=True
    )
    describe(dialog, version, resource(TOPIC, name, "retention.ms", "segment.bytes"), include_documentation=True)
    describe(dialog, version, resource(TOPIC, name) | {"configuration_keys": []})
    describe(dialog, version, resource(TOPIC, f"{name}-missing"), resource(TOPIC, "a/b"), resource(TOPIC, ""))
    describe(dialog, version, resource(TOPIC, name, "retention.ms"), resource(TOPIC, name, "segment.ms"))
    describe(dialog, version, resource(BROKER, "2"), resource(BROKER, "one"))
    describe(dialog, version, resource(BROKER_LOGGER, "2"), resource(99, "x"))
    describe(dialog, version, resource(GROUP, name))
    describe(dialog, version, resource(GROUP, ""))
    describe(dialog, version)


@scenario
def describe_configs_of_the_broker(dialog: Dialog) -> None:
    some = (
        "log.retention.ms", "log.segment.bytes", "num.partitions", "auto.create.topics.enable", "node.id",
        "offsets.topic.num.partitions", "group.initial.rebalance.delay.ms", "message.max.bytes", "log.cleaner.threads",
        "compression.type", "log.cleanup.policy", "transaction.max.timeout.ms", "process.roles",
    )  # fmt: skip
    describe(dialog, 4, resource(BROKER, "1", *some))
    describe(dialog, 4, resource(BROKER, "1", *some), include_synonyms=True)
    describe(dialog, 4, resource(BROKER, "", *some), include_synonyms=True)
    describe(dialog, 4, resource(BROKER, ""))


def alter(dialog: Dialog, version: int, *resources: tuple[int, str, dict[str, Any]], **fields: Any) -> Fields:
    asked = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": operation, "value": value}
                for key, (operation, value) in changes.items()
            ],
        }
        for kind, name, changes in resources
    ]
    return in_order(dialog, "incremental_alter_configs", version, resources=asked, **fields)


def in_order(dialog: Dialog, api: str, version: int, **fields: Any) -> Fields:
    pending = dialog.on().send(api, version, **fields)
    answer = pending.take()
    found = sorted(answer["responses"], key=lambda each: (each["resource_type"], each["resource_name"]))
    pending.write_down(answer | {"responses": found})
    return answer


@each_version(0, 1)
def incremental_alter_configs(dialog: Dialog, version: int) -> None:
    name = dialog.name
    dialog.create_topic(name)

    def change(**changes: Any) -> None:
        alter(dialog, version, (TOPIC, name, {key.replace("_", "."): value for key, value in changes.items()}))

    change(retention_ms=(SET, "5000"), segment_ms=(SET, "6000"))
    change(segment_ms=(DELETE, None))
    change(segment_ms=(DELETE, None))
    change(cleanup_policy=(APPEND, "compact"))
    change(cleanup_policy=(APPEND, "compact"))
    change(cleanup_policy=(SUBTRACT, "delete"))
    change(cleanup_policy=(SUBTRACT, "no"))
    change(retention_ms=(APPEND, "6"))
    change(retention_ms=(SET, None))
    change(retention_ms=(9, "6"))
    change(retention_ms=(SET, "never"))
    change(retention_ms=(SET, "-2"))
    change(no_such_config=(SET, "1"))
    change(no_such_config=(DELETE, None))
    change(max_message_bytes=(SET, "100"), no_such_config=(SET, "1"))
    change()
    change(cleanup_policy=(SET, ""))
    change(min_cleanable_dirty_ratio=(SET, " 0.25 "))
    alter(
        dialog,
        version,
        (TOPIC, f"{name}-missing", {"retention.ms": (SET, "1")}),
        (TOPIC, name, {"retention.ms": (SET, "7")}),
    )
    alter(dialog, version, (TOPIC, name, {"retention.ms": (SET, "8")}), validate_only=True)
    alter(dialog, version, (TOPIC, name, {"retention.ms": (SET, "8")}), (TOPIC, name, {"segment.ms": (SET, "8")}))
    twice = {"name": "retention.ms", "config_operation": SET, "value": "9"}
    asked = [{"resource_type": TOPIC, "resource_name": name, "configs": [twice, twice]}]
    in_order(dialog, "incremental_alter_configs", version, resources=asked)
    alter(dialog, version, (TOPIC, "a/b", {"retention.ms": (SET, "1")}), (TOPIC, "", {"retention.ms": (SET, "1")}))
    alter(dialog, version, (99, name, {"retention.ms": (SET, "1")}))
    alter(
        dialog,
        version,
        (BROKER, "2", {"log.retention.ms": (SET, "1")}),
        (BROKER, "one", {"log.retention.ms": (SET, "1")}),
    )
    in_order(dialog, "incremental_alter_configs", version, resources=[])
    alter(dialog, version, (TOPIC, name, {"max.message.bytes": (SET, "7777")}))
    wait_until(dialog, name, "max.message.bytes", "7777", TOPIC)
    described = ("retention.ms", "segment.ms", "cleanup.policy", "max.message.bytes", "min.cleanable.dirty.ratio")
    describe(dialog, 4, resource(TOPIC, name, *described), include_synonyms=True)


@scenario
def alter_configs_of_the_broker(dialog: Dialog) -> None:
    changed = ("log.retention.ms", "message.max.bytes")
    topic = dialog.name
    dialog.create_topic(topic)
    for name in ("1", ""):
        alter(dialog, 1, (BROKER, name, {"log.retention.ms": (SET, "86400000"), "message.max.bytes": (SET, "2000000")}))
        wait_until(dialog, name, "message.max.bytes", "2000000")
        describe(dialog, 4, resource(BROKER, name, *changed), include_synonyms=True)
        describe(dialog, 4, resource(TOPIC, topic, "retention.ms", "max.message.bytes"), include_synonyms=True)
        alter(dialog, 1, (BROKER, name, {"log.retention.ms": (DELETE, None), "message.max.bytes": (DELETE, None)}))
        wait_until(dialog, "1", "message.max.bytes", "1048588")
        describe(dialog, 4, resource(BROKER, name, *changed), include_synonyms=True)
    alter(dialog, 1, (BROKER, "1", {"node.id": (SET, "7")}))
    alter(dialog, 1, (BROKER, "1", {"num.partitions": (SET, "7")}))
    alter(dialog, 1, (BROKER, "1", {"log.retention.ms": (SET, "soon")}))


def wait_until(dialog: Dialog, name: str, config: str, value: str, kind: int = BROKER) -> None:
    """Kafka applies changes a little after it answered."""
    for _ in dialog.tries():
        asked = {"resources": [resource(kind, name, config)], "include_synonyms": True}
        (found,) = dialog.connection("preparing").ask("describe_configs", 4, asked)["results"]
        if any(each["value"] == value and each["synonyms"][0]["value"] == value for each in found["configs"]):
            return


@scenario
def alter_configs_of_groups(dialog: Dialog) -> None:
    group = dialog.name
    alter(dialog, 1, (GROUP, group, {"consumer.session.timeout.ms": (SET, "50000")}))
    alter(dialog, 1, (GROUP, group, {"consumer.heartbeat.interval.ms": (SET, "6000")}))
    alter(dialog, 1, (GROUP, group, {"consumer.session.timeout.ms": (SET, "1")}))
    alter(dialog, 1, (GROUP, group, {"no.such.config": (SET, "1")}))
    alter(dialog, 1, (GROUP, "", {"consumer.session.timeout.ms": (SET, "50000")}))
    wait_until(dialog, group, "consumer.heartbeat.interval.ms", "6000", GROUP)
    describe(dialog, 4, resource(GROUP, group), include_synonyms=True)


@each_version(0, 2)
def alter_configs(dialog: Dialog, version: int) -> None:
    """All of a resource's configs are replaced. A resource twice is not asked for: Kafka 4.3.1 never answers that."""
    name = dialog.name
    dialog.create_topic(name, segment_ms=1000)

    def replace(*resources: tuple[int, str, dict[str, str | None]], **fields: Any) -> None:
        asked = [
            {
                "resource_type": kind,
                "resource_name": each,
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for kind, each, configs in resources
        ]
        in_order(dialog, "alter_configs", version, resources=asked, **fields)

    replace((TOPIC, name, {"retention.ms": "5000"}))
    wait_until(dialog, name, "retention.ms", "5000", TOPIC)
    describe(dialog, 4, resource(TOPIC, name, "retention.ms", "segment.ms"))
    replace((TOPIC, name, {"retention.ms": "6000"}), validate_only=True)
    replace((TOPIC, name, {"retention.ms": "never"}))
    replace((TOPIC, name, {"retention.ms": None}))
    replace((TOPIC, name, {"no.such.config": "1"}))
    replace((TOPIC, f"{name}-missing", {"retention.ms": "1"}), (TOPIC, name, {"segment.ms": "9"}))
    replace((TOPIC, name, {"segment.bytes": "2000000"}))
    wait_until(dialog, name, "segment.bytes", "2000000", TOPIC)
    replace((99, name, {}), (BROKER, "2", {}))
    replace()
    describe(dialog, 4, resource(TOPIC, name, "retention.ms", "segment.ms"))
