"""What a client may not do is answered as Kafka answers it: every API, with some, few and no permissions.

Kafka and duralog have the same topics and the same ACLs. Three users ask both for the same things: `alice` has no
permission, `bob` has all for what is his, `carol` may only describe. The answers are compared field by field, lists
without their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from duralog.broker.broker import Broker
from duralog.broker.handlers import load_apis
from duralog.config import BrokerConfig
from duralog.format import record_batch
from duralog.format.record import Record
from duralog.storage.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from tests.support.broker.raw_client import RawClient
from tests.support.interop.senders import AUTHORIZED, asked, duralog_client, kafka_client, sasl_settings

pytestmark = pytest.mark.interop

QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "auto.create.topics.enable": "true",
}
ACLS = [
    *(
        Acl(kind, name, PatternType.LITERAL, "User:bob", "*", Operation.ALL, Permission.ALLOW)
        for kind, name in (
            (ResourceType.TOPIC, "bobs"),
            (ResourceType.TOPIC, "bobs-new"),
            (ResourceType.GROUP, "bobs"),
            (ResourceType.TRANSACTIONAL_ID, "bobs"),
        )
    ),
    Acl(ResourceType.TOPIC, "bobs", PatternType.LITERAL, "User:carol", "*", Operation.DESCRIBE, Permission.ALLOW),
    Acl(ResourceType.TOPIC, "missing", PatternType.PREFIXED, "User:carol", "*", Operation.DESCRIBE, Permission.ALLOW),
    Acl(ResourceType.TOPIC, "carols", PatternType.LITERAL, "User:carol", "*", Operation.CREATE, Permission.ALLOW),
    Acl(ResourceType.GROUP, "bobs", PatternType.LITERAL, "User:carol", "*", Operation.DESCRIBE, Permission.ALLOW),
    Acl(ResourceType.GROUP, "carols", PatternType.LITERAL, "User:carol", "*", Operation.READ, Permission.ALLOW),
    Acl(
        ResourceType.TRANSACTIONAL_ID, "carols", PatternType.LITERAL, "User:carol", "*", Operation.ALL, Permission.ALLOW
    ),
]
NAMES = ("bobs", "other", "missing")
"""bobs: bob may do everything, carol describe. other: exists, for neither. missing: does not exist."""
BATCH = record_batch.encode([Record(key=b"k", value=b"v", timestamp_ms=1_700_000_000_000)])
TRANSACTIONAL = record_batch.encode(
    [Record(key=b"k", value=b"v", timestamp_ms=1_700_000_000_000)],
    producer_id=1,
    producer_epoch=0,
    base_sequence=0,
    is_transactional=True,
)
NOT_READY = (14, 15, 16, 51)
"""A coordinator that loads, or is about to be elected: ask again, as every client does."""
DIFFERENT = {
    "throttle_time",
    "port",
    "cluster_id",
    "controller_id",
    "node_id",
    "broker_id",
    "brokers",
    "member_id",
    "leader",
    "members",
    "producer_id",
    "producer_epoch",
    "session_id",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "log_append_time",
    "base_offset",
    "timestamp",
    "offset",
    "records",
    "high_watermark",
    "last_stable_offset",
    "log_start_offset",
    "aborted_transactions",
    "configs",
    "replica_nodes",
    "isr_nodes",
    "leader_id",
    "leader_epoch",
    "end_offset",
    "low_watermark",
    "partition_size",
    "node_endpoints",
    "committed_offset",
    "committed_leader_epoch",
    "current_leader",
    "topic_id",
    "current_voters",
    "observers",
    "nodes",
}
"""Fields that depend on the server or on the moment. Whether a topic has an id is compared."""


@dataclass
class Side:
    connect: Callable[[str], RawClient]
    clients: dict[str, RawClient] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)

    def client(self, name: str) -> RawClient:
        if name not in self.clients:
            self.clients[name] = self.connect(name)
        return self.clients[name]

    def ask(self, name: str, api: int, version: int, request: dict[str, Any]) -> Any:
        for _ in range(600):
            answer = asked(self.client(name), api, version, with_ids(request, self.ids))
            if answer == "closed" or answer.get("error_code") not in NOT_READY:
                break
        if answer == "closed":
            self.clients.pop(name).close()
        return normal(answer)

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


def with_ids(value: Any, ids: dict[str, UUID]) -> Any:
    """Ids in place of `id of NAME`."""
    if isinstance(value, dict):
        return {name: with_ids(each, ids) for name, each in value.items()}
    if isinstance(value, list):
        return [with_ids(each, ids) for each in value]
    return ids[value.removeprefix("id of ")] if isinstance(value, str) and value.startswith("id of ") else value


def normal(value: Any) -> Any:
    if isinstance(value, dict):
        shown: dict[str, Any] = {}
        for name, each in value.items():
            if name == "topic_id":
                shown[name] = each is not None
            elif name == "error_message" and isinstance(each, str) and each.startswith("Request "):
                # Kafka's names the objects of its network layer.
                shown[name] = each[each.rindex(" needs ") :]
            elif name not in DIFFERENT and not (name == "host" and "port" in value):
                shown[name] = normal(each)
        return shown
    if isinstance(value, list):
        return sorted(map(normal, value), key=lambda each: json.dumps(each, sort_keys=True, default=str))
    return value


def creation(acl: Acl) -> dict[str, Any]:
    fields = acl._asdict()
    pattern_type = fields.pop("pattern_type")
    return {**fields, "resource_pattern_type": pattern_type}


def prepare(side: Side) -> None:
    admin = side.client("admin")
    named = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("bobs", "other")]
    for _ in range(600):
        made = asked(admin, 19, 7, {"topics": named, "timeout": 30_000})
        if all(each["error_code"] in (0, 36) for each in made["topics"]):
            break
    side.ids = {each["name"]: each["topic_id"] for each in asked(admin, 3, 12, {"topics": None})["topics"]}
    answer = asked(admin, 30, 3, {"creations": [creation(acl) for acl in ACLS]})
    assert all(each["error_code"] == 0 for each in answer["results"]), answer
    for key_type, key in ((0, "bobs"), (1, "bobs")):
        for _ in range(600):
            found = asked(admin, 10, 3, {"key": key, "key_type": key_type})
            if found["error_code"] == 0:
                break
    for _ in range(600):
        seen = asked(side.client("bob"), 3, 12, {"topics": [{"name": "bobs", "topic_id": None}]})["topics"][0]
        if seen["error_code"] == 0 and seen["partitions"] and seen["partitions"][0]["leader_id"] >= 0:
            break
    side.ids |= {each["name"]: each["topic_id"] for each in asked(admin, 3, 12, {"topics": None})["topics"]}


@pytest.fixture(scope="module")
def sides(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder: Path = tmp_path_factory.mktemp("acls")
    format_directory(kafka, folder / "kafka")
    with (
        KafkaServer(kafka, folder / "kafka", configs={**QUICK, **AUTHORIZED, **sasl_settings()}) as server,
        Broker(str(folder / "duralog"), config=BrokerConfig.of({**QUICK, **AUTHORIZED})) as broker,
    ):
        broker.start()
        both = Side(lambda name: kafka_client(server, name)), Side(lambda name: duralog_client(broker, name))
        try:
            for side in both:
                prepare(side)
            yield both
        finally:
            for side in both:
                side.close()


def topics_with(partitions: str, partition: dict[str, Any], name: str = "name") -> list[dict[str, Any]]:
    return [{name: each, partitions: [partition]} for each in NAMES]


ANYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
RESOURCES: list[dict[str, Any]] = [
    *({"resource_type": 2, "resource_name": name} for name in NAMES),
    *({"resource_type": 32, "resource_name": name} for name in ("bobs", "other")),
    {"resource_type": 4, "resource_name": "1"},
    {"resource_type": 8, "resource_name": "1"},
]
COMMIT = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
REQUESTS: dict[int, list[dict[str, Any]]] = {
    0: [
        {
            "transactional_id": transactional_id,
            "acks": 1,
            "timeout": 1000,
            "topic_data": [{"name": each, "partition_data": [{"index": 0, "records": batch}]} for each in NAMES],
        }
        for transactional_id, batch in ((None, BATCH), ("other", TRANSACTIONAL))
    ],
    1: [
        {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1000,
            "session_epoch": -1,
            "topics": [
                {"topic": each, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
                for each in NAMES
            ],
        }
    ],
    2: [{"replica_id": -1, "topics": topics_with("partitions", {"partition_index": 0, "timestamp": -1})}],
    3: [
        {"topics": [{"name": each, "topic_id": None} for each in NAMES], "allow_auto_topic_creation": False},
        {"topics": [{"name": each, "topic_id": None} for each in ("missing", "missing-too", "secret")]},
        {"topics": None, "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True},
        {
            "topics": [{"name": each, "topic_id": None} for each in NAMES],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
    ],
    8: [
        {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": topics_with("partitions", COMMIT),
        }
        for group in ("bobs", "carols", "other")
    ],
    9: [{"group_id": group, "topics": topics_with("partition_indexes", 0)} for group in ("bobs", "carols", "other")]  # type: ignore[arg-type]
    + [{"group_id": group, "topics": None} for group in ("bobs", "other")],
    10: [{"key": key, "key_type": kind} for key in ("bobs", "other") for kind in (0, 1)],
    11: [
        {
            "group_id": group,
            "session_timeout": 10_000,
            "rebalance_timeout": 1000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        for group in ("other",)
    ],
    12: [{"group_id": group, "generation_id": 1, "member_id": "x"} for group in ("bobs", "other")],
    13: [{"group_id": group, "member_id": "x", "members": [{"member_id": "x"}]} for group in ("bobs", "other")],
    14: [
        {
            "group_id": group,
            "generation_id": 1,
            "member_id": "x",
            "assignments": [],
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        for group in ("bobs", "other")
    ],
    15: [{"groups": ["bobs", "other"], "include_authorized_operations": True}],
    16: [{}],
    19: [
        {
            "topics": [
                {"name": each, "num_partitions": 1, "replication_factor": 1}
                for each in ("bobs", "carols", "other", "new")
            ],
            "timeout": 10_000,
            "validate_only": True,
        }
    ],
    20: [
        {"topic_names": ["other", "missing"], "timeout": 10_000},
        {
            "topics": [
                *({"name": each, "topic_id": None} for each in ("other", "missing")),
                {"name": None, "topic_id": "id of other"},
            ],
            "timeout": 10_000,
        },
    ],
    21: [{"topics": topics_with("partitions", {"partition_index": 0, "offset": 0}), "timeout": 10_000}],
    22: [
        {"transactional_id": each, "transaction_timeout": 10_000, "producer_id": -1, "producer_epoch": -1}
        for each in (None, "bobs", "other")
    ],
    23: [
        {
            "replica_id": -1,
            "topics": [
                {"topic": each, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
                for each in NAMES
            ],
        }
    ],
    24: [
        {
            "v3_and_below_transactional_id": each,
            "v3_and_below_producer_id": 4000,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in NAMES],
            "transactions": [
                {
                    "transactional_id": each,
                    "producer_id": 4000,
                    "producer_epoch": 0,
                    "verify_only": False,
                    "topics": [{"name": name, "partitions": [0]} for name in NAMES],
                }
            ],
        }
        for each in ("carols", "other")
    ],
    25: [
        {"transactional_id": each, "producer_id": 4000, "producer_epoch": 0, "group_id": group}
        for each in ("carols", "other")
        for group in ("bobs", "other")
    ],
    26: [
        {"transactional_id": each, "producer_id": 4000, "producer_epoch": 0, "committed": True}
        for each in ("carols", "other")
    ],
    27: [
        {
            "markers": [
                {
                    "producer_id": 4000,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "topics": [{"name": each, "partition_indexes": [0]} for each in NAMES],
                    "coordinator_epoch": 0,
                }
            ]
        }
    ],
    28: [
        {
            "transactional_id": each,
            "group_id": group,
            "producer_id": 4000,
            "producer_epoch": 0,
            "topics": topics_with("partitions", COMMIT),
        }
        for each, group in (("other", "bobs"), ("bobs", "other"), ("carols", "bobs"))
    ],
    29: [ANYTHING],
    30: [{"creations": [creation(ACLS[0])]}],
    31: [{"filters": [ANYTHING]}],
    32: [{"resources": [{**each, "configuration_keys": ["retention.ms"]} for each in RESOURCES]}],
    33: [
        {
            "resources": [{**each, "configs": []} for each in RESOURCES if each["resource_type"] != 8],
            "validate_only": True,
        }
    ],
    34: [{"dirs": [{"path": "/nowhere", "topics": [{"name": each, "partitions": [0]} for each in NAMES]}]}],
    35: [{"topics": None}],
    37: [
        {
            "topics": [{"name": each, "count": 2, "assignments": None} for each in NAMES],
            "timeout": 10_000,
            "validate_only": True,
        }
    ],
    42: [{"groups_names": ["nothing", "other"]}],
    43: [
        {"election_type": 0, "topic_partitions": [{"topic": each, "partitions": [0]} for each in NAMES], "timeout": 1}
    ],
    44: [{"resources": [{**each, "configs": []} for each in RESOURCES], "validate_only": True}],
    45: [
        {
            "timeout": 1000,
            "topics": [{"name": each, "partitions": [{"partition_index": 0, "replicas": None}]} for each in NAMES],
        }
    ],
    46: [{"timeout": 1000, "topics": None}],
    47: [
        {"group_id": group, "topics": topics_with("partitions", {"partition_index": 0})}
        for group in ("bobs", "other", "carols")
    ],
    48: [{"components": [], "strict": False}],
    49: [
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "bob"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
                }
            ],
            "validate_only": True,
        }
    ],
    50: [{"users": []}],  # Kafka answers null with nothing at all.
    51: [{"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": []}],
    55: [{"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}],
    57: [
        {
            "timeout": 1000,
            "feature_updates": [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}],
            "validate_only": True,
        }
    ],
    60: [{"include_cluster_authorized_operations": True}],
    61: [{"topics": [{"name": each, "partition_indexes": [0]} for each in NAMES]}],
    65: [{"transactional_ids": ["bobs", "other"]}],
    66: [{"state_filters": [], "producer_id_filters": []}],
    68: [
        {
            "group_id": group,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": -1,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": names,
            "topic_partitions": [],
        }
        for group, names in (("bobs", None), ("other", None), ("bobs", ["bobs", "other"]), ("carols", ["other"]))
    ],
    69: [{"group_ids": ["bobs", "other"], "include_authorized_operations": True}],
    74: [{"resource_types": []}],
    75: [
        {"topics": [{"name": each} for each in NAMES], "response_partition_limit": 10, "cursor": None},
        {"topics": [], "response_partition_limit": 10, "cursor": None},
        {"topics": [{"name": "other"}], "response_partition_limit": 10, "cursor": None},
    ],
}
"""By the key of the API. What bob may do changes nothing here, or the same on both sides."""
SEVERAL = {9: ("groups", 8), 10: ("coordinator_keys", 4)}
APIS = load_apis()


def in_version(api: int, version: int, request: dict[str, Any]) -> dict[str, Any]:
    """The request in the words of a version."""
    if api == 9 and version >= 8:
        topics = request["topics"]
        if version >= 10 and topics is not None:
            topics = [{**each, "topic_id": f"id of {each['name']}"} for each in topics if each["name"] != "missing"]
        if topics is not None:
            topics = [{k: v for k, v in each.items() if k != "name" or version < 10} for each in topics]
        return {"groups": [{"group_id": request["group_id"], "topics": as_lists(topics)}]}
    if api == 9:
        topics = request["topics"]
        return {
            "group_id": request["group_id"],
            "topics": as_lists(topics if topics is not None or version >= 2 else []),
        }
    if api == 10 and version >= 4:
        return {"key_type": request["key_type"], "coordinator_keys": [request["key"]]}
    for first, field_name, key, of in (
        (13, "topic_data", 0, "name"),
        (13, "topics", 1, "topic"),
        (10, "topics", 8, "name"),
    ):
        if api == key and version >= first:
            topics = [
                {**{k: v for k, v in each.items() if k != of}, "topic_id": f"id of {each[of]}"}
                for each in request[field_name]
                if each[of] != "missing"
            ]
            return {**request, field_name: topics}
    if api == 3 and version < 12 and request["topics"] is not None:
        return {**request, "topics": [{"name": each["name"]} for each in request["topics"]]}
    if api == 3 and version == 0:
        return {**request, "topics": []}
    return request


def as_lists(topics: Any) -> Any:
    if topics is None:
        return None
    return [{**each, "partition_indexes": [0]} for each in topics]


def test_every_api_is_asked() -> None:
    assert REQUESTS.keys() | {18, 17, 36} >= APIS.keys()


@pytest.mark.parametrize("api", REQUESTS, ids=lambda key: APIS[key].name)
@pytest.mark.parametrize("user", ["alice", "bob", "carol"])
def test_refusals_are_kafkas(sides: tuple[Side, Side], api: int, user: str) -> None:
    kafka, duralog = sides
    different = []
    for version in range(APIS[api].min_version, APIS[api].max_version + 1):
        for request in REQUESTS[api]:
            words = in_version(api, version, request)
            if api == 20 and ("topics" in request) != (version >= 6):
                continue
            expected, found = (side.ask(user, api, version, words) for side in (kafka, duralog))
            if expected != found:
                different.append(f"v{version} {words}\n  Kafka   {expected}\n  duralog {found}")
    assert not different, "\n".join(different[:4])


ODD_ENTRIES: list[dict[str, Any]] = [
    {"resource_type": 4, "resource_name": "cluster"},
    {"resource_name": ""},
    {"resource_type": 1},
    {"resource_pattern_type": 1},
    {"resource_pattern_type": 2},
    {"operation": 1},
    {"permission_type": 1},
    {"principal": "nobody"},
    {"principal": ""},
    {"principal": ":"},
    {"host": ""},
    {"host": "not an address"},
    {"operation": 12, "resource_type": 2},
    {"resource_type": 4, "resource_name": "kafka-cluster", "operation": 12},
    {"resource_type": 5, "operation": 15},
    {"resource_type": 6, "operation": 8},
    {"resource_type": 7, "resource_name": "User:x", "operation": 13},
    {"resource_name": "not a topic name/"},
    {"resource_name": "*", "resource_pattern_type": 4},
    {},
    {},
    {"resource_type": 0},
    {"resource_type": 8},
    {"resource_pattern_type": 0},
    {"resource_pattern_type": 5},
    {"operation": 0},
    {"operation": 16},
    {"permission_type": 0},
    {"permission_type": 4},
]
ODD_FILTERS: list[dict[str, Any]] = [
    {},
    {"resource_type_filter": 2},
    {"resource_type_filter": 2, "resource_name_filter": "odd"},
    {"resource_type_filter": 2, "resource_name_filter": "odd", "pattern_type_filter": 2},
    {"resource_type_filter": 2, "resource_name_filter": "odder", "pattern_type_filter": 2},
    {"resource_name_filter": "", "pattern_type_filter": 2},
    {"resource_name_filter": "", "pattern_type_filter": 1},
    {"resource_name_filter": "*", "pattern_type_filter": 3},
    {"resource_name_filter": "*", "pattern_type_filter": 2},
    {"principal_filter": "User:bob"},
    {"principal_filter": ""},
    {"host_filter": "*"},
    {"host_filter": "10.0.0.1"},
    {"operation": 3},
    {"operation": 2},
    {"permission_type": 2},
    {"resource_type_filter": 0},
    {"resource_type_filter": 9},
    {"pattern_type_filter": 0},
    {"operation": 0},
    {"operation": 99},
    {"permission_type": 0},
]


def test_odd_entries_and_filters_are_kafkas(sides: tuple[Side, Side]) -> None:
    usual = {**creation(ACLS[0]), "resource_name": "odd", "principal": "User:odd"}
    asked_for: list[tuple[int, dict[str, Any]]] = [
        *((30, {"creations": [{**usual, **odd}]}) for odd in ODD_ENTRIES),
        (30, {"creations": [{**usual, **odd} for odd in ODD_ENTRIES[:21]]}),
        (30, {"creations": []}),
        *((29, {**ANYTHING, **odd}) for odd in ODD_FILTERS),
        *((31, {"filters": [{**ANYTHING, "principal_filter": "User:odd", **odd}]}) for odd in ODD_FILTERS[2:8]),
        *((31, {"filters": [{**ANYTHING, "principal_filter": "User:odd", **odd}]}) for odd in ODD_FILTERS[-6:]),
        (31, {"filters": [{**ANYTHING, "resource_name_filter": "*"}, {**ANYTHING, "resource_name_filter": "*"}]}),
        (31, {"filters": []}),
        (31, {"filters": [{**ANYTHING, "principal_filter": "User:odd"}, {**ANYTHING, "host_filter": ""}]}),
        (29, ANYTHING),
    ]
    different = []
    for version in (1, 2, 3):
        for api, request in asked_for:
            expected, found = (side.ask("admin", api, version, request) for side in sides)
            # Kafka's broker learns from its controller of a change a moment later.
            for _ in range(200):
                if api != 29 or expected == found:
                    break
                expected = sides[0].ask("admin", api, version, request)
            if expected != found:
                different.append(f"{api} v{version} {request}\n  Kafka   {expected}\n  duralog {found}")
    assert not different, "\n".join(different[:6])
