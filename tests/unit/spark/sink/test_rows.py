"""Rows to records: what arrives in the logs, and what is refused, with the column and the row, before anything is."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duralog.errors import DuralogError, InvalidConfig, InvalidRecord, InvalidTimestamp, RecordTooLarge
from duralog.format.murmur2 import partition_of_key
from duralog.storage.store import Store
from tests.support.spark.staged_writes import NOW_MS, make_topic, options_of, rows_of, values_in, write

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_every_column_arrives(tmp_path: Path) -> None:
    rows = rows_of(
        Topic=["a", "b", "a"],
        partition=pa.array([1, None, 0], pa.int32()),
        key=[b"k", None, b""],
        VALUE=["text", None, "third"],
        timestamp=pa.array([1_699_999_999_000_500, None, 0], pa.timestamp("us", "UTC")),
        headers=pa.array([[("h", b"1"), ("h", None)], None, []], HEADERS),
    )
    write(options_of(tmp_path, partitions=2), [rows])
    with Store(str(tmp_path), read_only=True) as store:
        (first,) = store.partition("a", 1).read(0)
        (second,) = (record for number in range(2) for record in store.partition("b", number).read(0))
        (third,) = store.partition("a", 0).read(0)
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"text", 1_699_999_999_000)
    assert list(first.headers) == [("h", b"1"), ("h", None)]
    assert (second.key, second.value, second.timestamp_ms) == (None, None, NOW_MS)
    assert (third.key, third.value, third.timestamp_ms) == (b"", b"third", 0)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=8), st.binary(max_size=60)), max_size=80),
    st.integers(1, 30),
    st.sampled_from(["none", "lz4", "zstd", "gzip", "snappy"]),
)
def test_any_rows_in_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, bytes | None, bytes]], cut: int, codec: str
) -> None:
    """Rows of one partition keep their order, keys decide by murmur2, and nothing is lost or doubled."""
    path = tmp_path_factory.mktemp("store")
    pieces = [
        pa.record_batch(
            {
                "topic": pa.array([topic for topic, _, _ in piece], pa.string()),
                "key": pa.array([key for _, key, _ in piece], pa.binary()),
                "value": pa.array([value for _, _, value in piece], pa.binary()),
            }
        )
        for piece in (rows[begin : begin + cut] for begin in range(0, len(rows), cut))
    ]
    write(options_of(path, partitions=3, codec=codec, batchSize=100), pieces, gathered_bytes=200)
    found = values_in(path)
    for topic in "ab":
        for partition in range(3):
            keyed = [
                value
                for name, key, value in rows
                if name == topic and key is not None and partition_of_key(key, 3) == partition
            ]
            left = iter(found.get((topic, partition), []))
            assert all(value in left for value in keyed)
    assert Counter(value for values in found.values() for value in values) == Counter(value for *_, value in rows)


BAD_ROWS: dict[str, tuple[dict[str, object], type[DuralogError], str]] = {
    "null topic": ({"topic": ["t", None]}, InvalidRecord, "column topic, row 1 of task 0: null"),
    "bad topic": ({"topic": ["t", "a/b"]}, InvalidRecord, "column topic, row 1 of task 0: a topic's name"),
    "internal topic": ({"topic": ["t", "__consumer_offsets"]}, InvalidRecord, "an internal topic of Kafka"),
    "partition out of range": (
        {"partition": [0, 2]},
        InvalidRecord,
        "column partition, row 1 of task 0: 2: t has the partitions 0 to 1",
    ),
    "negative partition": ({"partition": [0, -1]}, InvalidRecord, "column partition, row 1 of task 0: -1"),
    "null key in a compacted topic": (
        {"topic": ["t", "compacted"], "key": [b"k", None]},
        InvalidRecord,
        "column key, row 1 of task 0, for compacted-0: null",
    ),
    "no key column for a compacted topic": ({"topic": ["compacted"] * 2}, InvalidRecord, "column key, row 0 of task 0"),
    "a record that is too large": (
        {"topic": ["t", "small"], "value": [b"", os.urandom(3000)]},
        RecordTooLarge,
        "column value, row 1 of task 0, for small-0: the record makes a batch of",
    ),
    "too old": (
        {"topic": ["t", "recent"], "timestamp": [NOW_MS - 5000, NOW_MS - 5000]},
        InvalidTimestamp,
        f"column timestamp, row 1 of task 0, for recent-0: timestamp {NOW_MS - 5000}",
    ),
    "before 1970": ({"timestamp": [0, -5]}, InvalidRecord, "column timestamp, row 1 of task 0"),
    "null header key": (
        {"headers": pa.array([[], [(None, b"x")]], HEADERS)},
        InvalidRecord,
        "column headers, row 1 of task 0",
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_refused_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    changed, kind, told = BAD_ROWS[case]
    make_topic(tmp_path, "t", 2)
    make_topic(tmp_path, "compacted", 1, {"cleanup.policy": "compact"})
    make_topic(tmp_path, "small", 1, {"max.message.bytes": 2000})
    make_topic(tmp_path, "recent", 1, {"message.timestamp.before.max.ms": 1000})
    columns = {"topic": ["t", "t"], "value": [b"1", b"2"], "partition": [0, 0], **changed}
    if case == "null topic":
        columns["topic"] = pa.array(columns["topic"], pa.string())
    with pytest.raises(kind) as refused:
        write(options_of(tmp_path), [rows_of(**columns)])
    assert told in str(refused.value)
    assert values_in(tmp_path) == {}
    assert not list(tmp_path.glob("duralog-sink*"))


def test_rows_are_counted_from_the_first_of_the_task(tmp_path: Path) -> None:
    good = rows_of(partition=[0] * 10, value=["x"] * 10)
    bad = rows_of(partition=[0, 0, 7], value=["x"] * 3)
    with pytest.raises(InvalidRecord, match="column partition, row 22 of task 1: 7"):
        write(options_of(tmp_path, topic="t"), [good], [good, good, bad], gathered_bytes=1)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"key": [b"k"]}, "column value is missing"),
        ({"value": [1]}, "column value: expected binary or string, found int64"),
        ({"value": ["x"], "keys": ["x"]}, "column keys: there is no such column in a log; there are value, key"),
        ({"value": ["x"], "Value": ["x"]}, "expected one column of this name"),
        ({"value": ["x"], "partition": ["0"]}, "column partition: expected int, found string"),
        (
            {"value": ["x"], "timestamp": ["now"]},
            "column timestamp: expected timestamp (cast timestamp_ntz to it), or long",
        ),
        (
            {"value": ["x"], "timestamp": pa.array([1], pa.timestamp("us"))},
            "expected timestamp (cast timestamp_ntz to it), or long for milliseconds, found timestamp[us]",
        ),
        ({"value": ["x"], "headers": ["h"]}, "column headers: expected array<struct<key: string, value: binary>>"),
        ({"value": ["x"], "topic": [b"t"]}, "column topic: expected string, found binary"),
    ],
)
def test_columns_that_cannot_be_written(tmp_path: Path, columns: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        write(options_of(tmp_path, topic="t"), [rows_of(**columns)])
    assert told in str(refused.value)


def test_neither_a_topic_column_nor_the_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecord, match="nor the option topic: give one of them"):
        write(options_of(tmp_path), [rows_of(value=["x"])])


def test_the_folder_of_a_log_is_not_the_directory_of_logs(tmp_path: Path) -> None:
    write(options_of(tmp_path, topic="t"), [rows_of(value=["x"])])
    before = sorted((tmp_path / "t-0").iterdir())
    with pytest.raises(InvalidConfig, match="the directory of the logs: this is the folder of one partition in it"):
        write(options_of(tmp_path / "t-0", topic="t"), [rows_of(value=["y"])])
    assert sorted((tmp_path / "t-0").iterdir()) == before


def test_columns_of_nothing_but_null(tmp_path: Path) -> None:
    """As Spark's `lit(None)` makes them: no keys, no times, deletions; but a topic there must be."""
    nothing = pa.nulls(2)
    rows = rows_of(key=nothing, value=nothing, partition=nothing, timestamp=nothing, headers=nothing)
    write(options_of(tmp_path, topic="t"), [rows])
    assert values_in(tmp_path) == {("t", 0): [None, None]}
    with pytest.raises(InvalidRecord, match="column topic: expected string, found null"):
        write(options_of(tmp_path), [rows_of(value=["x", "y"], topic=nothing)])
    restored = rows_of(value=["x", "y"], partition=[0, 0], offset=nothing)
    with pytest.raises(InvalidRecord, match="column offset: expected long, found null"):
        write(options_of(tmp_path, topic="t", preserveOffsets="true"), [restored])


def test_the_option_topic_comes_before_the_column(tmp_path: Path) -> None:
    write(options_of(tmp_path, topic="option"), [rows_of(topic=["column"], value=["x"])])
    assert values_in(tmp_path) == {("option", 0): [b"x"]}


def test_offsets_of_a_frame_that_was_read_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    rows = rows_of(value=["x", "y"], offset=[70, 50], timestampType=pa.array([0, 1], pa.int32()))
    write(options_of(tmp_path, topic="t"), [rows])
    assert values_in(tmp_path) == {("t", 0): [b"x", b"y"]}
