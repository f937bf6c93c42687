"""What operators ask of a cluster: elections, reassignments, the quorum, features, configured resources."""

from __future__ import annotations

from typing import Any

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.wire import Fields

_PREFERRED, _UNCLEAN = 0, 1
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
NODE_ID = 1
_UNSUPPORTED_VERSION = 35


@each_version(0, 2)
def elect_leaders(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 3)
    ask, api = dialog.ask, "elect_leaders"
    ask(api, version, topic_partitions=[{"topic": topic, "partitions": [0, 2]}], timeout=30_000)
    ask(api, version, topic_partitions=[{"topic": topic, "partitions": [7, 0, 0, -1]}], timeout=30_000)
    missing = {"topic": f"{topic}-missing", "partitions": [0]}
    ask(api, version, topic_partitions=[missing, {"topic": topic, "partitions": [1]}], timeout=30_000)
    ask(api, version, topic_partitions=[{"topic": topic, "partitions": [1]}] * 2, timeout=30_000)
    for name in ("", "a/b"):
        ask(api, version, topic_partitions=[{"topic": name, "partitions": [0]}], timeout=30_000)
    ask(api, version, topic_partitions=[{"topic": topic, "partitions": []}], timeout=30_000)
    ask(api, version, topic_partitions=[], timeout=30_000)
    _elect_all(dialog, version)
    if version >= 1:
        unclean: dict[str, Any] = {"election_type": _UNCLEAN, "timeout": 30_000}
        ask(api, version, topic_partitions=[{"topic": topic, "partitions": [0, 7]}, missing], **unclean)
        _elect_all(dialog, version, election_type=_UNCLEAN)
        ask(api, version, topic_partitions=[{"topic": topic, "partitions": [0]}], election_type=7, timeout=30_000)


def _elect_all(dialog: Dialog, version: int, **fields: Any) -> None:
    """Of all topics, that of the scenario: other scenarios make others."""
    pending = dialog.on().send("elect_leaders", version, topic_partitions=None, timeout=30_000, **fields)
    answer = pending.take()
    own = [each for each in answer["replica_election_results"] if each["topic"] == dialog.name]
    pending.write_down(answer | {"replica_election_results": own})


@each_version(0, 1)
def alter_partition_reassignments(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 3)
    for allowed in (True, False) if version else (True,):
        _reassign(dialog, version, [_to(0, [NODE_ID]), _to(1, None)], allowed)
        _reassign(dialog, version, [_to(0, []), _to(1, [99]), _to(2, [NODE_ID, NODE_ID])], allowed)
        _reassign(dialog, version, [_to(0, [NODE_ID, 99]), _to(1, [-1]), _to(7, [NODE_ID]), _to(7, None)], allowed)
        _reassign(dialog, version, [_to(-1, [NODE_ID]), _to(0, [99, 98])], allowed)
        _reassign(dialog, version, [_to(0, [NODE_ID]), _to(0, [NODE_ID]), _to(0, None)], allowed)
    for topics in ([], [{"name": f"{topic}-missing", "partitions": [_to(0, [NODE_ID]), _to(1, None)]}]):
        dialog.ask("alter_partition_reassignments", version, topics=topics, timeout=30_000)
    named = {"name": topic, "partitions": [_to(0, [NODE_ID])]}
    dialog.ask("alter_partition_reassignments", version, topics=[named, named], timeout=30_000)
    dialog.ask("alter_partition_reassignments", version, topics=[named | {"partitions": []}], timeout=30_000)


def _to(partition: int, replicas: list[int] | None) -> Fields:
    return {"partition_index": partition, "replicas": replicas}


def _reassign(dialog: Dialog, version: int, partitions: list[Fields], allowed: bool) -> None:
    fields = {"allow_replication_factor_change": allowed} if version else {}
    topics = [{"name": dialog.name, "partitions": partitions}]
    dialog.ask("alter_partition_reassignments", version, topics=topics, timeout=30_000, **fields)


@scenario
def list_partition_reassignments(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    named = {"name": topic, "partition_indexes": [0, 1]}
    for topics in (None, [], [named], [named, named], [named | {"partition_indexes": [7, -1]}]):
        dialog.ask("list_partition_reassignments", 0, topics=topics, timeout=30_000)
    missing = {"name": f"{topic}-missing", "partition_indexes": [0]}
    dialog.ask("list_partition_reassignments", 0, topics=[missing, named], timeout=30_000)


@each_version(0, 2)
def describe_quorum(dialog: Dialog, version: int) -> None:
    def ask(*topics: tuple[str, list[int]]) -> None:
        asked = [
            {"topic_name": topic, "partitions": [{"partition_index": number} for number in partitions]}
            for topic, partitions in topics
        ]
        pending = dialog.on().send("describe_quorum", version, topics=asked)
        pending.write_down(_without_the_log(pending.take()))

    ask(("__cluster_metadata", [0]))
    ask(("__cluster_metadata", [1]))
    ask(("__cluster_metadata", []))
    ask(("__cluster_metadata", [0, 0]))
    ask(("__cluster_metadata", [0, 1]))
    ask(("__cluster_metadata", [0]), ("__cluster_metadata", [0]))
    ask(("__consumer_offsets", [0]))
    ask(("__cluster_metadata", [0]), ("__consumer_offsets", [0]))
    ask(("", [0]))
    ask()


def _without_the_log(answer: Fields) -> Fields:
    """Without offsets and epochs of the metadata log: each server's own. Without the controller's own port."""
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            for field in ("leader_epoch", "high_watermark"):
                assert partition[field] >= 0, answer
                partition[field] = min(partition[field], 1)
            for replica in partition["current_voters"] + partition["observers"]:
                assert replica["log_end_offset"] >= partition["high_watermark"]
                replica["log_end_offset"] = "<end>"
    for node in answer.get("nodes", []):
        for listener in node["listeners"]:
            listener["port"] = "<port>"
    return answer


@each_version(0, 2)
def update_features(dialog: Dialog, version: int) -> None:
    def ask(*updates: tuple[str, int, int], validate_only: bool = True) -> None:
        asked = []
        for feature, level, kind in updates:
            how = {"upgrade_type": kind} if version else {"allow_downgrade": kind != _UPGRADE}
            asked.append({"feature": feature, "max_version_level": level, **how})
        fields = {"validate_only": validate_only} if version else {}
        dialog.ask("update_features", version, feature_updates=asked, timeout=60_000, **fields)

    ask()
    ask(("no.such.feature", 1, _UPGRADE))
    ask(("", 1, _UPGRADE))
    ask(("metadata.version", 31, _UPGRADE))
    ask(("metadata.version", 30, _UPGRADE))
    ask(("metadata.version", 6, _SAFE_DOWNGRADE))
    ask(("metadata.version", 0, _UNSAFE_DOWNGRADE))
    ask(("metadata.version", -1, _UPGRADE))
    ask(("group.version", 2, _UPGRADE))
    ask(("group.version", 1, _UPGRADE))
    ask(("group.version", 1, _SAFE_DOWNGRADE))
    ask(("group.version", -5, _SAFE_DOWNGRADE))
    ask(("transaction.version", 2, _UPGRADE), ("group.version", 1, _UPGRADE))
    ask(("group.version", 1, _UPGRADE), ("group.version", 1, _UPGRADE))
    ask(("kraft.version", 9, _UPGRADE))
    ask(("kraft.version", 0, _UPGRADE))
    if version:
        ask(("group.version", 0, _UPGRADE))
        ask(("group.version", 0, 7))
        ask(("group.version", 1, 0))
        ask(("metadata.version", 29, _UPGRADE))
        ask(("metadata.version", 29, _SAFE_DOWNGRADE))
        ask(("metadata.version", 20, _SAFE_DOWNGRADE))
        ask(("metadata.version", 7, _UNSAFE_DOWNGRADE))
        ask(("group.version", 0, _SAFE_DOWNGRADE))
        ask(("transaction.version", 1, _SAFE_DOWNGRADE))
        ask(("transaction.version", 0, _UNSAFE_DOWNGRADE))
        ask(("eligible.leader.replicas.version", 0, _SAFE_DOWNGRADE))
    for level in (1, 2):
        kind = _SAFE_DOWNGRADE if level == 1 else _UPGRADE
        ask(("transaction.version", level, kind), validate_only=False)
        # Version 0 has no downgrade. Kafka's broker follows its controller: wait until it shows the level.
        expected = level if version else 2
        for _ in dialog.tries():
            found = _transaction_version(dialog)
            if found == expected:
                break
        dialog.note("level", found)


def _transaction_version(dialog: Dialog) -> int:
    software = {"client_software_name": "conformance", "client_software_version": "1"}
    answer = dialog.connection("").ask("api_versions", 4, software)
    (level,) = (e["max_version_level"] for e in answer["finalized_features"] if e["name"] == "transaction.version")
    return int(level)


@each_version(0, 1)
def list_config_resources(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 1)
    connection = dialog.connection("")
    for types in (
        ([], [2], [4], [8], [16], [32], [2, 32], [32, 2], [2, 2], [3], [0], [2, 3], [-1]) if version else ([],)
    ):
        answer = connection.ask("list_config_resources", version, {"resource_types": types} if version else {})
        dialog.versions_asked.add(("list_config_resources", version))
        own = [
            each
            for each in answer["config_resources"]
            if each.get("resource_type") != 32 and (each.get("resource_type") != 2 or each["resource_name"] == topic)
        ]
        dialog.note(f"types {types}", answer | {"config_resources": sorted(own, key=repr)})


@scenario
def configured_groups(dialog: Dialog) -> None:
    group = dialog.name
    for operation in (0, 1):
        change = {"name": "consumer.session.timeout.ms", "config_operation": operation, "value": "46000"}
        resource = {"resource_type": 32, "resource_name": group, "configs": [change]}
        dialog.ask("incremental_alter_configs", 1, resources=[resource])
        wanted = operation == 0
        for _ in dialog.tries():
            answer = dialog.connection("").ask("list_config_resources", 1, {"resource_types": [32]})
            found = [each for each in answer["config_resources"] if each["resource_name"] == group]
            if bool(found) == wanted:
                break
        dialog.note(f"after {operation}", found)


@each_version(1, 2)
def alter_replica_log_dirs(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    described = dialog.connection("").ask("describe_log_dirs", 4, {"topics": []})
    path = described["results"][0]["log_dir"]
    missing = {"name": f"{topic}-missing", "partitions": [0]}
    for number, dirs in enumerate(
        (
            [],
            [{"path": path, "topics": [{"name": topic, "partitions": [0, 1]}]}],
            [{"path": path, "topics": [{"name": topic, "partitions": [7]}]}],
            [{"path": path, "topics": [missing]}],
            [{"path": "/no/such/directory", "topics": [{"name": topic, "partitions": [0]}]}],
            [{"path": "/no/such/directory", "topics": [missing]}],
            [{"path": "not/absolute", "topics": [{"name": topic, "partitions": [1]}]}],
        )
    ):
        answer = dialog.connection("").ask("alter_replica_log_dirs", version, {"dirs": dirs})
        dialog.versions_asked.add(("alter_replica_log_dirs", version))
        for result in answer["results"]:
            result["partitions"].sort(key=repr)
        dialog.note(f"directories {number}", answer)


@scenario
def levels_that_brokers_follow(dialog: Dialog) -> None:
    """Without its feature, the newer protocol of groups is refused."""
    for level, kind in ((0, _SAFE_DOWNGRADE), (1, _SAFE_DOWNGRADE), (1, _UPGRADE)):
        update = {"feature": "group.version", "max_version_level": level, "upgrade_type": kind}
        dialog.ask("update_features", 2, feature_updates=[update], timeout=60_000)
        beat = {"group_id": dialog.name, "member_id": "m", "member_epoch": 7, "topic_partitions": []}
        served = (level, kind) == (1, _UPGRADE)
        for _ in dialog.tries():
            answer = dialog.connection("").ask("consumer_group_heartbeat", 1, beat)
            if (answer["error_code"] != _UNSUPPORTED_VERSION) == served:
                break
        dialog.note(f"heartbeat at level {level}", answer["error_code"])
