"""The driver's part in a write through a broker's port, for directories that a running broker holds.

Tasks stage their rows as they do for a directory, and nothing reaches the broker before all of them have. The driver
then sends everything in one Kafka transaction. In the same transaction it commits the write's version, plus one, as an
offset of a consumer group that is named after the query. So a repeated micro-batch is recognised, also after a crash.
`init_transactions` comes first, which ends a transaction that a dead driver has left open.

The broker keeps the offsets of an idle group for `offsets.retention.minutes`, a week by default. A query that is
stopped for longer must not be repeated from the middle of a micro-batch.

If the broker refuses a record, the error has its message, and the transaction is aborted: readers with `read_committed`
see nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from duralog.columnar.schema import HEADERS, KEY, TIMESTAMP, VALUE
from duralog.config import TopicConfig
from duralog.config.client_settings import KNOWN, SECURITY, librdkafka_settings
from duralog.errors import InvalidConfig, InvalidRecord, StorageError
from duralog.spark.option_text import InvalidOption
from duralog.spark.sink.commit import CommitReport
from duralog.spark.sink.commit_checks import check_partition_count, runs_by_partition
from duralog.spark.sink.staging import Run, StagedFile, StagedTask, check_contents, open_staged, read_run, sweep
from duralog.spark.sink.write_options import AppVersion, WriteOptions
from duralog.spark.sink.write_targets import TopicTarget, WriteTargets
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem

try:
    import confluent_kafka as client
    import confluent_kafka.admin as _admin_client
except ImportError:
    raise InvalidConfig("option kafka.bootstrap.servers needs confluent-kafka: pip install 'duralog[kafka]'") from None

# Its types name what it does not export.
admin: Any = _admin_client

_NOT_READY = (
    client.KafkaError.NOT_COORDINATOR,
    client.KafkaError.COORDINATOR_NOT_AVAILABLE,
    client.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

_REFUSED_LOG_INS = (client.KafkaError._AUTHENTICATION, client.KafkaError._SSL)

_ANSWER_SECONDS = 30.0
_CONNECT_SECONDS = 1.0
_TRANSACTION_MS = 900_000
"""The default of `transaction.max.timeout.ms`, the longest that a broker allows."""
_COMMIT_SECONDS = 600.0
_PAUSE_SECONDS = 0.2
_QUEUED_MESSAGES = 1_000_000
_SMALLEST_LARGEST_MESSAGE = 1_000_000
_OTHERS_OF_THE_GUARD = ("enable.ssl.certificate.verification", "enable.sasl.oauthbearer.unsecure.jwt")
"""What librdkafka has under names of its own."""


def broker_targets(options: WriteOptions) -> WriteTargets:
    """The broker's topics: that of the option, or all."""
    new = TopicTarget(options.partitions or 1, options.new_topic_config())
    _check_producer_configs(options)
    with _broker_errors(options):
        asked, found = _topics(options)
        wanted = [options.topic] if options.topic is not None else sorted(found)
        partitions = {name: len(found[name].partitions) for name in wanted if name in found and found[name].partitions}
        resources = {name: admin.ConfigResource(admin.ResourceType.TOPIC, name) for name in partitions}
        answers = asked.describe_configs([*resources.values()]) if resources else {}
        configs = {name: answers[resource].result(_ANSWER_SECONDS) for name, resource in resources.items()}
    known = {name: TopicTarget(count, _config(configs[name])) for name, count in partitions.items()}
    return WriteTargets(known, new)


def send(
    tasks: Sequence[StagedTask],
    options: WriteOptions,
    *,
    writer: str,
    batch: int = 0,
    transaction: AppVersion | None = None,
    file_system: FileSystem | None = None,
) -> CommitReport:
    """Send what the tasks have staged, in one transaction. It happens once for each `transaction`."""
    files = file_system or LocalFileSystem()
    ordered = sorted(tasks, key=lambda task: task.task)
    staged = [open_staged(files, options.path, task.name, task.size) for task in ordered if task.name is not None]
    for file in staged:
        check_contents(files, file)
    by_partition = runs_by_partition(staged, preserve_offsets=False)
    is_repeated = False
    if staged:
        runs = [item for items in by_partition.values() for item in items]
        with _broker_errors(options):
            counts = _make_topics(options, sorted({partition.topic for partition in by_partition}))
            for partition, items in by_partition.items():
                check_partition_count(partition.topic, counts[partition.topic], items)
            is_repeated = not _send_once(files, runs, options, _group(writer, transaction), transaction)
    sweep(files, options.path, writer=writer, up_to_batch=batch, kept=())
    return CommitReport(
        records=0 if is_repeated else sum(task.records for task in tasks),
        size_bytes=0 if is_repeated else sum(run.size for file in staged for run in file.runs),
        partitions=0 if is_repeated else len(by_partition),
        is_repeated=is_repeated,
    )


def _group(writer: str, transaction: AppVersion | None) -> str:
    """The name of the transactions, and of the consumer group that remembers them."""
    return "duralog-sink." + (writer if transaction is None else transaction.application)


def _send_once(
    files: FileSystem,
    runs: Sequence[tuple[StagedFile, Run]],
    options: WriteOptions,
    name: str,
    transaction: AppVersion | None,
) -> bool:
    """Whether the rows were sent; they are not if they were before."""
    sending = _Sending(_producer(options, name, max(run.largest_batch for _, run in runs)))
    sending.producer.init_transactions(_COMMIT_SECONDS)
    topics = sorted({run.topic for _, run in runs})
    memory = None if transaction is None else _Memory(options, name, topics, transaction.version)
    try:
        if memory is not None and memory.is_sent():
            return False
        sending.producer.begin_transaction()
        try:
            for file, run in runs:
                sending.send(files, file, run)
            sending.finish()
            if memory is not None:
                memory.add_to(sending.producer)
            _patiently(lambda: sending.producer.commit_transaction(_COMMIT_SECONDS), _COMMIT_SECONDS)
        except BaseException:
            sending.give_up()
            raise
    finally:
        if memory is not None:
            memory.close()
    return True


class _Memory:
    """What was sent before, as offsets of a consumer group, on the first partition of every topic of the write."""

    def __init__(self, options: WriteOptions, group: str, topics: Sequence[str], version: int) -> None:
        self._consumer = client.Consumer({**_connection(options), "group.id": group})
        self._topics = topics
        self._version = version

    def is_sent(self) -> bool:
        """Whether this version, or a later one, was sent. REQUIRES: no transaction of its name is open.

        All topics are asked for: a repeated write may have rows for others than it had.
        """
        topics = self._consumer.list_topics(timeout=_ANSWER_SECONDS).topics
        asked = [client.TopicPartition(topic, 0) for topic in topics]
        found = _patiently(lambda: self._consumer.committed(asked, _ANSWER_SECONDS), _ANSWER_SECONDS)
        return any(place.offset > self._version for place in found)

    def add_to(self, producer: Any) -> None:
        """Let the transaction that is open be remembered, if it is committed."""
        places = [client.TopicPartition(topic, 0, self._version + 1) for topic in self._topics]
        group = self._consumer.consumer_group_metadata()
        _patiently(lambda: producer.send_offsets_to_transaction(places, group, _ANSWER_SECONDS), _ANSWER_SECONDS)

    def close(self) -> None:
        self._consumer.close()


class _Sending:
    """The rows of one transaction while they are sent."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self._refusal: Any = None

    def send(self, files: FileSystem, file: StagedFile, run: Run) -> None:
        for piece in read_run(files, file.path, run, check_crc=True):
            for records in piece.to_arrow(columns=[KEY, VALUE, TIMESTAMP, HEADERS]):
                for key, value, timestamp_ms, headers in _messages(records):
                    self._produce(run, key, value, timestamp_ms, headers)
            self._check()

    def _produce(self, run: Run, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Any) -> None:
        while True:
            try:
                self.producer.produce(
                    run.topic,
                    value,
                    key,
                    partition=run.partition,
                    timestamp=timestamp_ms,
                    headers=headers,
                    on_delivery=self._on_delivery,
                )
                return
            except BufferError:
                self.producer.poll(1.0)
                self._check()

    def _on_delivery(self, error: Any, _message: Any) -> None:
        self._refusal = self._refusal or error

    def _check(self) -> None:
        self.producer.poll(0)
        if self._refusal is not None:
            raise client.KafkaException(self._refusal)

    def finish(self) -> None:
        self.producer.flush(_COMMIT_SECONDS)
        self._check()

    def give_up(self) -> None:
        """End the transaction, if the broker can still be reached; else it ends by its timeout, or with the next."""
        self.producer.purge()
        try:
            self.producer.abort_transaction(_ANSWER_SECONDS)
        except client.KafkaException:
            return


def _messages(records: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None, int, Any]]:
    column = records.column(HEADERS)
    headers: Sequence[Any] = [None] * records.num_rows
    if len(column.flatten()):
        headers = [
            None if not row else [(header["key"], header["value"]) for header in row] for row in column.to_pylist()
        ]
    times = records.column(TIMESTAMP).cast(pa.int64()).to_pylist()
    yield from zip(records.column(KEY).to_pylist(), records.column(VALUE).to_pylist(), times, headers, strict=True)


def _patiently(ask: Callable[[], Any], seconds: float) -> Any:
    """The response, retried as long as the broker is not ready: a coordinator moves, or starts."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except client.KafkaException as error:
            reason = error.args[0]
            if not (reason.retriable() or reason.code() in _NOT_READY) or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def _make_topics(options: WriteOptions, topics: Sequence[str]) -> dict[str, int]:
    """Those that are not there. Returns how many partitions each one has."""
    asked = _admin(options)
    known = asked.list_topics(timeout=_ANSWER_SECONDS).topics
    new = [
        admin.NewTopic(topic, options.partitions or 1, config=dict(options.topic_configs))
        for topic in topics
        if topic not in known
    ]
    for answer in asked.create_topics(new).values() if new else ():
        answer.result(_ANSWER_SECONDS)
    made = options.partitions or 1
    return {topic: len(known[topic].partitions) if topic in known else made for topic in topics}


def _connection(options: WriteOptions) -> dict[str, object]:
    """What every client needs to reach the broker.

    Configs of Kafka's producer are translated; others of the family are librdkafka's own.
    """
    guard = {name: value for name, value in options.producer_configs.items() if _is_for_guard(name)}
    try:
        translated = librdkafka_settings({name: value for name, value in guard.items() if name in KNOWN})
    except InvalidConfig as error:
        raise InvalidOption(f"an option kafka.* of this write: {error}") from None
    own = {name: value for name, value in guard.items() if name not in KNOWN}
    return {"bootstrap.servers": options.bootstrap_servers, "log_level": 3, **translated, **own}


def _is_for_guard(name: str) -> bool:
    return name.startswith(SECURITY) or name in _OTHERS_OF_THE_GUARD


def _topics(options: WriteOptions) -> tuple[Any, Any]:
    """An admin client and the topics that it finds. A refused log-in is raised at once: the client would retry."""
    errors: list[Any] = []
    asked = admin.AdminClient({**_connection(options), "error_cb": errors.append})
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            return asked, asked.list_topics(timeout=_CONNECT_SECONDS).topics
        except client.KafkaException:
            asked.poll(0)
            refusals = [error for error in errors if error.code() in _REFUSED_LOG_INS]
            if refusals:
                where = options.bootstrap_servers
                raise StorageError(f"the broker at {where} refuses the log-in: {refusals[0].str()}") from None
            if time.monotonic() >= deadline:
                raise


def _admin(options: WriteOptions) -> Any:
    return admin.AdminClient(_connection(options))


def _producer(options: WriteOptions, name: str, largest_batch: int) -> Any:
    configs: dict[str, object] = {
        "transaction.timeout.ms": _TRANSACTION_MS,
        "queue.buffering.max.messages": _QUEUED_MESSAGES,
        "message.max.bytes": max(_SMALLEST_LARGEST_MESSAGE, largest_batch),
        "linger.ms": 20,
        **{name: value for name, value in options.producer_configs.items() if not _is_for_guard(name)},
        **_connection(options),
        "batch.size": options.batch_bytes,
        "transactional.id": name,
    }
    if options.codec is not None:
        configs["compression.type"] = options.codec.label
    if options.level is not None:
        configs["compression.level"] = options.level
    return client.Producer(configs)


def _check_producer_configs(options: WriteOptions) -> None:
    """Let the client refuse now what it would refuse when all rows are staged."""
    try:
        _producer(options, "duralog-sink.check", 0)
    except client.KafkaException as error:
        raise InvalidOption(f"an option kafka.* of this write: {error.args[0].str()}") from None


def _config(entries: Mapping[str, Any]) -> TopicConfig:
    values = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return TopicConfig().with_stored(values)


@contextmanager
def _broker_errors(options: WriteOptions) -> Iterator[None]:
    """Errors of the client as errors of a write, with the address of the broker."""
    try:
        yield
    except TimeoutError as error:
        raise StorageError(f"the broker at {options.bootstrap_servers} does not answer") from error
    except client.KafkaException as error:
        reason = error.args[0]
        message = f"the broker at {options.bootstrap_servers}: {reason.str() if hasattr(reason, 'str') else reason}"
        refused = hasattr(reason, "code") and reason.code() in (
            client.KafkaError.MSG_SIZE_TOO_LARGE,
            client.KafkaError.INVALID_RECORD,
            client.KafkaError.TOPIC_EXCEPTION,
        )
        raise (InvalidRecord if refused else StorageError)(message) from error
