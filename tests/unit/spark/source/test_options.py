"""The options of a read: what is accepted, what it means, and the sentence for what is not."""

from __future__ import annotations

import os
from typing import Any

import pytest

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.locations import Location
from duralog.scanning.offset_ranges import Offsets, Timestamps
from duralog.spark.option_text import InvalidOption, duration_ms, refuse_unknown, storage_options
from duralog.spark.source.read_options import ReadOptions
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.time_lookup import EARLIEST, LATEST


def batch(**options: str) -> ReadOptions:
    return ReadOptions.of({"path": "logs", **options}, streaming=False)


def stream(**options: str) -> ReadOptions:
    return ReadOptions.of({"path": "logs", **options}, streaming=True)


def test_the_defaults_are_the_connectors() -> None:
    options = batch()
    assert (options.start, options.end) == (Offsets(everywhere=EARLIEST), Offsets(everywhere=LATEST))
    assert stream().start == Offsets(everywhere=LATEST)
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_split_bytes == 128 << 20
    assert not options.is_permissive


def test_names_have_no_case() -> None:
    options = batch(SUBSCRIBE="a, b,", failondataloss="FALSE", **{"Kafka.Isolation.Level": "READ_COMMITTED"})
    assert options.selection.topics == ("a", "b")
    assert not options.fail_on_data_loss
    assert options.isolation is Isolation.READ_COMMITTED


def test_columns_have_no_case_but_fields_of_payloads_do() -> None:
    columns = batch(columns="VALUE.customer.Id, Key, OFFSET, value.b").columns
    assert columns == ("value.customer.Id", "key", "OFFSET", "value.b")


def test_a_query_of_the_connector_needs_no_other_change() -> None:
    connector = {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.group.id": "g",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "secret",
        "kafka.ssl.truststore.location": "x",
        "groupIdPrefix": "p",
        "kafkaConsumer.pollTimeoutMs": "1000",
        "fetchOffset.numRetries": "3",
        "maxOffsetsPerTrigger": "1000",
        "subscribe": "orders",
    }
    assert batch(**connector).selection.topics == ("orders",)
    assert stream(**connector).limits.max_offsets == 1000


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"startingOffsets": "earliest"}, Offsets(everywhere=EARLIEST)),
        (
            {"startingOffsets": '{"t":{"0":7,"1":-2}}'},
            Offsets(of={TopicPartition("t", 0): 7, TopicPartition("t", 1): -2}),
        ),
        ({"startingTimestamp": "1000"}, Timestamps(everywhere_ms=1000)),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsetsByTimestampStrategy": "LATEST"},
            Timestamps(of={TopicPartition("t", 0): 5}, if_none="latest"),
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingTimestamp": "9"},
            Timestamps(everywhere_ms=9),
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":5}}'},
            Timestamps(of={TopicPartition("t", 0): 5}),
        ),
    ],
)
def test_where_a_read_starts(options: dict[str, str], start: object) -> None:
    assert batch(**options).start == start
    assert stream(**options).start == start


def test_where_a_batch_read_ends() -> None:
    assert batch(endingOffsets='{"t":{"0":7,"1":-1}}').end == Offsets(
        of={TopicPartition("t", 0): 7, TopicPartition("t", 1): -1}
    )
    assert batch(endingTimestamp="5").end == Timestamps(everywhere_ms=5, if_none="latest")


def test_a_stream_may_start_at_the_end_of_single_partitions() -> None:
    assert stream(startingOffsets='{"t":{"0":-1}}').start == Offsets(of={TopicPartition("t", 0): LATEST})
    assert stream(startingOffsets="Latest").start == Offsets(everywhere=LATEST)


def test_assigned_partitions() -> None:
    assert batch(assign='{"a":[0,2,0],"b":[1]}').selection.assigned == {"a": (0, 2), "b": (1,)}


def test_limits_of_a_trigger() -> None:
    limits = stream(
        maxOffsetsPerTrigger="10", maxBytesPerTrigger="1m", minOffsetsPerTrigger="5", maxTriggerDelay="90s"
    ).limits
    assert (limits.max_offsets, limits.max_bytes, limits.min_offsets, limits.max_delay_ms) == (10, 1 << 20, 5, 90_000)


def test_options_of_the_file_system() -> None:
    assert batch(**{"fs.access_key": "a", "FS.Region": "b"}).logs.storage_options == {"access_key": "a", "region": "b"}
    assert storage_options({"path": "x"}) == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscrib": "t"}, "there is no option subscrib: did you mean subscribe?"),
        ({"zzz": "t"}, "there is no option zzz. There are path, paths, cluster, toEnd, includeCopies, assign"),
        (
            {"kafka.isolation.lvl": "x"},
            "there is no option kafka.isolation.lvl, .* did you mean kafka.isolation.level?",
        ),
        ({"kafka.isolation.level": "x"}, "'x': give read_uncommitted or read_committed"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset .* startingOffsets"),
        ({"kafka.value.deserializer": "x"}, "values come as binary"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign and subscribe cannot be used together"),
        ({"subscribe": " , "}, "option subscribe is ' , ': give names"),
        ({"subscribePattern": "("}, r"subscribePattern is '\(': give a regular expression"),
        ({"assign": "a"}, 'assign is .*: give JSON such as {"orders":'),
        ({"assign": '{"a":[-1]}'}, "assign is"),
        ({"assign": '{"a":[true]}'}, "assign is"),
        ({"assign": '{"a":0}'}, "assign is"),
        ({"assign": "{}"}, "assign is"),
        ({"startingOffsets": "now"}, "startingOffsets is 'now': give earliest"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"t":{"x":3}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"t":3}'}, "startingOffsets is"),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"t":{"0":1,"0":2}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"t":{"0":9223372036854775808}}'}, "startingOffsets is"),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets is"),
        ({"startingTimestamp": "-1"}, "startingTimestamp is '-1': give milliseconds since 1970"),
        ({"startingTimestamp": "²"}, "startingTimestamp is"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe': give true or false"),
        ({"minPartitions": "0"}, "minPartitions is '0': give a whole number, at least 1"),
        ({"minPartitions": "9" * 5000}, "minPartitions is"),
        ({"startingTimestamp": "0" * 20 + "9" * 20}, "startingTimestamp is"),
        ({"startingOffsets": '{"a":{"0":1,"00":2}}'}, "startingOffsets is"),
        ({"maxTriggerDelay": "9" * 5000 + "s"}, "maxTriggerDelay is"),
        ({"maxSplitBytes": "12x"}, "maxSplitBytes is '12x': give a number of bytes"),
        ({"mode": "DROPMALFORMED"}, "mode is 'DROPMALFORMED': give FAILFAST or PERMISSIVE"),
        ({"badRecordsPath": "x"}, "badRecordsPath is for mode PERMISSIVE"),
        ({"badRecordsPath": "nope://x", "mode": "PERMISSIVE"}, "option badRecordsPath: path: 'nope://x': no such file"),
        ({"maxTriggerDelay": "ten"}, "maxTriggerDelay is 'ten': give a time with its unit"),
        ({"maxSplitBytes": "0"}, "maxSplitBytes is '0': give a number of bytes, at least 1"),
        ({"paths": '["/a", "/b"]'}, "options path and paths cannot be used together"),
        ({"location": "file:/logs"}, "a catalog table cannot be read: .* use CREATE TEMPORARY VIEW"),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is 10, more than"),
    ],
)
def test_what_is_refused(options: dict[str, str], told: str) -> None:
    for read in (batch, stream):
        with pytest.raises(InvalidOption, match=told):
            read(**options)


@pytest.mark.parametrize(
    ("read", "options", "told"),
    [
        (batch, {"startingOffsets": "latest"}, "startingOffsets is 'latest': give earliest, or JSON"),
        (batch, {"startingOffsets": '{"t":{"0":-1}}'}, "has -1, which stands for latest"),
        (stream, {"endingOffsets": "latest"}, "endingOffsets is for batch reads"),
        (stream, {"endingtimestamp": "5"}, "endingTimestamp is for batch reads"),
    ],
)
def test_what_is_refused_of_one_kind_only(read: Any, options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        read(**options)
    ReadOptions.of({"path": "logs", **options}, streaming=None)


def test_a_batch_read_does_not_end_where_it_could_only_start() -> None:
    with pytest.raises(InvalidOption, match="endingOffsets is 'earliest': give latest, or JSON"):
        batch(endingOffsets="earliest")
    with pytest.raises(InvalidOption, match="endingOffsets has -2, which stands for earliest"):
        batch(endingOffsets='{"t":{"0":-2}}')


def test_a_path_must_be_given() -> None:
    for options in ({}, {"path": ""}):
        with pytest.raises(InvalidOption, match="there is no option path"):
            ReadOptions.of(options, streaming=False)


def test_times_with_units() -> None:
    units = {
        "5ms": 5,
        "5": 5,
        "1500us": 1,
        "2s": 2_000,
        "3m": 180_000,
        "3min": 180_000,
        "1h": 3_600_000,
        "1d": 86_400_000,
    }
    assert {text: duration_ms("d", text) for text in units} == units


def test_the_error_of_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidOption, match=r"there is no option C. There are A, B, x\.\*"):
        refuse_unknown(["a", "X.y", "C"], ["A", "B"], prefixes=["x."])


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("s3://bucket/logs", "/bad", Location("/bad")),
        ("s3://bucket/logs", "s3a://other/bad", Location("s3a://other/bad", (("region", "eu"),))),
        ("s3://bucket/logs", "bad", Location(os.path.abspath("bad"))),
    ],
)
def test_a_report_of_damage_goes_where_its_folder_is_whatever_the_logs_are_on(
    path: str, folder: str, expected: Location
) -> None:
    options = {"path": path, "fs.region": "eu", "mode": "PERMISSIVE", "badRecordsPath": folder}
    assert ReadOptions.of(options, streaming=False).bad_records == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets is for batch reads: a streaming query has no end"),
        (
            {"pruneByFilters": "true"},
            "option pruneByFilters is for batch reads: Spark does not give a stream the filters",
        ),
    ],
)
def test_a_stream_refuses_what_is_for_batch_reads(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        stream(**options)
    assert batch(**options)


def test_pruning_by_filters_is_off_unless_it_is_asked_for() -> None:
    assert (batch().prune_by_filters, batch(pruneByFilters="True").prune_by_filters) == (False, True)
    with pytest.raises(InvalidOption, match="option pruneByFilters is 'yes': give true or false"):
        batch(pruneByFilters="yes")
