"""The options of a read, batch or streaming: those of Spark's Kafka connector, and a few of files.

Names and values mean the same as in the connector. Instead of brokers, there is `path`: a log directory, or a glob or a
manifest of those of a cluster; `load([...])` gives several as `paths`. Without a subscription, which the connector
requires, every topic that is not internal is read. `startingTimestamp` wins over
`startingOffsetsByTimestamp`, and that over `startingOffsets`; likewise for the ends. `subscribePattern` is a regular
expression of Python.

Without a `mode`, damage of the log is an error, and payloads that do not decode are null. A `mode` is for both.

All values are checked before a file is touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from duralog.columnar.schema import KEY, VALUE
from duralog.errors import InvalidConfig, SchemaError
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.directories import is_of_cluster
from duralog.scanning.locations import Location, is_same_file_system
from duralog.scanning.logs import LogSet
from duralog.scanning.offset_ranges import Bound, Offsets, Timestamps
from duralog.scanning.planning import DEFAULT_MAX_SLICE_BYTES
from duralog.schemas.decode_options import NAMES as PAYLOAD_OPTIONS
from duralog.schemas.decode_options import Decode
from duralog.schemas.typed_columns import Mode
from duralog.spark.option_text import (
    STORAGE_PREFIX,
    InvalidOption,
    boolean,
    duration_ms,
    json_object,
    one_of,
    positive_int,
    refuse_unknown,
    refused,
    size_bytes,
    storage_options,
    timestamp_ms,
)
from duralog.spark.source.connector_options import ISOLATION_LEVEL, KAFKA_PREFIX, WITHOUT_EFFECT, check_consumer_options
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.time_lookup import EARLIEST, LATEST

FAILFAST = "FAILFAST"
PERMISSIVE = "PERMISSIVE"

BOTH = (
    "path",
    "paths",
    "cluster",
    "toEnd",
    "includeCopies",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "includeHeaders",
    "columns",
    "pruneByFilters",
    "maxSplitBytes",
    "mode",
    "badRecordsPath",
)
TYPED = tuple(name for name in PAYLOAD_OPTIONS if name != "mode")
ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000

_INT64_MAX = 2**63 - 1
_PARTITION = re.compile("0|[1-9][0-9]{0,9}")
_ASSIGN_EXAMPLE = '{"orders":[0,1]}'
_BY_PARTITION_EXAMPLE = '{"orders":{"0":23,"1":-2}}'
_TIMES_EXAMPLE = '{"orders":{"0":1700000000000}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Which partitions are read. At most one is set; none means every topic that is not internal."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """How much a micro-batch takes."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    """Fewer wait for more, but not longer than `max_delay_ms`."""
    max_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    logs: LogSet
    include_copies: bool
    """Whether there are columns that say which copy a record comes from."""
    selection: TopicSelection
    start: Bound
    end: Bound
    isolation: Isolation
    fail_on_data_loss: bool
    min_partitions: int | None
    include_headers: bool
    columns: tuple[str, ...] | None
    """As the user wrote them; `spark_schema` knows which there are."""
    prune_by_filters: bool
    """For a load that one query uses, once. See `batch_read`."""
    max_split_bytes: int
    mode: str
    """What happens to damage of the log."""
    bad_records: Location | None
    """The folder for the report of damage."""
    decode: Decode | None = field(default=None, repr=False)
    """How keys and values are decoded; None if they stay bytes. May hold secrets of a registry."""
    limits: TriggerLimits = field(default_factory=TriggerLimits)

    @property
    def path(self) -> str:
        """For messages."""
        return str(self.logs)

    @property
    def is_permissive(self) -> bool:
        """Whether damaged batches are left out."""
        return self.mode == PERMISSIVE

    @property
    def reports(self) -> bool:
        """Whether there may be something to report: damaged batches, or payloads that do not decode."""
        return self.is_permissive or (self.decode is not None and self.decode.mode is Mode.PERMISSIVE)

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
        """From Spark's options. While `streaming` is not known, it is None, and what depends on it is not checked."""
        given = _Given(options, streaming)
        mode = given.value("mode", lambda name, text: one_of(name, text, (FAILFAST, PERMISSIVE)), None)
        decode = _decode(options, mode)
        logs = _logs(given, storage_options(options))
        if given.get("badRecordsPath") is not None and mode != PERMISSIVE and (mode is not None or decode is None):
            raise InvalidOption(
                "option badRecordsPath is for mode PERMISSIVE: with FAILFAST the first damage is an error"
            )
        return cls(
            logs=logs,
            include_copies=_of_cluster(given, "includeCopies", logs.is_cluster),
            selection=_selection(given),
            start=_start(given),
            end=_end(given),
            isolation=Isolation(given.value(ISOLATION_LEVEL, _isolation, Isolation.READ_UNCOMMITTED.value)),
            fail_on_data_loss=given.value("failOnDataLoss", boolean, True),
            min_partitions=given.value("minPartitions", positive_int, None),
            include_headers=given.value("includeHeaders", boolean, False),
            columns=given.value("columns", _columns, None),
            prune_by_filters=given.value("pruneByFilters", boolean, False),
            max_split_bytes=given.value("maxSplitBytes", size_bytes, DEFAULT_MAX_SLICE_BYTES),
            mode=mode or FAILFAST,
            bad_records=given.value("badRecordsPath", lambda _, folder: _report_folder(folder, logs), None),
            decode=decode,
            limits=_limits(given),
        )


def _decode(options: Mapping[str, str], mode: str | None) -> Decode | None:
    spelled = {name.lower(): name for name in TYPED}
    given = {spelled[name.lower()]: value for name, value in options.items() if name.lower() in spelled}
    try:
        return Decode.of(given if mode is None else {**given, "mode": mode})
    except SchemaError as error:
        raise InvalidOption(str(error)) from None


class _Given:
    """What the user set, by the names of this module."""

    def __init__(self, options: Mapping[str, str], streaming: bool | None) -> None:
        self.streaming = streaming
        self._values = {name.lower(): value for name, value in options.items()}
        if streaming:
            for name in ENDS:
                if name.lower() in self._values:
                    raise InvalidOption(f"option {name} is for batch reads: a streaming query has no end")
            if "prunebyfilters" in self._values:
                raise InvalidOption(
                    "option pruneByFilters is for batch reads: Spark does not give a stream the filters"
                )
        if "location" in self._values:
            raise InvalidOption(
                "a catalog table cannot be read: Spark passes none of its options to a Python source; use CREATE"
                " TEMPORARY VIEW name USING duralog OPTIONS (path '...')"
            )
        check_consumer_options(options)
        # A batch read takes all at once, so limits of a trigger do nothing there, as with the connector.
        known = (*BOTH, *TYPED, *(() if streaming else ENDS), *LIMITS, *WITHOUT_EFFECT)
        refuse_unknown(options, (*known, ISOLATION_LEVEL), prefixes=(STORAGE_PREFIX, KAFKA_PREFIX))

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def value(self, name: str, parse: Callable[[str, str], Any], default: Any) -> Any:
        text = self.get(name)
        return default if text is None else parse(name, text)

    def paths(self) -> tuple[str, ...]:
        """What `load` was given: one path, or a list of them as JSON."""
        path, listed = self.get("path"), self.value("paths", _listed_paths, None)
        if path and listed:
            raise InvalidOption("options path and paths cannot be used together: give one of them")
        if not path and not listed:
            raise InvalidOption(
                'there is no option path: name the log directory, as in load("/var/lib/kafka/data");'
                " a catalog table cannot be read"
            )
        return (path,) if path else listed


def _listed_paths(name: str, text: str) -> tuple[str, ...]:
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not listed or not all(isinstance(each, str) and each for each in listed):
        raise refused(name, text, 'a JSON list of log directories such as ["/backup/broker-1", "/backup/broker-2"]')
    return tuple(listed)


def _logs(given: _Given, storage: Mapping[str, str]) -> LogSet:
    """Several directories are those of one cluster."""
    paths = given.paths()
    named = is_of_cluster(paths[0] if len(paths) == 1 else paths)
    is_cluster = given.value("cluster", boolean, named)
    if len(paths) > 1 and not is_cluster:
        raise InvalidOption(
            f"option cluster is false, but there are {len(paths)} directories: leave it out, or load each directory,"
            " and combine them with union"
        )
    to_end = _of_cluster(given, "toEnd", is_cluster)
    return LogSet.of(paths, storage, is_cluster=is_cluster, to_end=to_end)


def _of_cluster(given: _Given, name: str, is_cluster: bool) -> bool:
    wanted: bool = given.value(name, boolean, False)
    if wanted and not is_cluster:
        raise InvalidOption(
            f"option {name} is for the directories of a cluster, and this is one directory: give several, or"
            " cluster=true to read one as that of a cluster"
        )
    return wanted


def _report_folder(folder: str, logs: LogSet) -> Location:
    """Made absolute here, since tasks run in other directories. The storage options are those of the logs."""
    try:
        is_there = any(is_same_file_system(folder, path) for path in logs.paths)
        return Location.of(folder, logs.storage_options if is_there else None)
    except InvalidConfig as error:
        raise InvalidOption(f"option badRecordsPath: {error}") from None


def _isolation(name: str, text: str) -> str:
    return one_of(name, text, tuple(Isolation))


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise refused(name, text, "names with commas between them")
    return names


def _columns(name: str, text: str) -> tuple[str, ...]:
    """Of columns, upper and lower case are the same to Spark. Fields of payloads are as their schema spells them."""
    found = []
    for each in _names(name, text):
        column, dot, fields = each.partition(".")
        found.append(f"{column.lower()}{dot}{fields}" if column.lower() in (KEY, VALUE) else each)
    return tuple(found)


def _selection(given: _Given) -> TopicSelection:
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if given.get(name) is not None]
    if len(chosen) > 1:
        raise InvalidOption(f"options {' and '.join(chosen)} cannot be used together: give one of them")
    return TopicSelection(
        topics=given.value("subscribe", _names, None),
        pattern=given.value("subscribePattern", _pattern, None),
        assigned=given.value("assign", _assigned, None),
    )


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise refused(name, text, f"a regular expression ({error})") from None
    return text


def _assigned(name: str, text: str) -> dict[str, tuple[int, ...]]:
    found = {}
    for topic, partitions in json_object(name, text, _ASSIGN_EXAMPLE).items():
        if not isinstance(partitions, list) or not all(_is_partition(number) for number in partitions):
            raise refused(name, text, f"JSON such as {_ASSIGN_EXAMPLE}")
        found[topic] = tuple(dict.fromkeys(partitions))
    return found


def _is_partition(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31


def _by_partition(name: str, text: str, example: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, values in json_object(name, text, example).items():
        entries: dict[str, Any] = values if isinstance(values, dict) else {"": None}
        for number, value in entries.items():
            is_number = isinstance(value, int) and not isinstance(value, bool) and least <= value <= _INT64_MAX
            # "07" would be a second name of 7.
            if not (_PARTITION.fullmatch(number) and _is_partition(int(number)) and is_number):
                raise refused(name, text, f"JSON such as {example}")
            found[TopicPartition(topic, int(number))] = value
    return found


def _start(given: _Given) -> Bound:
    strategy = given.value(
        "startingOffsetsByTimestampStrategy", lambda name, text: one_of(name, text, ("error", "latest")), "error"
    )
    by_time = _times(given, "startingTimestamp", "startingOffsetsByTimestamp", strategy)
    if by_time is not None:
        return by_time
    if given.streaming is not False:
        return _offsets(given, "startingOffsets", default=LATEST)
    return _offsets(given, "startingOffsets", default=EARLIEST, refused_word="latest")


def _end(given: _Given) -> Bound:
    by_time = _times(given, "endingTimestamp", "endingOffsetsByTimestamp", "latest")
    return _offsets(given, "endingOffsets", default=LATEST, refused_word="earliest") if by_time is None else by_time


def _times(given: _Given, everywhere: str, by_partition: str, if_none: str) -> Timestamps | None:
    for_all: int | None = given.value(everywhere, timestamp_ms, None)
    if for_all is not None:
        return Timestamps(everywhere_ms=for_all, if_none=if_none)
    text = given.get(by_partition)
    if text is None:
        return None
    return Timestamps(of=_by_partition(by_partition, text, _TIMES_EXAMPLE, least=0), if_none=if_none)


def _offsets(given: _Given, name: str, *, default: int, refused_word: str | None = None) -> Offsets:
    words = {"earliest": EARLIEST, "latest": LATEST}
    text = given.get(name)
    if text is None:
        return Offsets(everywhere=default)
    word = text.strip().lower()
    allowed = " or ".join(w for w in words if w != refused_word)
    if word in words and word != refused_word:
        return Offsets(everywhere=words[word])
    if not word.startswith("{"):
        raise refused(name, text, f"{allowed}, or JSON such as {_BY_PARTITION_EXAMPLE}")
    of = _by_partition(name, text, _BY_PARTITION_EXAMPLE, least=EARLIEST)
    if refused_word is not None and words[refused_word] in of.values():
        raise InvalidOption(
            f"option {name} has {words[refused_word]}, which stands for {refused_word}: a batch read would be empty"
        )
    return Offsets(of=of)


def _limits(given: _Given) -> TriggerLimits:
    limits = TriggerLimits(
        max_offsets=given.value("maxOffsetsPerTrigger", positive_int, None),
        max_bytes=given.value("maxBytesPerTrigger", size_bytes, None),
        min_offsets=given.value("minOffsetsPerTrigger", positive_int, None),
        max_delay_ms=given.value("maxTriggerDelay", duration_ms, DEFAULT_TRIGGER_DELAY_MS),
    )
    if limits.max_offsets is not None and limits.min_offsets is not None and limits.min_offsets > limits.max_offsets:
        raise InvalidOption(
            f"option minOffsetsPerTrigger is {limits.min_offsets}, more than maxOffsetsPerTrigger, {limits.max_offsets}"
        )
    return limits
