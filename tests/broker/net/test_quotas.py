"""Quotas: which one applies, and that clients above it wait. The tests run the loop and move its clock."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.quotas.mutations import MutationQuota
from duralog.broker.quotas.rate import TokenBucket, WindowedRate
from duralog.broker.wire.principal import Principal
from duralog.broker.wire.request import Request
from duralog.config import BrokerConfig
from duralog.format import record_batch
from duralog.format.record import Record
from duralog.storage.store import Store
from tests.support.broker.raw_client import RawClient
from tests.support.broker.set_clock import SetClock

PRODUCE, FETCH, METADATA, API_VERSIONS, DESCRIBE_QUORUM, ALTER = 0, 1, 3, 18, 55, 49
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
Connect = Callable[[], RawClient]


class TestRate:
    def test_all_windows_may_be_used_at_once(self) -> None:
        rate = WindowedRate(11, 1000)
        rate.record(1000, 0)
        assert rate.throttle_ms(100, 0) == 0
        rate.record(100, 0)
        assert rate.throttle_ms(100, 0) == pytest.approx(1000)

    def test_the_delay_brings_the_rate_down(self) -> None:
        rate = WindowedRate(11, 1000)
        rate.record(1500, 0)
        delay = rate.throttle_ms(100, 0)
        assert delay == pytest.approx(5000)
        assert rate.throttle_ms(100, delay - 500) > 0
        # Kafka's own rule: while windows are missing, time that passes within one counts twice.
        assert rate.throttle_ms(100, delay + 1000) >= 0
        assert rate.throttle_ms(100, 11_000) == 0

    def test_old_windows_are_dropped(self) -> None:
        rate = WindowedRate(2, 1000)
        rate.record(10_000, 0)
        assert not rate.is_idle(1999)
        assert rate.is_idle(2000)
        assert rate.throttle_ms(1, 2000) == 0

    def test_what_was_not_used_after_all(self) -> None:
        rate = WindowedRate(11, 1000)
        rate.record(5000, 0)
        rate.record(-5000, 10)
        assert rate.throttle_ms(100, 20) == 0


def test_a_bucket_begins_full_and_may_be_overdrawn() -> None:
    bucket = TokenBucket()
    assert bucket.refill(2, 10, 5000) == 20
    assert bucket.take(50) == -30
    assert bucket.refill(2, 10, 6000) == -28
    assert bucket.refill(2, 10, 600_000) == 20


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1000.0)


@pytest.fixture
def broker(clock: SetClock, tmp_path: Path) -> Iterator[Broker]:
    with Broker(str(tmp_path / "data"), config=BrokerConfig(), timer_clock=clock) as broker:
        broker.store.create_topic("t", 1)
        yield broker


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    clients: list[RawClient] = []

    def connect() -> RawClient:
        clients.append(RawClient("127.0.0.1", broker.address.port))
        turn(broker)
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def turn(broker: Broker, turns: int = 5) -> None:
    for _ in range(turns):
        broker.run_pending()


def ask(broker: Broker, client: RawClient, api: int, version: int, fields: dict[str, Any], name: str = "c") -> Any:
    client.send(api, version, fields, client_id=name)
    turn(broker)
    return client.receive(api, version)


def limit(broker: Broker, entity: dict[str, str | None], **values: float | None) -> None:
    broker.store.alter_client_quotas({frozenset(entity.items()): values})
    broker.quotas.follow()


def produce(size: int, version: int = 9) -> dict[str, Any]:
    batch = record_batch.encode([Record(key=None, value=bytes(size), timestamp_ms=1_700_000_000_000)])
    topic = {"name": "t", "partition_data": [{"index": 0, "records": batch}]}
    return {"acks": -1, "timeout": 1000, "topic_data": [topic]}


def fetch(offset: int = 0) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
    }


def is_answered(broker: Broker, client: RawClient) -> bool:
    turn(broker)
    client.socket.setblocking(False)
    try:
        return bool(client.socket.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(60)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_producer_above_its_quota_is_answered_and_muted(
    broker: Broker, connect: Connect, clock: SetClock, version: int
) -> None:
    limit(broker, {"client-id": "c"}, producer_byte_rate=1000)
    client, other = connect(), connect()
    first = ask(broker, client, PRODUCE, version, produce(9000))
    assert (first.responses[0].partition_responses[0].error_code, first.throttle_time) == (0, 0)
    second = ask(broker, client, PRODUCE, version, produce(3000))
    assert second.responses[0].partition_responses[0].error_code == 0
    assert 2000 < second.throttle_time < 3000
    client.send(API_VERSIONS, 0, client_id="c")
    assert not is_answered(broker, client)
    assert ask(broker, other, PRODUCE, version, produce(9000), "other").throttle_time == 0
    clock.now_ms += second.throttle_time + 1
    assert is_answered(broker, client)
    assert client.receive(API_VERSIONS, 0).error_code == 0


def test_a_producer_without_answers_is_muted(broker: Broker, connect: Connect, clock: SetClock) -> None:
    limit(broker, {"client-id": "c"}, producer_byte_rate=1000)
    client = connect()
    client.send(PRODUCE, 9, {**produce(20_000), "acks": 0}, client_id="c")
    client.send(API_VERSIONS, 0, client_id="c")
    assert not is_answered(broker, client)
    clock.now_ms += 60_000
    assert is_answered(broker, client)


def test_a_muted_client_that_leaves_is_forgotten(broker: Broker, connect: Connect, clock: SetClock) -> None:
    limit(broker, {"client-id": "c"}, producer_byte_rate=1000)
    client = connect()
    assert ask(broker, client, PRODUCE, 9, produce(50_000)).throttle_time > 0
    client.close()
    clock.now_ms += 60_000
    turn(broker)
    assert broker.server.connection_count == 0


def test_the_timer_of_a_muted_client_ends_with_its_connection(broker: Broker, connect: Connect) -> None:
    limit(broker, {"client-id": "c"}, producer_byte_rate=1000)
    client = connect()
    before = len(broker.loop.timers)
    assert ask(broker, client, PRODUCE, 9, produce(50_000)).throttle_time > 0
    assert len(broker.loop.timers) == before + 1
    client.break_off()
    turn(broker)
    assert broker.server.connection_count == 0
    assert len(broker.loop.timers) == before


def test_a_consumer_above_its_quota_gets_no_records(broker: Broker, connect: Connect, clock: SetClock) -> None:
    client = connect()
    for _ in range(4):
        ask(broker, client, PRODUCE, 9, produce(5000))
    limit(broker, {"user": "ANONYMOUS"}, consumer_byte_rate=1000)
    answer = ask(broker, client, FETCH, 11, fetch())
    assert len(answer.responses[0].partitions[0].records) > 5000
    assert answer.throttle_time == 0
    late = ask(broker, client, FETCH, 11, fetch(1))
    assert late.responses == ()
    assert late.throttle_time > 0
    client.send(FETCH, 11, fetch(1), client_id="c")
    assert not is_answered(broker, client)
    clock.now_ms += late.throttle_time + 12_000
    assert is_answered(broker, client)
    assert client.receive(FETCH, 11).responses[0].partitions[0].records


def test_a_throttled_fetch_leaves_its_session_alone(broker: Broker, connect: Connect, clock: SetClock) -> None:
    client = connect()
    session = ask(broker, client, FETCH, 11, {**fetch(), "session_epoch": 0}).session_id
    assert session > 0
    for _ in range(2):
        ask(broker, client, PRODUCE, 9, produce(8000))
    limit(broker, {"client-id": "c"}, consumer_byte_rate=1000)
    following = {**fetch(), "session_id": session, "topics": []}
    first = ask(broker, client, FETCH, 11, {**following, "session_epoch": 1})
    assert first.responses[0].partitions[0].records
    throttled = ask(broker, client, FETCH, 11, {**following, "session_epoch": 2})
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, session, ())
    assert throttled.throttle_time > 0
    clock.now_ms += throttled.throttle_time + 12_000
    again = ask(broker, client, FETCH, 11, {**following, "session_epoch": 3})
    assert again.responses[0].partitions[0].records


def test_one_answer_is_not_larger_than_the_quota_of_all_windows(broker: Broker, connect: Connect) -> None:
    client = connect()
    for _ in range(6):
        ask(broker, client, PRODUCE, 9, produce(4000))
    limit(broker, {"client-id": "c"}, consumer_byte_rate=900)
    answer = ask(broker, client, FETCH, 11, fetch())
    assert 4000 < len(answer.responses[0].partitions[0].records) <= 9000


def test_the_time_of_requests(broker: Broker, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(broker, {"user": None}, request_percentage=0.0001)
    client = connect()
    answer = ask(broker, client, METADATA, 12, {"topics": None})
    assert 0 < answer.throttle_time <= 1000
    monkeypatch.setattr(broker.dispatcher, "throttle", lambda *_: 70)
    quorum = connect()
    quorum.send(DESCRIBE_QUORUM, 0, {"topics": []})
    assert is_answered(broker, quorum), "an answer that has no place for the time is sent as it is"


USER, CLIENT = "ada", "app"
PRECEDENCE: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({"user": USER, "client-id": CLIENT}, (USER, CLIENT)),
    ({"user": USER, "client-id": None}, (USER, CLIENT)),
    ({"user": USER}, (USER, "")),
    ({"user": None, "client-id": CLIENT}, (USER, CLIENT)),
    ({"user": None, "client-id": None}, (USER, CLIENT)),
    ({"user": None}, (USER, "")),
    ({"client-id": CLIENT}, ("", CLIENT)),
    ({"client-id": None}, ("", CLIENT)),
]


def test_the_most_specific_quota_applies(broker: Broker) -> None:
    request = Request(PRODUCE, 9, 1, CLIENT, None, memoryview(b""), principal=Principal(USER))
    quotas = broker.quotas
    for rank, (entity, counted_by) in reversed(list(enumerate(PRECEDENCE, 1))):
        limit(broker, entity, producer_byte_rate=rank)
        usage = quotas._usage("producer_byte_rate", request)
        assert usage is not None
        assert usage.allowed == rank
        assert usage.rate is quotas._rates["producer_byte_rate", *counted_by]
    stranger = Request(PRODUCE, 9, 1, None, None, memoryview(b""), principal=Principal("eve"))
    usage = quotas._usage("producer_byte_rate", stranger)
    assert usage is not None
    assert usage.allowed == 5
    for entity, _ in PRECEDENCE:
        limit(broker, entity, producer_byte_rate=None)
    assert quotas._usage("producer_byte_rate", request) is None
    assert broker.dispatcher.throttle is None


def test_rates_that_are_no_longer_needed_are_removed(broker: Broker, clock: SetClock) -> None:
    limit(broker, {"client-id": None}, producer_byte_rate=1000)
    for number in range(5000):
        clock.now_ms += 100
        request = Request(PRODUCE, 9, 1, f"client {number}", None, memoryview(b""))
        broker.quotas.throttle_ms(request, 0.0, 100)
    assert len(broker.quotas._rates) <= 1000


def test_many_clients_in_one_window_cost_little_and_are_bounded(
    broker: Broker, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duralog.broker.quotas.client_quotas._MANY", 10)
    monkeypatch.setattr("duralog.broker.quotas.client_quotas._MOST_RATES", 100)
    checked: list[float] = []
    is_idle = WindowedRate.is_idle

    def counted(rate: WindowedRate, now_ms: float) -> bool:
        checked.append(now_ms)
        return is_idle(rate, now_ms)

    monkeypatch.setattr(WindowedRate, "is_idle", counted)
    limit(broker, {"client-id": None}, producer_byte_rate=1000)
    quotas = broker.quotas

    def use(name: str) -> None:
        quotas.throttle_ms(Request(PRODUCE, 9, 1, name, None, memoryview(b"")), 0.0, 100)

    use("first")
    clock.now_ms += 1000
    for number in range(1000):
        use(f"client {number}")
        assert len(quotas._rates) <= 100
    assert len(checked) == 10
    assert ("producer_byte_rate", "", "first") not in quotas._rates
    assert ("producer_byte_rate", "", "client 999") in quotas._rates
    assert all(usage and usage.rate in quotas._rates.values() for usage in quotas._usages.values())


def test_idle_buckets_are_removed_and_debts_are_not(
    broker: Broker, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duralog.broker.quotas.client_quotas._MANY", 10)
    monkeypatch.setattr("duralog.broker.quotas.client_quotas._MOST_RATES", 100)
    limit(broker, {"client-id": None}, controller_mutation_rate=1)
    quotas = broker.quotas

    def take(name: str, partitions: int) -> Any:
        request = Request(CREATE_TOPICS, 7, 1, name, None, memoryview(b""))
        return quotas.of_mutations(request, 6).take(partitions)

    assert take("debtor", 1_000_000) is None
    for number in range(2000):
        clock.now_ms += 100
        assert take(f"client {number}", 1) is None
        assert len(quotas._buckets) <= 25
    assert take("debtor", 1) is not None, "its debt is not forgotten"
    # Clients that all have debts: the ones that were not seen for the longest time are removed.
    for number in range(500):
        assert take(f"other {number}", 1_000_000) is None
        assert len(quotas._buckets) <= 100
    assert take("other 499", 1) is not None


def test_a_quota_that_is_not_a_number_limits_nothing(broker: Broker, connect: Connect) -> None:
    client = connect()
    ask(broker, client, PRODUCE, 9, produce(1000))
    limit(broker, {"client-id": "c"}, consumer_byte_rate=float("nan"))
    answer = ask(broker, client, FETCH, 11, fetch())
    assert answer.throttle_time == 0
    assert len(answer.responses[0].partitions[0].records) > 1000


def test_the_longest_throttle_time(clock: SetClock) -> None:
    quota = MutationQuota(TokenBucket(), 1e-300, 1, clock)
    assert quota.take(1) is None
    assert quota.throttle_ms == 2**31 - 1


def test_connections_above_the_rate_of_their_address_are_held_and_closed(
    broker: Broker, connect: Connect, clock: SetClock
) -> None:
    limit(broker, {"ip": "127.0.0.1"}, connection_creation_rate=1)
    served = [connect() for _ in range(10)]
    late = connect()
    assert broker.server.connection_count == 10
    late.send(API_VERSIONS, 0)
    assert not is_answered(broker, late)
    clock.now_ms += 1001
    turn(broker)
    assert late.is_closed_by_peer()
    assert ask(broker, served[0], API_VERSIONS, 0, {}).error_code == 0
    clock.now_ms += 12_000
    assert ask(broker, connect(), API_VERSIONS, 0, {}).error_code == 0
    limit(broker, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    assert broker.server.throttle_connection is None


def test_every_address_has_the_default_rate(broker: Broker, connect: Connect) -> None:
    limit(broker, {"ip": None}, connection_creation_rate=1)
    for _ in range(12):
        connect()
    assert broker.server.connection_count == 10


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    entity = frozenset({("user", "ada"), ("client-id", None)})
    with Store(str(tmp_path)) as store:
        store.alter_client_quotas({entity: {"producer_byte_rate": 1024.0, "request_percentage": 12.5}})
        end = store.partition("__cluster_metadata", 0).end_offset
        store.alter_client_quotas({entity: {"producer_byte_rate": 1024.0, "consumer_byte_rate": None}})
        assert store.partition("__cluster_metadata", 0).end_offset == end, "nothing changed, nothing is written"
    with Store(str(tmp_path)) as store:
        assert store.client_quotas == {entity: {"producer_byte_rate": 1024.0, "request_percentage": 12.5}}
        store.alter_client_quotas({entity: {"producer_byte_rate": None, "request_percentage": None}})
        assert store.client_quotas == {}
    with Broker(str(tmp_path)) as broker:
        assert broker.dispatcher.throttle is None


def test_a_change_by_a_client_takes_effect_at_once(broker: Broker, connect: Connect) -> None:
    client = connect()
    operation = {"key": "producer_byte_rate", "value": 5.0, "remove": False}
    entry = {"entity": [{"entity_type": "client-id", "entity_name": "c"}], "ops": [operation]}
    client.send(ALTER, 1, {"entries": [entry], "validate_only": False})
    while not is_answered(broker, client):
        pass
    assert client.receive(ALTER, 1).entries[0].error_code == 0
    assert ask(broker, client, PRODUCE, 9, produce(1000)).throttle_time > 0


EXCEEDED = 89


def ask_later(broker: Broker, client: RawClient, api: int, version: int, fields: dict[str, Any]) -> Any:
    client.send(api, version, fields, client_id="c")
    while not is_answered(broker, client):
        pass
    return client.receive(api, version)


def new(name: str, partitions: int) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    return {"topics": [topic], "timeout": 10_000, "validate_only": False}


def test_partitions_above_the_quota_are_refused(broker: Broker, connect: Connect, clock: SetClock) -> None:
    limit(broker, {"client-id": "c"}, controller_mutation_rate=1)
    first = ask_later(broker, connect(), CREATE_TOPICS, 7, new("a", 20))
    assert (first.topics[0].error_code, first.throttle_time) == (0, 0), "something was left"
    client = connect()
    second = ask_later(broker, client, CREATE_TOPICS, 7, new("b", 1))
    assert (second.topics[0].error_code, second.throttle_time) == (EXCEEDED, 9000)
    client.send(API_VERSIONS, 0, client_id="c")
    assert not is_answered(broker, client)
    growth = {"topics": [{"name": "a", "count": 21, "assignments": None}], "timeout": 10_000, "validate_only": False}
    grown = ask_later(broker, connect(), CREATE_PARTITIONS, 3, growth)
    assert (grown.results[0].error_code, grown.throttle_time) == (EXCEEDED, 9000)
    deleted = ask_later(broker, connect(), DELETE_TOPICS, 5, {"topic_names": ["a"], "timeout": 10_000})
    assert (deleted.responses[0].error_code, deleted.throttle_time) == (EXCEEDED, 9000)
    clock.now_ms += 9001
    assert is_answered(broker, client)
    assert ask_later(broker, connect(), CREATE_TOPICS, 7, new("b", 1)).topics[0].error_code == 0


def test_older_clients_wait_for_what_was_done(broker: Broker, connect: Connect) -> None:
    limit(broker, {"client-id": "c"}, controller_mutation_rate=1)
    created = ask_later(broker, connect(), CREATE_TOPICS, 5, new("a", 20))
    assert (created.topics[0].error_code, created.throttle_time) == (0, 9000)
    deleted = ask_later(broker, connect(), DELETE_TOPICS, 4, {"topic_names": ["a"], "timeout": 10_000})
    assert (deleted.responses[0].error_code, deleted.throttle_time) == (0, 29_000)
