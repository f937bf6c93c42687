"""What a client asks first: versions, brokers, topics and where they are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kio.schema.index import api_key_map

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.wire import Fields, header

_FEATURES = ("supported_features", "finalized_features")
NO_SUCH_ID = UUID("12345678-1234-1234-1234-123456789012")


def known(answer: Fields) -> bool:
    """Every topic that was asked for is there, with leaders."""
    return all(
        topic["error_code"] == 0 and all(partition["error_code"] == 0 for partition in topic["partitions"])
        for topic in answer["topics"]
    )


@each_version(0, 4)
def api_versions(dialog: Dialog, version: int) -> None:
    offered(dialog, version, client_software_name="conformance", client_software_version="1.0")
    if version >= 3:
        dialog.ask("api_versions", version, client_software_name="", client_software_version="1.0")
        dialog.ask("api_versions", version, client_software_name="a b", client_software_version="1.0")
        dialog.ask("api_versions", version, client_software_name="a", client_software_version="-1.0")


def offered(dialog: Dialog, version: int, **fields: Any) -> None:
    """The ranges by API, so that one that is missing is one difference."""
    pending = dialog.on().send("api_versions", version, **fields)
    answer = pending.take()
    order = [each["api_key"] for each in answer["api_keys"]]
    ranges = {api_key_map[each["api_key"]]: [each["min_version"], each["max_version"]] for each in answer["api_keys"]}
    features = {name: {each["name"]: each for each in answer[name] or ()} for name in _FEATURES if name in answer}
    pending.write_down(answer | {"api_keys": ranges} | features | {"in order": order == sorted(order)})


@scenario
def api_versions_from_the_future(dialog: Dialog) -> None:
    """Answered in the oldest form, so that a newer client can go on."""
    dialog.on().send_frame(header(18, 99, 7, "conformance", True) + b"\x05abcd\x041.0\0", "api_versions v99")
    dialog.ask("describe_cluster", 0)


@each_version(0, 13)
def metadata(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    topic_id = dialog.create_topic(topic, 3)
    dialog.eventually(known, "metadata", version, topics=[{"name": topic}])
    dialog.ask("metadata", version, topics=[{"name": topic}, {"name": topic}])
    dialog.ask(
        "metadata", version, topics=[{"name": topic}, {"name": f"{topic}-missing"}], allow_auto_topic_creation=False
    )
    for name in ("", ".", "..", "a/b", "x" * 250, "sn\N{SNOWMAN}w"):
        dialog.ask("metadata", version, topics=[{"name": name}], allow_auto_topic_creation=True)
    if version >= 1:
        dialog.ask("metadata", version, topics=[])
    if version >= 8:
        dialog.ask(
            "metadata",
            version,
            topics=[{"name": topic}],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
    if version >= 10:
        by_id: list[dict[str, Any]] = [{"topic_id": topic_id, "name": None}]
        dialog.ask("metadata", version, topics=by_id)
        dialog.ask("metadata", version, topics=[{"topic_id": NO_SUCH_ID, "name": None}])
        dialog.ask("metadata", version, topics=[{"topic_id": NO_SUCH_ID, "name": topic}])
        dialog.ask("metadata", version, topics=[{"topic_id": UUID(int=0), "name": None}])
        dialog.ask("metadata", version, topics=[*by_id, {"name": topic}])


@each_version(0, 13)
def metadata_makes_topics(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.ask("metadata", version, topics=[{"name": topic}], allow_auto_topic_creation=True)
    dialog.eventually(known, "metadata", version, topics=[{"name": topic}], allow_auto_topic_creation=False)


@scenario
def metadata_of_all_topics(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    for version, asked in ((0, []), (1, None), (9, None), (12, None), (13, None)):
        answer = dialog.connection("").ask("metadata", version, {"topics": asked})
        dialog.note(f"all topics, v{version}", [each for each in answer["topics"] if each["name"] == topic])


@scenario
def metadata_of_internal_topics(dialog: Dialog) -> None:
    """They are made by whoever names them first."""
    for topic in ("__consumer_offsets", "__transaction_state"):
        dialog.eventually(known, "metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=True)


@each_version(0, 2)
def describe_cluster(dialog: Dialog, version: int) -> None:
    dialog.ask("describe_cluster", version)
    dialog.ask("describe_cluster", version, include_cluster_authorized_operations=True)
    if version >= 1:
        dialog.ask("describe_cluster", version, endpoint_type=2)
        dialog.ask("describe_cluster", version, endpoint_type=7)
    if version >= 2:
        dialog.ask("describe_cluster", version, include_fenced_brokers=True)


@scenario
def describe_topic_partitions(dialog: Dialog) -> None:
    topics = [f"{dialog.name}-{letter}" for letter in "abc"]
    for topic in topics:
        dialog.create_topic(topic, 3)
    ask, api = dialog.ask, "describe_topic_partitions"
    ask(api, 0, topics=[{"name": topics[1]}, {"name": topics[0]}], response_partition_limit=2000)
    ask(api, 0, topics=[{"name": topics[1]}, {"name": topics[1]}], response_partition_limit=2000)
    ask(api, 0, topics=[{"name": topic} for topic in topics], response_partition_limit=2)
    ask(api, 0, topics=[{"name": topic} for topic in topics], response_partition_limit=4)
    cursor = {"topic_name": topics[1], "partition_index": 1}
    ask(api, 0, topics=[{"name": topic} for topic in topics], response_partition_limit=3, cursor=cursor)
    ask(api, 0, topics=[{"name": topics[0]}], response_partition_limit=3, cursor=cursor)
    cursor = {"topic_name": topics[1], "partition_index": 7}
    ask(api, 0, topics=[{"name": topic} for topic in topics], response_partition_limit=3, cursor=cursor)
    cursor = {"topic_name": topics[1], "partition_index": -1}
    ask(api, 0, topics=[{"name": topic} for topic in topics], response_partition_limit=3, cursor=cursor)
    ask(api, 0, topics=[{"name": f"{dialog.name}-missing"}, {"name": topics[2]}], response_partition_limit=3)
    for name in ("", "a/b", "x" * 250):
        ask(api, 0, topics=[{"name": name}], response_partition_limit=3)
    ask(api, 0, topics=[{"name": topics[0]}], response_partition_limit=0)
    ask(api, 0, topics=[{"name": topics[0]}], response_partition_limit=-5)
