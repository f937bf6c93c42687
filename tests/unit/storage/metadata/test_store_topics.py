"""Topics and their configs: what the metadata log says, what is appended to it, and what a failure leaves."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig, InvalidRecord, InvalidTopic, StorageError, TopicExists, UnknownTopic
from duralog.format.uuids import ZERO_UUID, random_uuid
from duralog.format.varint import Bytes
from duralog.storage.metadata.changes import FEATURE_LEVELS, alter_topic_configs, delete_acls
from duralog.storage.metadata.cluster_metadata import ClusterMetadata, PartitionRegistration
from duralog.storage.metadata.metadata_log import encode_batch
from duralog.storage.metadata.topics import OneDirectory, Topics

NODE_ID = 4
DIRECTORY_ID = "ACsDLMXvQDqPXeSh-NcKzQ"


class MemoryLog:
    """A metadata log as a list of batches, which can fail before or after the batch is written."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.fails: str | None = None

    @property
    def end_offset(self) -> int:
        return self.replayed().next_offset

    def append(self, batch: Bytes) -> None:
        if self.fails == "before":
            raise StorageError("the disk is full")
        self.batches.append(bytes(batch))
        if self.fails in ("after", "for good"):
            raise StorageError("cannot sync")

    def truncate_to(self, offset: int) -> None:
        if self.fails == "for good":
            raise StorageError("cannot truncate")
        while self.end_offset > offset:
            self.batches.pop()

    def replayed(self) -> ClusterMetadata:
        return ClusterMetadata.load(None, self.batches)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


def topics_of(log: MemoryLog, config: dict[str, object] | None = None, **changes: Any) -> Topics:
    known: dict[str, Any] = {
        "defaults": BrokerConfig.of(config or {}).topic_defaults(),
        "placement": OneDirectory(NODE_ID, DIRECTORY_ID),
        "open_log": lambda: log,
        "clock": lambda: 1_000,
    }
    return Topics(log.replayed(), **{**known, **changes})


@pytest.fixture
def topics(log: MemoryLog) -> Topics:
    return topics_of(log)


def test_a_created_topic_is_in_the_log_with_the_features_before_it(topics: Topics, log: MemoryLog) -> None:
    topic = topics.create("orders", 3, {"cleanup.policy": "compact", "segment.bytes": 2 << 20})
    assert topic.partitions == (0, 1, 2)
    assert topic.overrides == {"cleanup.policy": "compact", "segment.bytes": "2097152"}
    assert topic.config.segment_bytes == 2 << 20
    assert topic.leader_epoch(2) == 0
    assert topics.by_name == {"orders": topic}
    stored = log.replayed()
    assert stored.features == FEATURE_LEVELS
    assert stored.topic("orders").topic_id == topic.topic_id
    assert stored.topic_configs("orders") == topic.overrides
    assert stored.topic("orders").partitions[2] == PartitionRegistration(
        partition=2,
        replicas=(NODE_ID,),
        isr=(NODE_ID,),
        leader=NODE_ID,
        leader_epoch=0,
        partition_epoch=0,
        directories=(DIRECTORY_ID,),
    )
    assert len(log.batches) == 1


def test_the_features_are_written_once(topics: Topics, log: MemoryLog) -> None:
    topics.create("one", 1, {})
    topics.create("two", 1, {})
    assert len(log.batches[1]) < len(log.batches[0])


def test_what_was_written_is_there_when_the_log_is_read_again(topics: Topics, log: MemoryLog) -> None:
    topics.create("orders", 2, {"retention.ms": "-1"})
    topics.create("gone", 2, {})
    topics.add_partitions("orders", 4)
    topics.alter_config("orders", {"retention.ms": None, "max.message.bytes": 77})
    topics.delete("gone")
    assert topics_of(log).by_name == topics.by_name
    orders = topics.get("orders")
    assert orders.partitions == (0, 1, 2, 3)
    assert orders.overrides == {"max.message.bytes": "77"}
    assert orders.config.retention_ms == 7 * 24 * 3_600_000
    assert [*topics.by_name] == ["orders"]


def test_topics_have_the_defaults_under_their_own_configs(log: MemoryLog) -> None:
    topics = topics_of(log, {"log.retention.hours": 1, "log.segment.bytes": 3 << 20})
    config = topics.create("orders", 1, {"segment.bytes": 4 << 20}).config
    assert (config.retention_ms, config.segment_bytes) == (3_600_000, 4 << 20)


def test_an_unknown_topic_is_named(topics: Topics) -> None:
    for ask in (
        lambda: topics.get("orders"),
        lambda: topics.add_partitions("orders", 2),
        lambda: topics.alter_config("orders", {}),
    ):
        with pytest.raises(UnknownTopic, match="orders"):
            ask()


@pytest.mark.parametrize(
    ("name", "partitions", "config", "error"),
    [
        ("bad name", 1, {}, InvalidTopic),
        ("orders", 0, {}, InvalidTopic),
        ("there", 1, {}, TopicExists),
        ("t.x", 1, {}, TopicExists),
        ("orders", 1, {"retention.ms": -2}, InvalidConfig),
        ("orders", 1, {"log.retention.ms": 1}, InvalidConfig),
        ("orders", 1, {"min.compaction.lag.ms": 9, "max.compaction.lag.ms": 8}, InvalidConfig),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_nothing_is_written(
    topics: Topics, log: MemoryLog, name: str, partitions: int, config: dict[str, object], error: type[Exception]
) -> None:
    topics.create("there", 1, {})
    topics.create("t_x", 1, {})
    with pytest.raises(error):
        topics.create(name, partitions, config)
    assert len(log.batches) == 2
    assert [*topics.by_name] == ["there", "t_x"]


def test_configs_that_contradict_the_stored_ones_are_refused(topics: Topics, log: MemoryLog) -> None:
    topics.create("orders", 1, {"max.compaction.lag.ms": 8})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        topics.alter_config("orders", {"min.compaction.lag.ms": 9})
    assert len(log.batches) == 1


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_failed_change_leaves_nothing_and_the_next_one_works(log: MemoryLog, topics: Topics, fails: str) -> None:
    topics.create("first", 1, {})
    log.fails = fails
    with pytest.raises(StorageError):
        topics.create("orders", 1, {})
    assert [*topics.by_name] == [*log.replayed().topics] == ["first"]
    log.fails = None
    topics.create("orders", 1, {})
    assert [*topics_of(log).by_name] == ["first", "orders"]


def test_a_log_that_cannot_be_cut_back_takes_no_more_changes(log: MemoryLog, topics: Topics) -> None:
    log.fails = "for good"
    with pytest.raises(StorageError, match="cannot sync"):
        topics.create("orders", 1, {})
    log.fails = None
    assert topics.by_name == {}
    with pytest.raises(StorageError, match="open the directory again"):
        topics.create("other", 1, {})


def test_a_log_that_must_not_be_changed_is_not(log: MemoryLog) -> None:
    def refuse() -> MemoryLog:
        raise StorageError("opened for reading only")

    topics = topics_of(log, open_log=refuse)
    with pytest.raises(StorageError, match="reading only"):
        topics.create("orders", 1, {})


def test_a_topic_that_was_only_found_has_the_defaults(log: MemoryLog) -> None:
    topics = topics_of(log, {"log.retention.hours": 1})
    topics.add_found("orders", None, [2, 0])
    topic = topics.get("orders")
    assert topic.partitions == (0, 2)
    assert topic.topic_id is None
    assert topic.config.retention_ms == 3_600_000
    assert topic.leader_epoch(0) == -1
    assert not topics.is_in_metadata("orders")
    assert log.batches == []


def test_a_topic_without_metadata_loses_nothing_by_a_default_retention(log: MemoryLog, topics: Topics) -> None:
    topics.add_found("orders", None, [0])
    assert topics.get("orders").config.retention_ms == -1
    topics.adopt("orders")
    again = topics_of(log)
    assert again.get("orders").config.retention_ms == -1
    again.alter_config("orders", {"retention.ms": None})
    assert again.get("orders").config.retention_ms == 7 * 24 * 3_600_000


def test_a_found_topic_is_adopted_with_its_id_and_without_gaps(log: MemoryLog, topics: Topics) -> None:
    topics.add_found("orders", DIRECTORY_ID, [2, 0])
    topic = topics.adopt("orders")
    assert topic.partitions == (0, 1, 2)
    assert topic.topic_id == DIRECTORY_ID
    assert topics.is_in_metadata("orders")
    assert topics_of(log).by_name == {"orders": topic}


def test_a_folder_that_looks_like_the_last_of_many_partitions_is_not_adopted(log: MemoryLog, topics: Topics) -> None:
    topics.add_found("photos", None, [2024])
    with pytest.raises(InvalidTopic, match="2024 partitions below photos-2024 are not in this directory"):
        topics.adopt("photos")
    assert topics.get("photos").partitions == (2024,)
    assert log.batches == []


def test_a_found_topic_gets_a_config_of_its_own_by_adoption(log: MemoryLog, topics: Topics) -> None:
    topics.add_found("orders", None, [0])
    topics.alter_config("orders", {"retention.ms": 5})
    assert topics_of(log).get("orders").config.retention_ms == 5


def test_a_found_topic_gets_more_partitions_by_adoption(log: MemoryLog, topics: Topics) -> None:
    topics.add_found("found", DIRECTORY_ID, [0])
    assert topics.add_partitions("found", 3).partitions == (0, 1, 2)
    assert topics.get("found").topic_id == DIRECTORY_ID
    assert len(log.replayed().topic("found").partitions) == 3


def test_a_found_topic_is_not_created_again(log: MemoryLog, topics: Topics) -> None:
    topics.add_found("found", DIRECTORY_ID, [0])
    with pytest.raises(TopicExists, match="the topic found exists already"):
        topics.create("found", 1, {})
    assert log.batches == []


def test_only_a_config_that_exists_or_is_stored_can_be_taken_back(log: MemoryLog, topics: Topics) -> None:
    topics.create("orders", 1, {})
    with pytest.raises(InvalidConfig, match=r"there is no topic config retention\.msec.*retention\.ms"):
        topics.alter_config("orders", {"retention.msec": None})
    foreign = alter_topic_configs(log.replayed(), "orders", {"from.a.plugin": "x"})
    log.append(encode_batch(foreign, log.end_offset, 1, 1_000))
    again = topics_of(log)
    assert again.alter_config("orders", {"from.a.plugin": None, "flush.ms": None}).overrides == {}
    assert log.replayed().topic_configs("orders") == {}


def test_a_found_topic_can_be_deleted(log: MemoryLog, topics: Topics) -> None:
    topics.add_found("orders", None, [0])
    topics.delete("orders")
    assert topics.by_name == {}
    assert log.batches == []


@pytest.mark.parametrize(
    ("replicas", "directories", "expected"),
    [
        ((NODE_ID,), (DIRECTORY_ID,), True),
        ((7, NODE_ID), (ZERO_UUID, DIRECTORY_ID), True),
        ((NODE_ID,), (ZERO_UUID,), True),
        ((NODE_ID,), (), True),
        ((7,), (DIRECTORY_ID,), False),
        ((NODE_ID,), ("kbHEQbtORkGagHr8-qLv1w",), False),
    ],
)
def test_a_partition_belongs_into_the_directory_that_the_metadata_names(
    replicas: tuple[int, ...], directories: tuple[str, ...], expected: bool
) -> None:
    partition = PartitionRegistration(
        partition=0,
        replicas=replicas,
        isr=(),
        leader=-1,
        leader_epoch=0,
        partition_epoch=0,
        directories=directories,
    )
    assert OneDirectory(NODE_ID, DIRECTORY_ID).holds("orders", partition) is expected


def test_a_topic_without_partitions_here_is_not_listed(log: MemoryLog, topics: Topics) -> None:
    topics.create("orders", 1, {})
    elsewhere = topics_of(log, placement=OneDirectory(NODE_ID + 1, DIRECTORY_ID))
    assert elsewhere.by_name == {}
    assert elsewhere.is_in_metadata("orders")


def test_a_reader_lists_what_has_a_folder_wherever_the_metadata_places_it(log: MemoryLog, topics: Topics) -> None:
    topics.create("orders", 3, {"retention.ms": 5})
    topics.create("elsewhere", 1, {})
    live = {("orders", 1), ("orders", 7)}
    seen = topics_of(
        log,
        placement=OneDirectory(NODE_ID + 1, None),
        holds=lambda name, partition: (name, partition.partition) in live,
    )
    seen.add_found("orders", None, [1, 7])
    assert [*seen.by_name] == ["orders"]
    assert seen.get("orders").partitions == (1, 7)
    assert seen.get("orders").config.retention_ms == 5
    assert seen.get("orders").topic_id == topics.get("orders").topic_id


def test_producer_ids_come_in_blocks_that_are_in_the_log_before_anybody_has_one(topics: Topics, log: MemoryLog) -> None:
    assert topics.take_producer_ids() == range(1000)
    assert log.replayed().next_producer_id == 1000
    assert topics.take_producer_ids() == range(1000, 2000)
    assert topics_of(log).take_producer_ids() == range(2000, 3000)


@pytest.mark.parametrize("fails", ["before", "after"])
def test_producer_ids_that_could_not_be_written_are_not_given(log: MemoryLog, topics: Topics, fails: str) -> None:
    topics.take_producer_ids()
    log.fails = fails
    with pytest.raises(StorageError):
        topics.take_producer_ids()
    log.fails = None
    assert topics.take_producer_ids() == range(1000, 2000)


def test_what_cannot_be_applied_does_not_get_into_the_log(topics: Topics, log: MemoryLog) -> None:
    topics.create("t", 1, {})
    written = len(log.batches)
    with pytest.raises(InvalidRecord, match="does not exist"):
        topics._change_acls(delete_acls(topics._metadata, [random_uuid()]))
    assert len(log.batches) == written
    topics.delete("t")
