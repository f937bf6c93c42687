"""CreateTopics, DeleteTopics and CreatePartitions: codes and messages are those that Kafka 4.3.1 gave."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.topics.topics import TopicView
from duralog.errors import InvalidTopic, StorageError
from duralog.format import record_batch
from duralog.format.record import Record
from duralog.storage.disk.file_system import LocalFileSystem
from tests.support.broker.admin_desk import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    LIST_OFFSETS,
    TOPIC,
    config_values,
    create,
    make,
    metadata,
    new_topic,
    on_loop,
    topic_errors,
)
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until

PRODUCE = 0
BY_HAND = {"partitions": -1, "replication_factor": -1}
OTHERS_ONLY = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


def run_until(broker: Broker, is_true: Callable[[], bool]) -> None:
    """Do what a broker without a loop has to do, until it is so."""

    def is_true_now() -> bool:
        broker.run_pending()
        return is_true()

    wait_until(is_true_now)


class TestCreate:
    def test_a_topic_with_defaults_and_configs(self, client: RawClient, broker: Broker) -> None:
        topic = new_topic("orders", -1, -1, configs={"retention.ms": "1000", "cleanup.policy": "delete,compact"})
        (made,) = create(client, topic)
        assert (made.error_code, made.error_message, made.num_partitions, made.replication_factor) == (0, None, 1, 1)
        told = {config.name: (config.value, config.config_source) for config in made.configs}
        assert len(told) == 33
        assert told["retention.ms"] == ("1000", 1)
        assert told["cleanup.policy"] == ("delete,compact", 1)
        assert told["min.insync.replicas"] == ("1", 3)
        assert told["segment.bytes"] == ("1073741824", 5)
        assert [config.name for config in made.configs] == sorted(told)
        view = broker.topics.by_id(made.topic_id)
        assert view is not None
        assert view.name == "orders"
        assert broker.store.partition("orders", 0).config.retention_ms == 1000

    @pytest.mark.parametrize("version", range(2, 8))
    def test_every_version(self, client: RawClient, version: int) -> None:
        (made,) = create(client, new_topic("t", 2), version=version)
        assert made.error_code == 0
        (again,) = create(client, new_topic("t", 2), version=version)
        assert (again.error_code, again.error_message) == (36, "Topic 't' already exists.")
        if version >= 5:
            assert len(made.configs) == 33
            assert (again.num_partitions, again.replication_factor, again.configs) == (-1, -1, ())

    @pytest.mark.parametrize(
        ("topic", "code", "message"),
        [
            (new_topic("a b"), 17, f"Topic name is invalid: 'a b' {OTHERS_ONLY}"),
            (new_topic("", 1, 9), 17, "Topic name is invalid: the empty string is not allowed"),
            (new_topic(".."), 17, "Topic name is invalid: '..' is not allowed"),
            (
                new_topic("x" * 250),
                17,
                f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
            ),
            (new_topic("__cluster_metadata"), 42, "Creation of internal topic __cluster_metadata is prohibited."),
            (new_topic("x.y"), 17, "Topic 'x.y' collides with existing topic: x_y"),
            (new_topic("x_y", configs={"nope": "1"}), 36, "Topic 'x_y' already exists."),
            (new_topic("t", 0), 37, "Number of partitions was set to an invalid non-positive value."),
            (new_topic("t", -2), 37, "Number of partitions was set to an invalid non-positive value."),
            (new_topic("t", 0, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
            (
                new_topic("t", 1, 2),
                38,
                "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached"
                " because only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
            ),
            (new_topic("t", 1, 5, configs={"nope": "1"}), 40, "Unknown topic config name: nope"),
            (
                new_topic("t", configs={"retention.ms": None}),
                40,
                "Null value not supported for topic configs: retention.ms",
            ),
            (
                new_topic("t", configs={"retention.ms": ""}),
                40,
                "Invalid value  for configuration retention.ms: Not a number of type LONG",
            ),
            (
                new_topic("t", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
                40,
                "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
            ),
            (
                new_topic("t", configs={"remote.storage.enable": "true"}),
                40,
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log"
                " storage.",
            ),
            (
                new_topic("t", 1, -1, assignments=[(0, [1])]),
                42,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            ),
            (
                new_topic("t", -1, 1, assignments=[(0, [1])]),
                42,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            ),
            (
                new_topic("t", -1, -1, assignments=[(0, [1, 9])]),
                39,
                "The manual partition assignment includes broker 9, but no such broker is registered.",
            ),
            (
                new_topic("t", -1, -1, assignments=[(0, [1, 1])]),
                39,
                "The manual partition assignment includes the broker 1 more than once.",
            ),
            (
                new_topic("t", -1, -1, assignments=[(0, [])]),
                39,
                "The manual partition assignment includes an empty replica list.",
            ),
            (
                new_topic("t", -1, -1, assignments=[(0, [1]), (0, [1])]),
                39,
                "Found multiple manual partition assignments for partition 0",
            ),
            (
                new_topic("t", -1, -1, assignments=[(0, [1]), (2, [1])]),
                39,
                "partitions should be a consecutive 0-based integer sequence",
            ),
            (new_topic("t", 10_001), 44, "Excessively large number of partitions per request."),
        ],
    )
    @pytest.mark.parametrize("validate_only", [False, True])
    def test_refusals(self, client: RawClient, topic: Any, code: int, message: str, validate_only: bool) -> None:
        make(client, "x_y")
        (refused,) = create(client, topic, validate_only=validate_only)
        assert (refused.error_code, refused.error_message) == (code, message)
        assert (refused.topic_id, refused.num_partitions, refused.configs) == (None, -1, ())
        assert [known.name for known in metadata(client, None).topics] == ["x_y"]

    @pytest.mark.parametrize("name", ["x" * 32_767, "\N{EURO SIGN}" * 10_922])
    def test_a_message_is_no_longer_than_clients_can_read(self, client: RawClient, name: str) -> None:
        (told,) = create(client, new_topic(name))
        assert told.error_code == 17
        assert told.error_message.startswith(f"Topic name is invalid: the length of '{name[:5000]}")
        assert told.error_message.endswith("...")
        assert 32_760 < len(told.error_message.encode()) <= 32_767

    def test_one_that_is_refused_does_not_keep_the_others_away(self, client: RawClient) -> None:
        make(client, "there")
        results = create(
            client, new_topic("there"), new_topic("?"), new_topic("new"), new_topic("twice"), new_topic("twice", 2)
        )
        assert [(each.name, each.error_code) for each in results] == [
            ("there", 36),
            ("?", 17),
            ("new", 0),
            ("twice", 42),
        ]
        assert results[-1].error_message == "Duplicate topic name."
        assert topic_errors(client, "new", "twice") == [0, 3]

    def test_placed_by_hand(self, client: RawClient) -> None:
        (made,) = create(client, new_topic("t", -1, -1, assignments=[(1, [1]), (0, [1])]))
        assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 1)

    def test_only_validated(self, client: RawClient) -> None:
        (told,) = create(client, new_topic("t", 3), validate_only=True)
        assert (told.error_code, told.num_partitions, len(told.configs)) == (0, 3, 33)
        assert topic_errors(client, "t") == [3]

    def test_no_time_to_do_it(self, client: RawClient) -> None:
        (told,) = create(client, new_topic("t"), timeout=0)
        assert (told.error_code, told.error_message) == (7, None)
        assert topic_errors(client, "t") == [3]

    def test_nothing_asked(self, client: RawClient) -> None:
        assert create(client) == []

    def test_of_clients_at_once_one_makes_it(self, connect: Callable[[], RawClient]) -> None:
        clients = [connect() for _ in range(6)]
        codes: list[int] = []
        threads = [
            threading.Thread(target=lambda each=each: codes.append(create(each, new_topic("t", 2))[0].error_code))
            for each in clients
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [0, 36, 36, 36, 36, 36]

    def test_others_are_served_while_a_topic_is_made(
        self, connect: Callable[[], RawClient], broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        maker, other = connect(), connect()
        loader = broker.store._opened.loader
        create_in_folder, has_begun, may_go_on = loader.create_in_folder, threading.Event(), threading.Event()

        def create_slowly(*what: Any) -> Any:
            has_begun.set()
            assert may_go_on.wait(60)
            return create_in_folder(*what)

        monkeypatch.setattr(loader, "create_in_folder", create_slowly)
        fields = {"topics": [new_topic("slow")], "timeout": 10_000, "validate_only": False}
        maker.send(CREATE_TOPICS, 7, fields)
        assert has_begun.wait(60)
        assert "slow" in broker.store.topics()
        assert topic_errors(other, "slow") == [3]
        asked = [{"name": "slow", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        answer = other.ask(LIST_OFFSETS, 1, {"replica_id": -1, "topics": asked})
        assert answer.topics[0].partitions[0].error_code == 3
        may_go_on.set()
        assert maker.receive(CREATE_TOPICS, 7).topics[0].error_code == 0
        assert topic_errors(other, "slow") == [0]

    def test_a_failing_disk_is_reported(
        self,
        client: RawClient,
        broker: Broker,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def fail(*_: object) -> None:
            raise StorageError("the disk is full")

        monkeypatch.setattr(broker.store, "create_topic", fail)
        (refused,) = create(client, new_topic("t"))
        assert (refused.error_code, refused.error_message) == (56, "the disk is full")
        assert caplog.messages == ["a request could not be served: the disk is full"]
        monkeypatch.undo()
        make(client, "t")


def delete(client: RawClient, *topics: str | uuid.UUID | None, version: int = 6, timeout: int = 10_000) -> list[Any]:
    if version < 6:
        return list(client.ask(DELETE_TOPICS, version, {"topic_names": list(topics), "timeout": timeout}).responses)
    asked = [
        {"name": topic, "topic_id": None} if isinstance(topic, str) else {"name": None, "topic_id": topic}
        for topic in topics
    ]
    return list(client.ask(DELETE_TOPICS, version, {"topics": asked, "timeout": timeout}).responses)


class TestTheView:
    def test_a_failing_listener_affects_no_other(
        self, client: RawClient, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_: TopicView) -> None:
            raise RuntimeError("a mistake")

        heard: list[str] = []
        for listener in (fail, lambda topic: heard.append(topic.name)):
            broker.topics.on_changed(listener)
            broker.topics.on_deleted(listener)
        make(client, "a")
        assert [each.error_code for each in delete(client, "a")] == [0]
        assert heard == ["a", "a"]
        # One line for both times.
        assert caplog.text.count("after a change of topic a") == 1

    def test_what_exists_is_given_at_once_and_what_does_not_is_made(self, idle_broker: Broker) -> None:
        told: list[TopicView | Exception] = []
        idle_broker.topics.ensure("t", 2, {}, told.append)
        idle_broker.topics.ensure("t", 2, {}, told.append)
        assert told == []
        run_until(idle_broker, lambda: len(told) == 2)
        idle_broker.topics.ensure("t", 2, {}, told.append)
        first, second, third = told
        assert first == second == third == idle_broker.topics.by_name("t")

    def test_a_topic_that_is_to_be_deleted_stays_away(self, idle_broker: Broker) -> None:
        told: list[object] = []
        topics = idle_broker.topics
        topics.create("t", 1, {}, told.append)
        run_until(idle_broker, lambda: len(told) == 1)
        found: list[object] = []

        def changed(*_: object) -> None:
            told.append(topics.refresh("t"))
            found.extend((topics.by_name("t"), *topics.all()))

        topics.change(lambda: None, changed)
        topics.delete("t", told.append)
        assert topics.by_name("t") is None
        run_until(idle_broker, lambda: len(told) == 3)
        assert told[0] == told[1] == told[2]
        assert found == [None]
        assert (topics.by_name("t"), topics.names()) == (None, [])

    def test_topics_created_in_the_store_are_found_when_they_are_complete(
        self, idle_broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, topics = idle_broker.store, idle_broker.topics
        create_in_folder = store._opened.loader.create_in_folder
        found: list[object] = []

        def look_meanwhile(*what: Any) -> Any:
            found.extend((topics.by_name("t"), *topics.all(), idle_broker.partitions.is_offline("t", 1)))
            return create_in_folder(*what)

        monkeypatch.setattr(store._opened.loader, "create_in_folder", look_meanwhile)
        topics.change(lambda: None, lambda *_: None)
        store.create_topic("t", 2)
        assert found == [None, False] * 2
        assert topics.names() == ["t"]
        view = topics.by_name("t")
        assert view is not None
        assert topics.by_id(view.topic_id) is view

    def test_changes_are_made_one_at_a_time_and_in_order(self, idle_broker: Broker) -> None:
        told: list[str] = []
        topics = idle_broker.topics

        def begin(number: int) -> None:
            topics.create(f"t{number}", 1, {}, lambda _: told.append(f"t{number}"))
            topics.change(lambda: told.append(f"work {number}"), lambda _, __: None)

        for number in range(5):
            begin(number)
        run_until(idle_broker, lambda: len(told) == 10)
        assert told == [text for number in range(5) for text in (f"t{number}", f"work {number}")]


class TestDelete:
    def test_by_name_and_by_id(self, client: RawClient, broker: Broker) -> None:
        first, second = make(client, "first"), make(client, "second", 3)
        deleted: list[TopicView] = []
        broker.topics.on_deleted(deleted.append)
        (told,) = delete(client, "first")
        assert (told.name, told.topic_id, told.error_code, told.error_message) == ("first", first, 0, None)
        (told,) = delete(client, second)
        assert (told.name, told.topic_id, told.error_code) == ("second", second, 0)
        assert [topic.name for topic in deleted] == ["first", "second"]
        assert metadata(client, None).topics == ()
        assert broker.store.topics() == []
        assert on_loop(broker, lambda: broker.partitions.get("second", 0)) is None
        (told,) = delete(client, "first")
        assert (told.topic_id, told.error_code) == (None, 3)
        assert told.error_message == "This server does not host this topic-partition."
        (told,) = delete(client, second)
        assert (told.name, told.topic_id, told.error_code) == (None, second, 100)
        assert told.error_message == "This server does not host this topic ID."

    def test_a_new_topic_of_the_name_is_another(self, client: RawClient, broker: Broker) -> None:
        before = make(client, "t")
        delete(client, "t")
        after = make(client, "t")
        assert before != after
        known = on_loop(broker, lambda: [broker.topics.by_id(topic_id) for topic_id in (before, after)])
        assert [view and view.name for view in known] == [None, "t"]

    def test_what_is_asked_for_twice_stays(self, client: RawClient) -> None:
        ids = {name: make(client, name) for name in ("a", "b", "c")}
        told = {each.error_message: each for each in delete(client, "a", "a", ids["b"], ids["b"], "c", ids["c"])}
        assert told["Duplicate topic name."].name == "a"
        assert told["Duplicate topic id."].topic_id == ids["b"]
        both = told["The provided topic name maps to an ID that was already supplied."]
        assert (both.name, both.topic_id) == ("c", ids["c"])
        assert {each.error_code for each in told.values()} == {42}
        assert topic_errors(client, "a", "b", "c") == [0, 0, 0]

    def test_name_and_id_or_neither(self, client: RawClient) -> None:
        topic_id = make(client, "a")
        asked = [{"name": "a", "topic_id": topic_id}, {"name": None, "topic_id": None}]
        told = client.ask(DELETE_TOPICS, 6, {"topics": asked, "timeout": 1000}).responses
        assert [(each.error_code, each.error_message) for each in told] == [
            (42, "You may not specify both topic name and topic id."),
            (42, "Neither topic name nor id were specified."),
        ]

    @pytest.mark.parametrize("version", range(1, 6))
    def test_older_versions(self, client: RawClient, version: int) -> None:
        make(client, "a")
        told = {each.name: each.error_code for each in delete(client, "a", "nope", version=version)}
        assert told == {"a": 0, "nope": 3}

    def test_no_time_to_do_it(self, client: RawClient) -> None:
        make(client, "a")
        assert [each.error_code for each in delete(client, "a", timeout=0)] == [7]
        assert topic_errors(client, "a") == [0]

    def test_a_topic_that_cannot_be_deleted_is_there_again(
        self, client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise StorageError("the disk fails")

        make(client, "a")
        monkeypatch.setattr(broker.store, "delete_topic", fail)
        (told,) = delete(client, "a")
        assert (told.error_code, told.error_message) == (56, "the disk fails")
        assert topic_errors(client, "a") == [0]

    def test_a_topic_is_deleted_though_a_checkpoint_cannot_be_written_any_more(
        self,
        client: RawClient,
        broker: Broker,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """As on a full disk: the metadata, clients and coordinators see the deletion."""
        delete_topic = broker.store.delete_topic

        def delete_and_fail(name: str) -> None:
            delete_topic(name)
            raise StorageError("no space left")

        make(client, "a")
        told: list[str] = []
        broker.topics.on_deleted(lambda topic: told.append(topic.name))
        monkeypatch.setattr(broker.store, "delete_topic", delete_and_fail)
        assert [each.error_code for each in delete(client, "a")] == [0]
        assert topic_errors(client, "a") == [3]
        assert told == ["a"]
        assert caplog.messages == ["topic a is deleted, but not all of it: no space left"]


class TestDeleteIsDisabled:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        return {"delete.topic.enable": False}

    @pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
    def test_it_is_refused(self, client: RawClient, version: int, code: int) -> None:
        make(client, "a")
        assert [each.error_code for each in delete(client, "a", version=version)] == [code]
        assert topic_errors(client, "a") == [0]


def add_partitions(
    client: RawClient, *topics: tuple[str, int, list[list[int]] | None], version: int = 3, **more: Any
) -> list[tuple[str, int, str | None]]:
    asked = [
        {
            "name": name,
            "count": count,
            "assignments": None if brokers is None else [{"broker_ids": each} for each in brokers],
        }
        for name, count, brokers in topics
    ]
    fields = {"topics": asked, "timeout": 10_000, "validate_only": False, **more}
    results = client.ask(CREATE_PARTITIONS, version, fields).results
    return [(result.name, result.error_code, result.error_message) for result in results]


class TestMorePartitions:
    @pytest.mark.parametrize("version", range(4))
    def test_more(self, client: RawClient, broker: Broker, version: int) -> None:
        make(client, "t", 2)
        assert add_partitions(client, ("t", 4, None), version=version) == [("t", 0, None)]
        (topic,) = metadata(client, "t").topics
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(n, 0) for n in range(4)]
        assert broker.store.partition_count("t") == 4

    def test_by_hand(self, client: RawClient, broker: Broker) -> None:
        make(client, "t")
        assert add_partitions(client, ("t", 3, [[1], [1]])) == [("t", 0, None)]
        assert broker.store.partition_count("t") == 3

    @pytest.mark.parametrize(
        ("count", "brokers", "code", "message"),
        [
            (2, None, 37, "Topic already has 2 partition(s)."),
            (1, None, 37, "The topic t currently has 2 partition(s); 1 would not be an increase."),
            (-1, [[1]], 37, "The topic t currently has 2 partition(s); -1 would not be an increase."),
            (4, [[1]], 39, "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
            (3, [[7]], 39, "The manual partition assignment includes broker 7, but no such broker is registered."),
            (3, [[1, 1]], 39, "The manual partition assignment includes the broker 1 more than once."),
            (3, [[]], 39, "The manual partition assignment includes an empty replica list."),
            (10_003, None, 44, "Excessively large number of partitions per request."),
        ],
    )
    def test_refusals(
        self, client: RawClient, broker: Broker, count: int, brokers: Any, code: int, message: str
    ) -> None:
        make(client, "t", 2)
        for validate_only in (True, False):
            told = add_partitions(client, ("t", count, brokers), validate_only=validate_only)
            assert told == [("t", code, message)]
        assert broker.store.partition_count("t") == 2

    def test_topics_of_coordinators_keep_their_number(self, client: RawClient, broker: Broker) -> None:
        """Or the offsets and the states that are there would be looked for in another partition."""
        for name in ("__consumer_offsets", "__transaction_state"):
            make(client, name, 2)
            for validate_only in (True, False):
                [(_, code, message)] = add_partitions(client, (name, 4, None), validate_only=validate_only)
                assert (code, message) == (
                    37,
                    f"{name} cannot get more partitions: which of them keeps a group or a transactional id follows"
                    " from their number.",
                )
            with pytest.raises(InvalidTopic, match="cannot get more partitions"):
                broker.store.add_partitions(name, 4)
            assert broker.store.partition_count(name) == 2

    def test_each_topic_is_independent(self, client: RawClient, broker: Broker) -> None:
        make(client, "a")
        make(client, "b")
        told = add_partitions(client, ("a", 2, None), ("a", 3, None), ("b", 2, None), ("nope", 2, None))
        assert told == [("a", 42, "Duplicate topic name."), ("b", 0, None), ("nope", 3, None)]
        assert (broker.store.partition_count("a"), broker.store.partition_count("b")) == (1, 2)

    def test_a_request_creates_a_bounded_number_of_partitions(self, client: RawClient) -> None:
        for name in ("a", "b", "c"):
            make(client, name)
        told = add_partitions(client, ("a", 6001, None), ("b", 6001, None), ("c", 4001, None), validate_only=True)
        assert [code for _, code, _ in told] == [0, 44, 0]

    def test_only_validated_or_without_time(self, client: RawClient, broker: Broker) -> None:
        make(client, "t")
        assert add_partitions(client, ("t", 2, None), validate_only=True) == [("t", 0, None)]
        assert add_partitions(client, ("t", 2, None), timeout=0) == [("t", 7, None)]
        assert broker.store.partition_count("t") == 1


class TestHalfMade:
    """The disk fails after the metadata lists the partitions, before their folders are created."""

    @pytest.fixture
    def bad(self, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """Names of folders that cannot be made."""
        bad: set[str] = set()
        make_folder = LocalFileSystem.make_folder

        def make(files: LocalFileSystem, path: str) -> None:
            if path.rpartition("/")[2] in bad:
                raise StorageError(f"{path}: the disk fails")
            make_folder(files, path)

        monkeypatch.setattr(LocalFileSystem, "make_folder", make)
        monkeypatch.setattr("duralog.broker.topics.partitions.RETRY_MS", 1)
        return bad

    def test_a_topic_is_there_without_leaders_until_its_logs_are(
        self, client: RawClient, broker: Broker, bad: set[str]
    ) -> None:
        bad.add("orders-1")
        (told,) = create(client, new_topic("orders", 2))
        assert told.error_code == 56
        assert "the disk fails" in told.error_message
        assert self.errors(client) == [5, 5]
        assert self.produced(client, 1) == 56
        assert create(client, new_topic("orders", 2))[0].error_code == 36
        bad.clear()
        wait_until(lambda: self.errors(client) == [0, 0])
        assert [self.produced(client, number) for number in (0, 1)] == [0, 0]
        assert broker.store.partition("orders", 1).end_offset == 1

    def test_more_partitions(self, client: RawClient, bad: set[str]) -> None:
        make(client, "orders", 1)
        bad.add("orders-2")
        fields = {"topics": [{"name": "orders", "count": 3, "assignments": None}], "timeout": 1000}
        (told,) = client.ask(CREATE_PARTITIONS, 3, {**fields, "validate_only": False}).results
        assert told.error_code == 56
        assert self.errors(client)[0] == 0
        assert self.errors(client)[2] == 5
        assert self.produced(client, 2) == 56
        bad.clear()
        wait_until(lambda: self.produced(client, 2) == 0)
        assert self.errors(client) == [0, 0, 0]

    def test_one_that_a_client_asked_for(self, client: RawClient, broker: Broker, bad: set[str]) -> None:
        bad.add("orders-0")
        assert [topic.error_code for topic in metadata(client, "orders", auto=True).topics] == [3]
        wait_until(lambda: not broker.topics._coming)
        assert broker.store.topics() == ["orders"]
        bad.clear()

        def is_there() -> bool:
            (topic,) = metadata(client, "orders", auto=True).topics
            return bool(topic.error_code == 0 and topic.partitions[0].error_code == 0)

        wait_until(is_there)
        assert self.produced(client, 0) == 0

    def test_one_that_fails_unexpectedly(
        self, client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as failing:
            failing.setattr(broker.store._opened.loader, "create_in_folder", fail)
            assert create(client, new_topic("orders", 1))[0].error_code == -1
        wait_until(lambda: self.errors(client) == [0])

    def errors(self, client: RawClient) -> list[int]:
        (topic,) = metadata(client, "orders").topics
        assert topic.error_code == 0
        return [partition.error_code for partition in topic.partitions]

    def produced(self, client: RawClient, number: int) -> int:
        records = record_batch.encode([Record(key=b"k", value=b"v", timestamp_ms=0)])
        topic = {"name": "orders", "partition_data": [{"index": number, "records": records}]}
        fields = {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": [topic]}
        ((answer,),) = [one.partition_responses for one in client.ask(PRODUCE, 9, fields).responses]
        return int(answer.error_code)


def test_a_change_without_a_new_thread(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        assert create(client, new_topic("orders", 1))[0].error_code == 0
    assert create(client, new_topic("more", 1))[0].error_code == 0


class TestDefaultReplicas:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        return {"default.replication.factor": 3}

    def test_one_node_does_not_have_that_many(self, client: RawClient, broker: Broker) -> None:
        (told,) = create(client, new_topic("orders", replication_factor=-1))
        assert told.error_code == 38
        assert told.error_message.startswith("Unable to replicate the partition 3 time(s): The target replication")
        assert topic_errors(client, "orders") == [3]
        assert [topic.error_code for topic in metadata(client, "orders", auto=True).topics] == [3]
        make(client, "other")
        assert broker.store.topics() == ["other"]


def test_topics_are_there_after_a_restart(tmp_path: Any) -> None:
    with Broker(str(tmp_path)) as broker:
        broker.start()
        client = RawClient("127.0.0.1", broker.address.port)
        topic_id = make(client, "t", 2, retention_ms="5000")
        client.close()
    with Broker(str(tmp_path)) as broker:
        broker.start()
        client = RawClient("127.0.0.1", broker.address.port)
        (topic,) = metadata(client, "t").topics
        assert (topic.topic_id, len(topic.partitions)) == (topic_id, 2)
        assert config_values(client, TOPIC, "t", "retention.ms") == {"retention.ms": "5000"}
        client.close()
