"""Topics and configs changed by requests that hardly a client sends: twice, good beside bad, values at the edge."""

from __future__ import annotations

from typing import Any

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import scenario
from oracle.conformance.scenarios.configs import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    describe,
    resource,
)
from oracle.conformance.scenarios.configs import in_order as configs_in_order
from oracle.conformance.scenarios.discovery import NO_SUCH_ID
from oracle.conformance.scenarios.topics import assigned, create, in_order, topic


@scenario
def create_topics_of_odd_shapes(dialog: Dialog) -> None:
    name = dialog.name

    def configured(letter: str, **configs: str) -> None:
        named = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        create(dialog, 7, topic(f"{name}-{letter}", configs=named))

    twice = [{"name": "retention.ms", "value": value} for value in "12"]
    create(dialog, 7, topic(f"{name}-a", configs=twice))
    create(dialog, 7, topic(f"{name}-b", configs=[{"name": "", "value": "1"}]))
    configured("c", retention_ms="")
    configured("d", cleanup_policy="")
    configured("e", cleanup_policy="delete,delete")
    configured("f", cleanup_policy=" delete , compact ")
    configured("g", compression_type="brotli")
    configured("h", min_cleanable_dirty_ratio="1.5")
    configured("i", preallocate="yes")
    configured("j", preallocate="TRUE")
    configured("k", retention_ms="9223372036854775808")
    configured("l", max_message_bytes="2147483648")
    configured("m", min_insync_replicas="2")
    configured("n", retention_ms=" 5 ")
    configured("o", RETENTION_MS="5")
    configured("p", log_retention_ms="5")
    configured("q", remote_storage_enable="true")
    configured("r", local_retention_ms="9", retention_ms="5")
    configured("s", leader_replication_throttled_replicas="0:1,1:1")
    configured("t", leader_replication_throttled_replicas="all")
    configured("u", message_timestamp_type="logappendtime")
    configured("v", max_compaction_lag_ms="1", min_compaction_lag_ms="2")
    create(dialog, 7, topic(f"{name}-w", 20_000))
    create(dialog, 7, topic("a/b", 20_000), topic(f"{name}-x"), validate_only=True)
    for version in (2, 7):
        good, two, bad = (topic(f"{name}-{version}-{each}") for each in ("good", "two", "bad"))
        create(dialog, version, good, topic("a/b"), two, two, bad | {"num_partitions": 0})
        create(dialog, version, good, good)
        create(dialog, version, {"name": f"{name}-placed"} | assigned([1], [1]), validate_only=True)


@scenario
def topics_without_time(dialog: Dialog) -> None:
    """Timeouts that are over before they begin."""
    name = dialog.name
    dialog.create_topic(f"{name}-there")
    for timeout in (0, -1):
        dialog.ask("create_topics", 7, topics=[topic(f"{name}-new")], timeout=timeout, validate_only=True)
        dialog.ask(
            "create_partitions",
            3,
            topics=[{"name": f"{name}-there", "count": 2, "assignments": None}],
            timeout=timeout,
            validate_only=True,
        )


@scenario
def delete_topics_of_odd_shapes(dialog: Dialog) -> None:
    name = dialog.name
    ids = [dialog.create_topic(f"{name}-{letter}") for letter in "abc"]

    def delete(*topics: dict[str, Any]) -> None:
        pending = dialog.on().send("delete_topics", 6, topics=list(topics), timeout=30_000)
        answer = pending.take()
        found = sorted(
            answer["responses"], key=lambda each: (str(each["name"]), each["error_code"], str(each["topic_id"]))
        )
        pending.write_down(answer | {"responses": found})

    by_id = [{"name": None, "topic_id": each} for each in ids]
    delete(by_id[0], by_id[0])
    delete({"name": f"{name}-a"}, {"name": f"{name}-a"}, by_id[0])
    delete({"name": f"{name}-a", "topic_id": ids[1]}, by_id[1])
    delete({"name": None, "topic_id": NO_SUCH_ID}, {"name": None, "topic_id": NO_SUCH_ID}, {"name": None})
    delete({"name": ""}, {"name": "x" * 250}, {"name": f"{name}-missing"}, {"name": f"{name}-missing"})
    delete({"name": f"{name}-c"}, {"name": f"{name}-missing"}, {"name": None, "topic_id": NO_SUCH_ID})


@scenario
def create_partitions_of_odd_shapes(dialog: Dialog) -> None:
    name = dialog.name
    for letter in "ab":
        dialog.create_topic(f"{name}-{letter}", 2)

    def grow(*topics: tuple[str, int, Any], **fields: Any) -> None:
        asked = [{"name": each, "count": count, "assignments": placed} for each, count, placed in topics]
        pending = dialog.on().send("create_partitions", 3, topics=asked, timeout=30_000, **fields)
        answer = pending.take()
        found = sorted(answer["results"], key=lambda each: (each["name"], each["error_code"]))
        pending.write_down(answer | {"results": found})

    grow((f"{name}-a", 3, [{"broker_ids": [1]}, {"broker_ids": [1]}]))
    grow((f"{name}-a", 3, [{"broker_ids": [-1]}]))
    grow((f"{name}-a", 3, [{"broker_ids": [1, 2]}]))
    grow((f"{name}-a", 3, [{"broker_ids": [1]}]), ("", 3, None), (f"{name}-missing", 3, None), (f"{name}-b", 1, None))


@scenario
def delete_records_of_odd_shapes(dialog: Dialog) -> None:
    name, compacted, both = dialog.name, f"{dialog.name}-compacted", f"{dialog.name}-both"
    dialog.create_topic(name, 2)
    dialog.create_topic(compacted, cleanup_policy="compact")
    dialog.create_topic(both, cleanup_policy="compact,delete")
    for each in (name, compacted, both):
        dialog.write(each, 0, 4)

    def trim(version: int, *topics: tuple[str, list[tuple[int, int]]], timeout: int = 30_000) -> None:
        asked = [
            {"name": each, "partitions": [{"partition_index": index, "offset": offset} for index, offset in partitions]}
            for each, partitions in topics
        ]
        pending = dialog.on().send("delete_records", version, topics=asked, timeout=timeout)
        answer = pending.take()
        for each in answer["topics"]:
            each["partitions"].sort(key=lambda partition: partition["partition_index"])
        pending.write_down(in_order(answer))

    for version in (0, 2):
        trim(version, (name, [(0, 3), (0, 1)]))
        trim(version, (name, [(0, 1)]), (name, [(0, 2)]))
        trim(version, (compacted, [(0, 1), (5, 0)]), (both, [(0, 1)]), (name, [(1, 0)]))
        trim(version, (name, [(0, 2**63 - 1), (1, -(2**63))]))
        trim(version, ("", [(0, 0)]), ("a/b", [(0, 0)]))
        trim(version, ("__consumer_offsets", [(0, 0)]), (name, [(0, 2)]))
        trim(version, (name, [(0, 3)]), timeout=0)
        trim(version, (name, [(0, 3)]), timeout=-1)


@scenario
def configs_of_odd_shapes(dialog: Dialog) -> None:
    name = dialog.name
    dialog.create_topic(name)
    for version in (1, 4):
        describe(dialog, version, resource(TOPIC, name, "retention.ms", "retention.ms"))
        describe(dialog, version, resource(TOPIC, name, "retention.ms"), resource(TOPIC, name, "retention.ms"))
        describe(
            dialog,
            version,
            resource(TOPIC, name, "retention.ms"),
            resource(TOPIC, f"{name}-missing"),
            resource(BROKER, "7"),
        )
        describe(dialog, version, resource(TOPIC, name, "", "Retention.ms"))
        describe(
            dialog,
            version,
            resource(BROKER, "-1"),
            resource(BROKER, " 1"),
        )
        describe(dialog, version, resource(BROKER_LOGGER, ""), resource(BROKER_LOGGER, "x"))
        describe(dialog, version, resource(TOPIC, name, "retention.ms"), resource(0, ""))
        describe(dialog, version, resource(1, ""))


@scenario
def alter_configs_of_odd_shapes(dialog: Dialog) -> None:
    name = dialog.name
    dialog.create_topic(name)

    def change(kind: int, of: str, **changes: Any) -> None:
        alter(
            dialog, 1, (kind, of, {key.replace("_", "."): value for key, value in changes.items()}), validate_only=True
        )

    change(TOPIC, name, cleanup_policy=(SET, "delete,delete"))
    change(TOPIC, name, cleanup_policy=(SET, " compact , delete "))
    change(TOPIC, name, cleanup_policy=(APPEND, None))
    change(TOPIC, name, cleanup_policy=(SUBTRACT, None))
    change(TOPIC, name, cleanup_policy=(APPEND, ""))
    change(TOPIC, name, cleanup_policy=(SUBTRACT, ""))
    change(TOPIC, name, cleanup_policy=(SUBTRACT, "delete"))
    change(TOPIC, name, cleanup_policy=(APPEND, "compact,nothing"))
    change(TOPIC, name, cleanup_policy=(DELETE, "compact"))
    change(TOPIC, name, no_such_config=(APPEND, "1"))
    change(TOPIC, name, retention_ms=(SET, ""))
    change(TOPIC, name, retention_ms=(-1, "1"))
    change(TOPIC, name, min_compaction_lag_ms=(SET, "9"), max_compaction_lag_ms=(SET, "8"))
    change(TOPIC, name, remote_storage_enable=(SET, "true"))
    change(TOPIC, name, local_retention_ms=(SET, "99"), retention_ms=(SET, "9"))
    change(TOPIC, name, min_insync_replicas=(SET, "5"))
    change(TOPIC, name, leader_replication_throttled_replicas=(APPEND, "0:1"))
    change(TOPIC, "__consumer_offsets", cleanup_policy=(SET, "delete"))
    for broker in ("1", ""):
        change(BROKER, broker, log_cleaner_threads=(SET, "2"))
        change(BROKER, broker, log_cleaner_threads=(SET, "100"))
        change(BROKER, broker, log_cleanup_policy=(APPEND, "compact"))
        change(BROKER, broker, log_cleanup_policy=(SET, "nothing"))
        change(BROKER, broker, log_retention_ms=(APPEND, "1"))
        change(BROKER, broker, compression_type=(SET, "brotli"))
        change(BROKER, broker, message_max_bytes=(SET, "-1"))
        change(BROKER, broker, no_such_config=(SET, "1"))
        change(BROKER, broker, no_such_config=(DELETE, None))
        change(BROKER, broker, advertised_listeners=(SET, "nonsense"))
        change(BROKER, broker, log_dirs=(SET, "elsewhere"))
        change(BROKER, broker, auto_create_topics_enable=(SET, "false"))
        change(BROKER, broker, min_insync_replicas=(SET, "2"))
        change(BROKER, broker, max_connections=(SET, "10"))
        change(BROKER, broker, max_connections=(SET, "0"))
        change(BROKER, broker, max_connections_per_ip=(SET, "-1"))
        change(BROKER, broker, max_connections_per_ip=(SET, "0"))
        change(BROKER, broker, max_connection_creation_rate=(SET, "0"))
        change(BROKER, broker, max_connection_creation_rate=(SET, "x"))
        change(BROKER, broker, listener_name_plaintext_max_connections=(SET, "0"))
        change(BROKER, broker, listener_name_plaintext_max_connections=(SET, "-1"))
        change(BROKER, broker, listener_name_plaintext_num_network_threads=(SET, "0"))
        change(BROKER, broker, log_segment_bytes=(SET, "14"))
        change(BROKER, broker, log_retention_hours=(SET, "1"))
        change(BROKER, broker, background_threads=(SET, "5"))
        change(BROKER, broker, num_io_threads=(SET, "8"))
        change(BROKER, broker, num_io_threads=(SET, "0"))
        change(BROKER, broker, num_io_threads=(SET, "3"))
        change(BROKER, broker, num_recovery_threads_per_data_dir=(SET, "5"))
        change(BROKER, broker, num_replica_fetchers=(SET, "0"))
        change(BROKER, broker, unclean_leader_election_enable=(SET, "maybe"))
    change(BROKER, " 1", log_retention_ms=(SET, "1"))
    change(BROKER_LOGGER, "1", root=(SET, "LOUD"))
    change(BROKER_LOGGER, "1", root=(DELETE, None))
    change(BROKER_LOGGER, "1", root=(APPEND, "INFO"))
    change(BROKER_LOGGER, "2", root=(SET, "INFO"))
    change(BROKER_LOGGER, "", root=(SET, "INFO"))
    change(GROUP, name, consumer_session_timeout_ms=(APPEND, "50000"))
    change(GROUP, name, consumer_session_timeout_ms=(SET, "x"))
    change(GROUP, name, consumer_session_timeout_ms=(DELETE, None))
    change(TOPIC, name)
    change(BROKER, "1")
    change(GROUP, name)


@scenario
def replace_configs_of_odd_shapes(dialog: Dialog) -> None:
    name = dialog.name
    dialog.create_topic(name)

    def replace(kind: int, of: str, **configs: str) -> None:
        asked = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        resources = [{"resource_type": kind, "resource_name": of, "configs": asked}]
        configs_in_order(dialog, "alter_configs", 2, resources=resources, validate_only=True)

    replace(TOPIC, "", retention_ms="1")
    replace(TOPIC, "a/b", retention_ms="1")
    replace(TOPIC, name, cleanup_policy="")
    replace(TOPIC, name, cleanup_policy="delete,delete")
    for broker in ("1", "", "one", "2"):
        replace(BROKER, broker, log_cleaner_threads="2")
        replace(BROKER, broker, log_cleaner_threads="100")
        replace(BROKER, broker, no_such_config="1")
        replace(BROKER, broker, node_id="1")
    replace(BROKER_LOGGER, "1", root="INFO")
    replace(GROUP, name, consumer_session_timeout_ms="50000")
    replace(GROUP, "", consumer_session_timeout_ms="50000")
    replace(0, "")
    for kind in (TOPIC, BROKER_LOGGER, 0):
        twice = {"name": "retention.ms", "value": None}
        resources = [{"resource_type": kind, "resource_name": name, "configs": [twice, twice]}]
        configs_in_order(dialog, "alter_configs", 2, resources=resources, validate_only=True)
        configs_in_order(dialog, "incremental_alter_configs", 1, resources=resources, validate_only=True)
