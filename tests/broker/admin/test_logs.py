"""DeleteRecords, DescribeLogDirs and DescribeProducers, as Kafka 4.3.1 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.handlers.records import describe_producers
from duralog.errors import StorageError
from tests.support.broker.admin_desk import DELETE_RECORDS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS, append, make, on_loop
from tests.support.broker.raw_client import RawClient

NOW = 1_700_000_000_000


def delete(
    client: RawClient, *partitions: tuple[str, int, int], version: int = 2, timeout: int = 10_000
) -> dict[tuple[str, int], tuple[int, int]]:
    """Error code and low watermark of each; a partition is named with the offset that it is to start at."""
    topics = [
        {"name": name, "partitions": [{"partition_index": number, "offset": offset}]}
        for name, number, offset in partitions
    ]
    answer = client.ask(DELETE_RECORDS, version, {"topics": topics, "timeout": timeout})
    return {
        (topic.name, each.partition_index): (each.error_code, each.low_watermark)
        for topic in answer.topics
        for each in topic.partitions
    }


class TestDeleteRecords:
    @pytest.mark.parametrize("version", range(3))
    def test_a_log_starts_later(self, client: RawClient, broker: Broker, version: int) -> None:
        make(client, "t")
        append(broker, "t", 0, [NOW] * 10)
        for offset, expected in [
            (3, (0, 3)),
            (2, (0, 3)),
            (0, (0, 3)),
            (11, (1, -1)),
            (-2, (1, -1)),
            (-1, (0, 10)),
            (-1, (0, 10)),
        ]:
            assert delete(client, ("t", 0, offset), version=version) == {("t", 0): expected}
        assert broker.store.partition("t", 0).start_offset == 10

    @pytest.mark.parametrize(
        ("policy", "expected"),
        [("delete", (0, 3)), ("compact", (44, -1)), ("compact,delete", (0, 3)), ("", (0, 3))],
    )
    def test_the_topics_policy(self, client: RawClient, broker: Broker, policy: str, expected: tuple[int, int]) -> None:
        make(client, "t", cleanup_policy=policy)
        append(broker, "t", 0, [NOW] * 10)
        assert delete(client, ("t", 0, 3)) == {("t", 0): expected}

    def test_what_is_not_there_or_internal(self, client: RawClient, broker: Broker) -> None:
        make(client, "t")
        make(client, "__transaction_state")
        append(broker, "t", 0, [NOW] * 10)
        asked = [("t", 7, 1), ("t", -1, 1), ("nope", 0, 1), ("__cluster_metadata", 0, 1), ("__transaction_state", 0, 0)]
        assert delete(client, ("t", 0, 4), *asked) == {
            ("t", 0): (0, 4),
            ("t", 7): (3, -1),
            ("t", -1): (3, -1),
            ("nope", 0): (3, -1),
            ("__cluster_metadata", 0): (3, -1),
            ("__transaction_state", 0): (17, -1),
        }
        assert delete(client) == {}

    def test_named_twice_the_last_offset_counts(self, client: RawClient, broker: Broker) -> None:
        make(client, "t")
        append(broker, "t", 0, [NOW] * 10)
        assert delete(client, ("t", 0, 3), ("t", 0, 5)) == {("t", 0): (0, 5)}

    def test_a_topic_that_is_deleted_meanwhile_is_no_fault_of_the_disk(
        self, client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(client, "t")
        append(broker, "t", 0, [NOW] * 10)
        log = broker.store.partition("t", 0)
        delete_records = log.delete_records

        def too_late(before_offset: int) -> int:
            broker.store.delete_topic("t")
            return delete_records(before_offset)

        monkeypatch.setattr(log, "delete_records", too_late)
        assert delete(client, ("t", 0, 3)) == {("t", 0): (3, -1)}
        assert "could not be served" not in caplog.text

    def test_no_replica_has_to_be_waited_for(self, client: RawClient, broker: Broker) -> None:
        make(client, "t")
        append(broker, "t", 0, [NOW] * 10)
        assert delete(client, ("t", 0, 3), timeout=0) == {("t", 0): (0, 3)}


def log_dirs(client: RawClient, topics: dict[str, list[int]] | None, version: int = 5) -> Any:
    asked = None if topics is None else [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
    answer = client.ask(DESCRIBE_LOG_DIRS, version, {"topics": asked})
    (result,) = answer.results
    return result


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size for topic in result.topics for each in topic.partitions
    }


class TestDescribeLogDirs:
    @pytest.mark.parametrize("version", range(1, 6))
    def test_every_version(self, client: RawClient, broker: Broker, version: int) -> None:
        make(client, "t", 2)
        append(broker, "t", 0, [NOW] * 10)
        result = log_dirs(client, {"t": [0, 1, 1, 9], "nope": [0]}, version)
        assert (result.error_code, result.log_dir) == (0, broker.store.path)
        assert sizes(result) == {("t", 0): broker.store.partition("t", 0).size_bytes, ("t", 1): 0}
        assert sizes(result)["t", 0] > 0
        assert {(each.offset_lag, each.is_future_key) for topic in result.topics for each in topic.partitions} == {
            (0, False)
        }
        if version >= 4:
            assert result.total_bytes >= result.usable_bytes > 0
        if version >= 5:
            assert result.is_cordoned is False

    def test_all_or_nothing(self, client: RawClient) -> None:
        make(client, "t", 2)
        make(client, "u")
        assert sizes(log_dirs(client, None)).keys() == {("t", 0), ("t", 1), ("u", 0)}
        assert log_dirs(client, {}).topics == ()
        assert log_dirs(client, {"t": []}).topics == ()

    def test_a_disk_that_does_not_answer(self, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(path: str) -> None:
            raise StorageError(f"{path}: cannot ask for the space on the disk")

        monkeypatch.setattr("duralog.broker.handlers.cluster.describe_log_dirs.disk_space", fail)
        answer = client.ask(DESCRIBE_LOG_DIRS, 5, {"topics": None})
        assert (answer.error_code, [(each.error_code, each.topics) for each in answer.results]) == (0, [(56, ())])


def producers(client: RawClient, *topics: tuple[str, list[int]]) -> list[Any]:
    asked = [{"name": name, "partition_indexes": numbers} for name, numbers in topics]
    answer = client.ask(DESCRIBE_PRODUCERS, 0, {"topics": asked})
    return [(topic.name, each) for topic in answer.topics for each in topic.partitions]


class TestDescribeProducers:
    def test_what_is_known_of_each(self, client: RawClient, broker: Broker) -> None:
        make(client, "t", 2)
        append(broker, "t", 1, [NOW] * 3, producer_id=4000, producer_epoch=2, base_sequence=0)
        append(broker, "t", 1, [NOW + 5] * 2, producer_id=4000, producer_epoch=2, base_sequence=3)
        transaction = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 0, "is_transactional": True}
        append(broker, "t", 1, [NOW + 6], **transaction)
        (_, none), (_, told) = producers(client, ("t", [0, 1]))
        assert (none.error_code, none.active_producers) == (0, ())
        known = {
            each.producer_id: (
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in told.active_producers
        }
        assert known == {4000: (2, 4, NOW + 5, -1, -1), 9: (1, 0, NOW + 6, -1, 5)}
        log = broker.store.partition("t", 1)
        on_loop(broker, lambda: log.end_transaction(9, 1, commit=True, coordinator_epoch=3))
        ((_, told),) = producers(client, ("t", [1]))
        (ended,) = (each for each in told.active_producers if each.producer_id == 9)
        assert (ended.coordinator_epoch, ended.current_txn_start_offset) == (3, -1)

    def test_what_is_not_there(self, client: RawClient) -> None:
        make(client, "t")
        told = producers(client, ("nope", [0]), ("t", [7, -1]), ("..", [0]))
        assert [(name, each.error_code, each.error_message) for name, each in told] == [
            ("nope", 3, "This server does not host this topic-partition."),
            ("t", 3, None),
            ("t", 3, None),
            ("..", 17, "Topic name is invalid: '..' is not allowed"),
        ]
        assert all(each.active_producers == () for _, each in told)

    def test_named_twice_is_answered_twice(self, client: RawClient) -> None:
        make(client, "t")
        assert len(producers(client, ("t", [0, 0]), ("t", [0]))) == 3

    def test_an_answer_has_an_end(self, client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        make(client, "t")
        append(broker, "t", 0, [NOW], producer_id=1, producer_epoch=0, base_sequence=0)
        monkeypatch.setattr(describe_producers, "MOST_PRODUCERS", 2)
        told = producers(client, ("t", [0, 0, 0]), ("t", [0]))
        assert [each.error_code for _, each in told] == [0, 0, 44, 44]
