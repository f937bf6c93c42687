"""The options of a write: those of Spark's Kafka sink, and a few of files.

| option | what it says |
|---|---|
| `path` | the directory of the logs, on a disk that the driver and all executors see |
| `topic` | the topic of all rows; without it, the column `topic` |
| `kafka.compression.type`, `codec` | none, gzip, snappy, lz4 or zstd, where the topic leaves the choice |
| `level`, `kafka.compression.zstd.level` and the like | the level of the codec |
| `kafka.batch.size`, `batchSize` | bytes of records in a batch, before compression |
| `partitions` | of topics that do not exist yet; with `preserveOffsets`, up to the last one with a row unless given |
| `topic.*` | configs of topics that do not exist yet, such as `topic.cleanup.policy` |
| `store.*` | broker configs to open the directory with, such as `store.log.segment.bytes` |
| `preserveOffsets` | the column `offset` is kept: a backup comes back as it was |
| `txnAppId`, `txnVersion` | does nothing if this application wrote this version or a later one to this topic before |
| `kafka.bootstrap.servers` | a broker holds the directory: the rows go through its port, in one transaction |
| `kafka.*` | other configs of Kafka's producer: see `producer_options` |
| `includeHeaders` | taken as Spark's sink takes it, without effect: a column `headers` is written |

Everything is checked before the first task starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duralog.columnar.encode_columns import DEFAULT_BATCH_BYTES
from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import DuralogError, InvalidRecord
from duralog.format.compression import Codec, compress
from duralog.format.filenames import topic_name_fault
from duralog.kernels.encode import MAX_RECORDS_BYTES
from duralog.scanning.locations import Location
from duralog.spark.option_text import InvalidOption, boolean, positive_int, refuse_unknown, refused, size_bytes
from duralog.spark.sink.producer_options import BOOTSTRAP_SERVERS, KAFKA_PREFIX, producer_configs

KNOWN = (
    "path",
    "topic",
    "codec",
    "level",
    "batchSize",
    "partitions",
    "preserveOffsets",
    "txnAppId",
    "txnVersion",
    "includeHeaders",
    "checkpointLocation",
    "queryName",
)
_TOPIC = "topic."
_STORE = "store."
MOST_PARTITIONS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AppVersion:
    """What a write is remembered by, so that it happens once."""

    application: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    path: str
    topic: str | None = None
    codec: Codec | None = None
    level: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    partitions: int | None = None
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    store_configs: Mapping[str, str] = field(default_factory=dict)
    preserve_offsets: bool = False
    transaction: AppVersion | None = None
    bootstrap_servers: str | None = None
    producer_configs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By Kafka's names, without the servers. May hold secrets, so they are not shown."""

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        refuse_unknown(options, KNOWN, prefixes=(KAFKA_PREFIX, _TOPIC, _STORE))
        given = {name.lower(): value for name, value in options.items()}
        topic = given.get("topic")
        if topic is not None and (fault := topic_name_fault(topic)) is not None:
            raise InvalidOption(f"option topic: {fault}")
        preserve = boolean("preserveOffsets", given.get("preserveoffsets", "false"))
        bootstrap = given.get(BOOTSTRAP_SERVERS)
        if preserve and bootstrap is not None:
            raise InvalidOption("option preserveOffsets: a broker assigns new offsets; write to the path instead")
        found = cls(
            path=local_path(given.get("path")),
            topic=topic,
            codec=_codec(given),
            level=_level(given),
            batch_bytes=_batch_bytes(given),
            partitions=_partitions(given.get("partitions")),
            topic_configs=_with_prefix(given, _TOPIC),
            store_configs=_with_prefix(given, _STORE),
            preserve_offsets=preserve,
            transaction=_transaction(given, streaming=streaming),
            bootstrap_servers=bootstrap,
            producer_configs=producer_configs(given),
        )
        found.new_topic_config()
        found.broker_config()
        return found

    def new_topic_config(self, defaults: TopicConfig | None = None) -> TopicConfig:
        """The configs of a topic that the write creates."""
        try:
            return (defaults or TopicConfig()).with_overrides(self.topic_configs)
        except DuralogError as error:
            raise _refused_config(_TOPIC, error) from None

    def broker_config(self) -> BrokerConfig:
        """To open the directory with."""
        try:
            return BrokerConfig.of(self.store_configs)
        except DuralogError as error:
            raise _refused_config(_STORE, error) from None


def local_path(text: str | None) -> str:
    """The directory of the option, found as a read finds it. It is absolute: tasks run in other directories."""
    if not text:
        raise InvalidOption("option path is missing: give the directory of the logs")
    location = Location.of(text)
    if location.is_remote:
        raise refused("path", text, "a directory on a local or shared disk: logs are appended to in place")
    return location.url


def _refused_config(prefix: str, error: DuralogError) -> InvalidOption:
    """An error of a value starts with the name of its config; an error of a name does not."""
    reason = str(error)
    is_of_name = reason.startswith("there is no")
    return InvalidOption(f"option {prefix}*: {reason}" if is_of_name else f"option {prefix}{reason}")


def _codec(given: Mapping[str, str]) -> Codec | None:
    found = [name for name in ("codec", "kafka.compression.type") if name in given]
    codecs = set()
    for name in found:
        try:
            codecs.add(Codec.named(given[name].strip().lower()))
        except InvalidRecord:
            raise refused(name, given[name], " or ".join(codec.label for codec in Codec)) from None
    if len(codecs) > 1:
        raise InvalidOption(f"options {' and '.join(found)} differ: give one of them")
    return codecs.pop() if codecs else None


def _level(given: Mapping[str, str]) -> int | None:
    codec = _codec(given)
    if codec is None:
        if "level" in given:
            raise InvalidOption("option level needs the option codec: levels differ from codec to codec")
        return None
    # Kafka has one for each codec; those of other codecs mean nothing.
    for name in ("level", f"kafka.compression.{codec.label}.level"):
        if name in given:
            return _level_of(codec, name, given[name])
    return None


def _level_of(codec: Codec, name: str, text: str) -> int:
    try:
        level = int(text.strip())
    except ValueError:
        raise refused(name, text, "a whole number") from None
    try:
        compress(codec, b"", level=level)
    except InvalidRecord as error:
        raise InvalidOption(f"option {name}: {error}") from None
    return level


def _batch_bytes(given: Mapping[str, str]) -> int:
    for name, key in (("batchSize", "batchsize"), ("kafka.batch.size", "kafka.batch.size")):
        if key in given:
            size = size_bytes(name, given[key])
            if not 0 < size <= MAX_RECORDS_BYTES:
                raise refused(name, given[key], f"1 to {MAX_RECORDS_BYTES} bytes")
            return size
    return DEFAULT_BATCH_BYTES


def _partitions(text: str | None) -> int | None:
    if text is None:
        return None
    count = positive_int("partitions", text)
    if count > MOST_PARTITIONS:
        raise refused("partitions", text, f"at most {MOST_PARTITIONS}")
    return count


def _transaction(given: Mapping[str, str], *, streaming: bool) -> AppVersion | None:
    application, version = given.get("txnappid"), given.get("txnversion")
    if application is None and version is None:
        return None
    if streaming:
        raise InvalidOption("options txnAppId and txnVersion are for batch writes: a streaming query has its own")
    if not application or version is None:
        raise InvalidOption("options txnAppId and txnVersion go together: give both")
    if not (version.isascii() and version.isdigit()) or len(version) > 18:
        raise refused("txnVersion", version, "a whole number, 0 or more")
    return AppVersion(application=application, version=int(version))


def _with_prefix(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)}
