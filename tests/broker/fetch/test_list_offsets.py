"""ListOffsets and OffsetForLeaderEpoch, as Kafka 4.3.1 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.handlers.records.offset_for_leader_epoch import end_of_epoch
from duralog.errors import StorageError
from duralog.format.checkpoints import EpochStart
from tests.support.broker.admin_desk import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, append, damage, make, on_loop
from tests.support.broker.raw_client import RawClient

START = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
NOT_FOUND = (0, -1, -1, -1)


@pytest.fixture
def log(client: RawClient, broker: Broker) -> None:
    """Twenty records in three batches; times fall in the second one and are those of the past in the third."""
    make(client, "t", 2)
    append(broker, "t", 0, [START + 10 * number for number in range(10)])
    append(broker, "t", 0, [START + 500 - 10 * number for number in range(5)])
    append(broker, "t", 0, [START + 50] * 5)


def ask(
    client: RawClient,
    *partitions: tuple[int, ...],
    topic: str = "t",
    version: int = 11,
    isolation: int = 0,
    replica_id: int = -1,
) -> list[tuple[int, int, int, int]]:
    """Error code, timestamp, offset and leader epoch of each; a partition is asked for by number, time and epoch."""
    asked = [
        {"partition_index": number, "timestamp": timestamp, "current_leader_epoch": epoch[0] if epoch else -1}
        for number, timestamp, *epoch in partitions
    ]
    fields = {"replica_id": replica_id, "isolation_level": isolation, "topics": [{"name": topic, "partitions": asked}]}
    answer = client.ask(LIST_OFFSETS, version, fields)
    return [
        (each.error_code, each.timestamp, each.offset, getattr(each, "leader_epoch", -1))
        for told in answer.topics
        for each in told.partitions
    ]


@pytest.mark.usefixtures("log")
class TestListOffsets:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            (LATEST, (0, -1, 20, 0)),
            (EARLIEST, (0, -1, 0, 0)),
            (MAX_TIMESTAMP, (0, START + 500, 10, 0)),
            (EARLIEST_LOCAL, (0, -1, 0, 0)),
            (LATEST_TIERED, NOT_FOUND),
            (PENDING_UPLOAD, NOT_FOUND),
            (-7, (35, -1, -1, -1)),
            (-(2**63), (35, -1, -1, -1)),
            (0, (0, START, 0, 0)),
            (START, (0, START, 0, 0)),
            (START + 1, (0, START + 10, 1, 0)),
            (START + 90, (0, START + 90, 9, 0)),
            (START + 91, (0, START + 500, 10, 0)),
            (START + 500, (0, START + 500, 10, 0)),
            (START + 501, NOT_FOUND),
            (2**63 - 1, NOT_FOUND),
        ],
    )
    def test_times_and_special_values(self, client: RawClient, asked: int, expected: tuple[int, ...]) -> None:
        assert ask(client, (0, asked)) == [expected]

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            (LATEST, (0, -1, 0, 0)),
            (EARLIEST, (0, -1, 0, 0)),
            (MAX_TIMESTAMP, NOT_FOUND),
            (EARLIEST_LOCAL, (0, -1, 0, 0)),
            (LATEST_TIERED, NOT_FOUND),
            (0, NOT_FOUND),
        ],
    )
    def test_a_partition_without_records(self, client: RawClient, asked: int, expected: tuple[int, ...]) -> None:
        assert ask(client, (1, asked)) == [expected]

    @pytest.mark.parametrize("version", range(1, 12))
    def test_each_version_knows_its_special_values(self, client: RawClient, version: int) -> None:
        since = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}
        for special, first in since.items():
            (told,) = ask(client, (0, special), version=version)
            assert told[0] == (0 if version >= first else 35)
        assert ask(client, (0, START + 5), version=version)[0][:3] == (0, START + 10, 1)

    def test_several_partitions_in_the_order_asked(self, client: RawClient) -> None:
        assert ask(client, (1, LATEST), (0, START + 1), (0 + 9, LATEST)) == [
            (0, -1, 0, 0),
            (0, START + 10, 1, 0),
            (3, -1, -1, -1),
        ]

    def test_a_partition_named_twice_is_refused(self, client: RawClient) -> None:
        assert ask(client, (0, LATEST), (1, LATEST), (0, START)) == [(42, -1, -1, -1), (0, -1, 0, 0)]

    def test_a_topic_named_twice_is_answered_once(self, client: RawClient) -> None:
        topics = [
            {"name": "t", "partitions": [{"partition_index": number, "timestamp": LATEST}]} for number in (0, 1, 1)
        ]
        answer = client.ask(LIST_OFFSETS, 7, {"replica_id": -1, "isolation_level": 0, "topics": topics})
        (topic,) = answer.topics
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0), (1, 42)]

    @pytest.mark.parametrize(
        ("topic", "number", "code"),
        [("t", 5, 3), ("t", -1, 3), ("nope", 0, 3), ("a b", 0, 3), ("__cluster_metadata", 0, 3)],
    )
    def test_what_is_not_there(self, client: RawClient, topic: str, number: int, code: int) -> None:
        assert ask(client, (number, LATEST), topic=topic) == [(code, -1, -1, -1)]
        assert ask(client, (number, 0), topic=topic) == [(code, -1, -1, -1)]

    @pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75), (-2, 74)])
    def test_the_leader_epoch_that_the_client_knows(self, client: RawClient, epoch: int, code: int) -> None:
        assert [told[0] for told in ask(client, (0, LATEST, epoch), (1, 0, epoch))] == [code, code]

    def test_an_isolation_level_that_does_not_exist(self, client: RawClient) -> None:
        assert ask(client, (0, LATEST), isolation=2) == [(-1, -1, -1, -1)]

    @pytest.mark.parametrize("replica_id", [1, -2, 99])
    def test_replicas_are_answered_as_consumers(self, client: RawClient, replica_id: int) -> None:
        assert ask(client, (0, LATEST), replica_id=replica_id) == [(0, -1, 20, 0)]

    def test_readers_of_committed_data_see_no_further_than_open_transactions(
        self, client: RawClient, broker: Broker
    ) -> None:
        producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        append(broker, "t", 0, [START + 900] * 3, **producer)
        assert ask(client, (0, LATEST)) == [(0, -1, 23, 0)]
        assert ask(client, (0, LATEST), isolation=1) == [(0, -1, 20, 0)]
        assert ask(client, (0, START + 800)) == [(0, START + 900, 20, 0)]
        assert ask(client, (0, START + 800), isolation=1) == [NOT_FOUND]
        assert ask(client, (0, MAX_TIMESTAMP), isolation=1) == [NOT_FOUND]

    def test_after_records_were_deleted(self, client: RawClient, broker: Broker) -> None:
        broker.store.partition("t", 0).delete_records(5)
        assert ask(client, (0, EARLIEST)) == [(0, -1, 5, 0)]
        assert ask(client, (0, EARLIEST_LOCAL)) == [(0, -1, 5, 0)]
        assert ask(client, (0, 0)) == [(0, START + 50, 5, 0)]

    def test_a_partition_that_cannot_be_used(self, client: RawClient, broker: Broker) -> None:
        damage(broker, "t", 1)
        assert ask(client, (0, LATEST), (1, LATEST)) == [(0, -1, 20, 0), (56, -1, -1, -1)]

    def test_a_damaged_file_is_reported_for_its_partition_only(
        self, client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise StorageError("cannot read")

        monkeypatch.setattr(broker.store.partition("t", 0), "offset_for_timestamp", fail)
        assert ask(client, (0, 0), (1, LATEST)) == [(56, -1, -1, -1), (0, -1, 0, 0)]

    def test_nothing_asked(self, client: RawClient) -> None:
        assert ask(client) == []


def epochs(
    client: RawClient, *partitions: tuple[int, int, int], topic: str = "t", version: int = 4
) -> list[tuple[int, int, int]]:
    """Error code, epoch and end offset; asked for by number, the epoch that the client knows, and the one it wants."""
    asked = [
        {"partition": number, "current_leader_epoch": current, "leader_epoch": epoch}
        for number, current, epoch in partitions
    ]
    fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": asked}]}
    answer = client.ask(OFFSET_FOR_LEADER_EPOCH, version, fields)
    return [(each.error_code, each.leader_epoch, each.end_offset) for each in answer.topics[0].partitions]


@pytest.mark.usefixtures("log")
class TestOffsetForLeaderEpoch:
    @pytest.mark.parametrize("version", range(2, 5))
    def test_every_version(self, client: RawClient, version: int) -> None:
        assert epochs(client, (0, -1, 0), (1, -1, 0), version=version) == [(0, 0, 20), (0, 0, 0)]

    @pytest.mark.parametrize(("epoch", "expected"), [(-1, (-1, -1)), (1, (-1, -1)), (5, (-1, -1)), (-2, (-2, 0))])
    def test_epochs_that_the_log_does_not_have(self, client: RawClient, epoch: int, expected: tuple[int, int]) -> None:
        assert epochs(client, (0, -1, epoch), (1, -1, epoch)) == [(0, *expected)] * 2

    def test_what_the_client_knows(self, client: RawClient) -> None:
        assert epochs(client, (0, 0, 0), (0, 1, 0), (0, 0, 0)) == [(0, 0, 20), (75, -1, -1), (0, 0, 20)]
        assert epochs(client, (9, 5, 0)) == [(3, -1, -1)]
        assert epochs(client, (0, -1, 0), topic="nope") == [(3, -1, -1)]

    def test_older_epochs_end_where_the_next_one_began(self, client: RawClient, broker: Broker) -> None:
        on_loop(broker, lambda: broker.store.partition("t", 0).become_leader(3))
        assert epochs(client, (0, -1, 0), (0, -1, 2), (0, -1, 3), (0, -1, 4)) == [
            (0, 0, 20),
            (0, 0, 20),
            (0, 3, 20),
            (0, -1, -1),
        ]
        append(broker, "t", 0, [START])
        assert epochs(client, (0, -1, 2), (0, -1, 3)) == [(0, 0, 20), (0, 3, 21)]
        assert ask(client, (0, LATEST)) == [(0, -1, 21, 3)]
        assert epochs(client, (0, 2, 0)) == [(74, -1, -1)]


def test_an_epoch_that_nothing_was_written_in_counts_as_begun(broker: Broker, client: RawClient) -> None:
    make(client, "t")
    log = broker.store.partition("t", 0)
    log.leader_epochs.clear()
    assert end_of_epoch(log, 0) == EpochStart(0, 0)
    log._writer.leader_epoch = 4
    append(broker, "t", 0, [START] * 3)
    log._writer.leader_epoch = 6
    assert [end_of_epoch(log, epoch) for epoch in (3, 4, 5, 6, 7)] == [
        EpochStart(3, 0),
        EpochStart(4, 3),
        EpochStart(4, 3),
        EpochStart(6, 3),
        EpochStart(-1, -1),
    ]
