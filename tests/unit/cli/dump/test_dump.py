"""`duralog dump` on sound files: what it shows, what it leaves out, in which form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from duralog.cli.dump.command import EXPORT_EXTENSIONS
from duralog.columnar.export import EXTENSIONS
from duralog.command_line import app
from duralog.format import control_records, message_set, record_batch
from duralog.format.checkpoints import (
    EpochStart,
    PartitionOffset,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from duralog.format.compression import Codec
from duralog.format.control_records import ControlType, EndTransactionMarker
from duralog.format.index_entries import (
    AbortedTransaction,
    OffsetIndexEntry,
    TimeIndexEntry,
    encode_offset_index,
    encode_time_index,
    encode_transaction_index,
)
from duralog.format.producer_snapshot import ProducerEntry, encode_producer_snapshot
from duralog.format.properties import encode_partition_metadata
from duralog.format.record import Record, TimestampType
from tests.support import commands
from tests.support.places import DOCS, GOLDEN

T0 = 1_700_000_000_000
BATCH_RECORDS = 10


def records(first: int, count: int = BATCH_RECORDS) -> list[Record]:
    return [
        Record(key=b"k%d" % (i % 7), value=b"v%d" % i, timestamp_ms=T0 + i, headers=[("h", b"x")] if i % 5 == 0 else [])
        for i in range(first, first + count)
    ]


def plain_log(batches: int = 10, first: int = 0, codec: Codec = Codec.NONE) -> bytes:
    starts = range(first, first + batches * BATCH_RECORDS, BATCH_RECORDS)
    return b"".join(
        record_batch.encode(records(start), base_offset=start, codec=codec, leader_epoch=3) for start in starts
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Offsets 0 to 99, ten to a batch, a millisecond apart."""
    path = tmp_path / "orders-3" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(plain_log())
    return path


dump = partial(commands.run, "dump")


objects = partial(commands.objects, "dump")


def offsets(*arguments: object) -> list[int]:
    return [row["offset"] for row in objects("--records", *arguments)]


def test_batch_lines(log: Path) -> None:
    lines = dump(log).stdout.splitlines()
    assert lines[0] == f"{log}: log, base offset 0, {log.stat().st_size:,} bytes"
    names, first = lines[1].split(), lines[2].split()
    batch = dict(zip(names, first, strict=False))
    assert batch == {
        "base_offset": "0",
        "last_offset": "9",
        "records": "10",
        "position": "0",
        "size": str(len(plain_log(1))),
        "max_timestamp": "2023-11-14T22:13:20.009Z",
        "time": "create",
        "codec": "none",
        "magic": "2",
        "epoch": "3",
        "producer": "-",
        "sequence": "-",
        "crc": batch["crc"],
        "valid": "ok",
    }
    assert len([line for line in lines if line.endswith("ok")]) == 10


def test_summary_after_the_batches(log: Path) -> None:
    text = dump(log).stdout
    assert "  records     100\n  offsets     0 to 99\n" in text
    assert "  timestamps  2023-11-14T22:13:20.000Z to 2023-11-14T22:13:20.099Z\n" in text
    assert text.endswith("  corrupt     nothing\n")


def test_batches_as_json(log: Path) -> None:
    rows = objects(log)
    assert [row["base_offset"] for row in rows] == list(range(0, 100, 10))
    data = log.read_bytes()
    for row in rows:
        batch = record_batch.decode_header(data, row["position"])
        assert row == {
            "kind": "batch",
            "file": str(log),
            "position": batch.position,
            "size": batch.size_bytes,
            "magic": 2,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "record_count": 10,
            "base_timestamp": batch.base_timestamp_ms,
            "max_timestamp": batch.max_timestamp_ms,
            "timestamp_type": "CreateTime",
            "codec": "none",
            "leader_epoch": 3,
            "producer_id": -1,
            "producer_epoch": -1,
            "base_sequence": -1,
            "last_sequence": -1,
            "transactional": False,
            "control": False,
            "delete_horizon": None,
            "crc": batch.crc,
            "crc_ok": True,
        }


def test_every_header_field_of_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(
        record_batch.encode(
            [Record(key=b"k", timestamp_ms=T0, offset=6)],
            base_offset=5,
            last_offset=7,
            codec=Codec.ZSTD,
            leader_epoch=4,
            producer_id=9,
            producer_epoch=2,
            base_sequence=2**31 - 1,
            is_transactional=True,
            delete_horizon_ms=T0 + 5000,
        )
    )
    (row,) = objects(path)
    assert (row["producer_id"], row["producer_epoch"], row["base_sequence"], row["last_sequence"]) == (
        9,
        2,
        2**31 - 1,
        1,
    )
    assert (row["codec"], row["transactional"], row["delete_horizon"]) == ("zstd", True, T0 + 5000)
    line = dump(path, "--quiet").stdout.split()
    assert line[10:] == [
        "9:2",
        f"{2**31 - 1}..1",
        f"{row['crc']:08x}",
        "ok",
        "txn,delete_horizon=2023-11-14T22:13:25.000Z",
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_every_codec(tmp_path: Path, codec: Codec) -> None:
    path = tmp_path / "orders-3" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(plain_log(3, codec=codec))
    rows = objects("--records", path)
    assert [row["offset"] for row in rows] == list(range(30))
    assert rows[5] == {
        "topic": "orders",
        "partition": 3,
        "offset": 5,
        "timestamp": T0 + 5,
        "timestamp_type": "CreateTime",
        "key": "k5",
        "value": "v5",
        "headers": [{"key": "h", "value": "x"}],
    }


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_old_formats(tmp_path: Path, magic: int, codec: Codec) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(
        message_set.encode([Record(key=b"k", value=b"v", timestamp_ms=T0)] * 4, magic=magic, base_offset=0, codec=codec)
    )
    rows = objects("--records", path)
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert {row["timestamp"] for row in rows} == {T0 if magic else None}
    batches = objects(path)
    assert [row["record_count"] for row in batches] == ([1] * 4 if codec is Codec.NONE else [None])
    assert batches[-1]["last_offset"] == 3
    assert {row["magic"] for row in batches} == {magic}


def test_record_lines(log: Path) -> None:
    lines = dump("--records", "--offsets", "5:7", log).stdout.splitlines()
    assert lines[1].split() == [
        "|",
        "offset",
        "5",
        "2023-11-14T22:13:20.005Z",
        "key",
        '"k5"',
        "value",
        '"v5"',
        "headers",
        '"h"="x"',
    ]
    assert lines[2].startswith("| offset 6  ")
    assert "  selected    2 of them" in lines


def test_long_fields_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "saved.log"
    path.write_bytes(record_batch.encode([Record(value=b"x" * 1000, timestamp_ms=T0)]))
    text = dump("--records", "--max-field-bytes", "10", path).stdout
    assert 'value "xxxxxxxxxx"…(+990 bytes)' in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--offsets", "25:31"], range(25, 31)),
        (["--offsets", "95:"], range(95, 100)),
        (["--offsets", ":3"], range(3)),
        (["--offsets", "42"], range(42, 43)),
        (["--offsets", "500:"], ()),
        (["--since", str(T0 + 97)], range(97, 100)),
        (["--until", str(T0 + 2)], range(2)),
        (["--since", "2023-11-14T22:13:20.050Z", "--until", "2023-11-14T22:13:20.053"], range(50, 53)),
        (["--key", "k3"], range(3, 100, 7)),
        (["--key", "0x6b33", "--offsets", ":30"], range(3, 30, 7)),
        (["--key-hex", "6b33", "--limit", "2"], (3, 10)),
        (["--key", "nobody"], ()),
        (["--key", ""], ()),
        (["--limit", "13"], range(13)),
        (["--limit", "0"], ()),
        (["--offsets", "5:", "--limit", "2"], (5, 6)),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_selected_records(tmp_path: Path, codec: Codec, arguments: list[str], expected: range) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(plain_log(codec=codec))
    assert offsets(*arguments, path) == list(expected)


def test_selected_batches(log: Path) -> None:
    assert [row["base_offset"] for row in objects("--offsets", "25:31", log)] == [20, 30]
    assert [row["base_offset"] for row in objects("--since", T0 + 95, log)] == [90]
    assert [row["base_offset"] for row in objects("--limit", 3, log)] == [0, 10, 20]


def test_many_equal_key_lengths_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "saved.log"
    keys = [b"a-long-common-prefix-%05d" % i for i in range(500)]
    path.write_bytes(record_batch.encode([Record(key=key, timestamp_ms=T0) for key in keys]))
    assert offsets("--key", keys[123].decode(), path) == [123]
    path.write_bytes(record_batch.encode([Record(key=b"same", timestamp_ms=T0)] * 100))
    assert offsets("--key", "same", path) == list(range(100))


def write_index(log: Path, *, shift: int = 0) -> None:
    batches = [row for row in objects(log) if row["position"] > 0]
    entries = [OffsetIndexEntry(row["last_offset"], row["position"] + shift) for row in batches]
    log.with_suffix(".index").write_bytes(encode_offset_index(entries, 0))


def test_the_index_is_used_to_skip_ahead(log: Path) -> None:
    write_index(log)
    data = bytearray(log.read_bytes())
    # What nobody reads cannot be found wrong: the first batch is skipped by the index.
    data[70] ^= 1
    log.write_bytes(data)
    assert offsets("--offsets", "55:58", log) == [55, 56, 57]
    assert offsets("--offsets", "59:61", log) == [59, 60]
    objects("--records", "--offsets", "3:5", log, code=1)


@pytest.mark.parametrize("shift", [1, -1, 10_000_000])
def test_an_index_that_does_not_fit_is_not_followed(log: Path, shift: int) -> None:
    write_index(log, shift=shift)
    text = dump("--records", "--offsets", "55:58", log).stdout
    assert "its offset index does not fit" in text
    assert text.count("\n| offset ") == 3


def test_folders_show_segments_in_order_and_skip_those_outside(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for first in (0, 50, 100):
        (folder / f"{first:020}.log").write_bytes(plain_log(5, first))
    (folder / "notes.txt").touch()
    assert offsets(folder) == list(range(150))
    assert offsets(tmp_path) == list(range(150))
    text = dump("--offsets", "60:70", folder).stdout
    assert "00000000000000000050.log" in text
    assert "00000000000000000000.log" not in text
    assert "00000000000000000100.log" not in text
    assert "notes.txt: skipped" in text


def test_summary_alone(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(plain_log(5))
    (folder / f"{80:020}.log").write_bytes(plain_log(2, 80, Codec.GZIP))
    first, second, total = objects("--summary", folder)
    assert (first["kind"], second["kind"], total["kind"]) == ("file_summary", "file_summary", "summary")
    assert (first["records"], second["records"], total["records"]) == (50, 20, 70)
    assert (total["first_offset"], total["last_offset"]) == (0, 99)
    assert (total["gaps"], total["missing_offsets"]) == (1, 30)
    assert total["codecs"] == {"none": 5, "gzip": 2}
    assert (total["first_timestamp"], total["last_timestamp"]) == (T0, T0 + 99)
    text = dump("--summary", folder).stdout
    assert "  gaps        1 with 30 offsets: 50 to 79\n" in text
    assert text.count(".log\n") == 2


def test_log_append_time(tmp_path: Path) -> None:
    path = tmp_path / "saved.log"
    path.write_bytes(
        record_batch.encode(records(0), timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=T0 + 777)
    )
    assert {row["timestamp"] for row in objects("--records", path)} == {T0 + 777}
    assert offsets("--until", T0 + 777, path) == []
    assert len(offsets("--since", T0 + 777, path)) == 10


def test_what_has_no_timestamp_is_at_no_time(tmp_path: Path) -> None:
    path = tmp_path / "saved.log"
    path.write_bytes(
        message_set.encode([Record(value=b"old")], magic=0, base_offset=0)
        + record_batch.encode([Record(value=b"none"), Record(value=b"some", timestamp_ms=T0)], base_offset=1)
    )
    assert offsets(path) == [0, 1, 2]
    assert offsets("--since", 0, path) == [2]
    assert offsets("--until", T0 + 1, path) == [2]


def test_control_records(tmp_path: Path) -> None:
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    key, value = control_records.encode(EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=7))
    marker = record_batch.encode(
        [Record(key=key, value=value, timestamp_ms=T0)],
        base_offset=10,
        producer_id=5,
        producer_epoch=1,
        is_transactional=True,
        is_control=True,
    )
    path.write_bytes(plain_log(1) + marker + plain_log(1, 11))
    rows = objects("--records", path)
    assert [row["offset"] for row in rows] == list(range(21))
    assert rows[10] == {
        "topic": "orders",
        "partition": 0,
        "offset": 10,
        "timestamp": T0,
        "timestamp_type": "CreateTime",
        "control": "ABORT",
        "coordinator_epoch": 7,
        "version": 0,
        "producer_id": 5,
        "producer_epoch": 1,
    }
    assert "| offset 10  2023-11-14T22:13:20.000Z  control ABORT  coordinator_epoch 7" in dump("--records", path).stdout
    assert objects("--records", "--raw", path)[10]["key"] == "\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("folder", "type_name", "key"),
    [
        ("__consumer_offsets-0", "OffsetCommit", {"group": "readers", "topic": "plain", "partition": 0}),
        ("__transaction_state-0", "TransactionLog", {"transactional_id": "t2"}),
        ("__cluster_metadata-0", "TOPIC_RECORD", None),
    ],
)
def test_internal_topics_are_decoded(folder: str, type_name: str, key: dict[str, Any] | None) -> None:
    rows = [row for row in objects("--records", GOLDEN / "store" / folder) if row.get("type") == type_name]
    assert rows
    assert rows[0].get("key") == key
    assert isinstance(rows[0]["value"], dict)
    raw = objects("--records", "--raw", GOLDEN / "store" / folder)
    assert not any("type" in row for row in raw)


def test_a_metadata_snapshot() -> None:
    controls = [row.get("control") for row in objects("--records", GOLDEN / "store" / "bootstrap.checkpoint")]
    assert controls[0] == "SNAPSHOT_HEADER"
    assert controls[-1] == "SNAPSHOT_FOOTER"


SMALL_FILES: list[tuple[str, Callable[[], bytes], dict[str, Any], str]] = [
    (
        "00000000000000000100.index",
        lambda: encode_offset_index([OffsetIndexEntry(150, 4200)], 100),
        {"kind": "offset_index_entry", "offset": 150, "position": 4200},
        "150 4200",
    ),
    (
        "00000000000000000100.timeindex",
        lambda: encode_time_index([TimeIndexEntry(T0, 150)], 100),
        {"kind": "time_index_entry", "timestamp": T0, "offset": 150},
        "2023-11-14T22:13:20.000Z 150",
    ),
    (
        "00000000000000000100.txnindex",
        lambda: encode_transaction_index(
            [AbortedTransaction(producer_id=4, first_offset=110, last_offset=120, last_stable_offset=121)]
        ),
        {
            "kind": "aborted_transaction",
            "producer_id": 4,
            "first_offset": 110,
            "last_offset": 120,
            "last_stable_offset": 121,
        },
        "4 110 120 121",
    ),
    (
        "00000000000000000100.snapshot.deleted",
        lambda: encode_producer_snapshot(
            [
                ProducerEntry(
                    producer_id=7,
                    producer_epoch=3,
                    last_sequence=4,
                    last_offset=8,
                    offset_delta=2,
                    timestamp_ms=T0,
                    coordinator_epoch=9,
                    transaction_first_offset=6,
                )
            ]
        ),
        {
            "kind": "producer",
            "producer_id": 7,
            "producer_epoch": 3,
            "coordinator_epoch": 9,
            "transaction_first_offset": 6,
            "last_timestamp": T0,
            "first_sequence": 2,
            "last_sequence": 4,
            "last_offset": 8,
            "offset_delta": 2,
        },
        "7 3 9 6 2023-11-14T22:13:20.000Z 2 4 8 2",
    ),
    (
        "replication-offset-checkpoint",
        lambda: encode_offset_checkpoint([PartitionOffset("orders", 1, 42)]),
        {"kind": "checkpoint_entry", "topic": "orders", "partition": 1, "offset": 42},
        "orders 1 42",
    ),
    (
        "leader-epoch-checkpoint",
        lambda: encode_leader_epoch_checkpoint([EpochStart(5, 1000)]),
        {"kind": "leader_epoch", "epoch": 5, "start_offset": 1000},
        "5 1000",
    ),
    (
        "partition.metadata",
        lambda: encode_partition_metadata("kbHEQbtORkGagHr8-qLv1w"),
        {"kind": "partition_metadata", "topic_id": "kbHEQbtORkGagHr8-qLv1w"},
        "kbHEQbtORkGagHr8-qLv1w",
    ),
    (
        "meta.properties",
        lambda: b"#\n#date\ncluster.id=abc\nnode.id=1\nversion=1\n",
        {"kind": "meta_properties", "version": 1, "cluster_id": "abc", "node_id": 1, "directory_id": None},
        "1 abc 1 -",
    ),
    ("quorum-state", lambda: b'{"leaderId":1}', {"kind": "state", "content": {"leaderId": 1}}, '{"leaderId": 1}'),
]


@pytest.mark.parametrize(("name", "content", "expected", "line"), SMALL_FILES, ids=[file[0] for file in SMALL_FILES])
def test_small_files(
    tmp_path: Path, name: str, content: Callable[[], bytes], expected: dict[str, Any], line: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content())
    assert objects(path) == [{"file": str(path), **expected}]
    assert " ".join(dump(path).stdout.splitlines()[2].split()) == line
    path.write_bytes(b"")
    if not name.endswith((".snapshot.deleted", "metadata", "properties", "state")):
        assert dump(path).stdout.endswith("(no entries)\n")


def test_an_untrimmed_index(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(encode_offset_index([OffsetIndexEntry(5, 70)], 0) + bytes(800))
    entry, note = objects(path)
    assert entry["offset"] == 5
    assert note["zero_bytes"] == 800


def test_index_entries_are_selected_too(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.timeindex"
    path.write_bytes(encode_time_index([TimeIndexEntry(T0 + i, i) for i in range(1, 20)], 0))
    assert [row["offset"] for row in objects("--offsets", "5:8", path)] == [5, 6, 7]
    assert [row["offset"] for row in objects("--since", T0 + 18, path)] == [18, 19]
    assert [row["offset"] for row in objects("--limit", 2, path)] == [1, 2]


def test_a_whole_log_directory_of_kafka() -> None:
    rows = objects(GOLDEN / "store")
    kinds = {row.get("kind") for row in rows}
    assert {
        "batch",
        "offset_index_entry",
        "time_index_entry",
        "aborted_transaction",
        "producer",
        "checkpoint_entry",
        "leader_epoch",
        "partition_metadata",
        "meta_properties",
    } <= kinds
    assert not any("error" in row for row in rows)


def test_export_with_filters(log: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    text = dump("--to", target, "--key", "k3", "--offsets", ":50", log).stdout
    table = pq.read_table(target)
    assert table.column("offset").to_pylist() == list(range(3, 50, 7))
    assert set(table.column("topic").to_pylist()) == {"orders"}
    assert set(table.column("partition").to_pylist()) == {3}
    assert f"{target}: 7 records written" in text


def test_export_leaves_control_records_out(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    dump("--to", target, "--quiet", GOLDEN / "store" / "txn-0")
    controls = sum("control" in row for row in objects("--records", GOLDEN / "store" / "txn-0"))
    everything = len(objects("--records", GOLDEN / "store" / "txn-0"))
    assert controls > 0
    assert (
        dump("--to", tmp_path / "b.csv", "--json", GOLDEN / "store" / "txn-0").stdout.count(str(everything - controls))
        == 1
    )


def test_quiet_shows_only_the_lines(log: Path) -> None:
    assert len(dump("--quiet", log).stdout.splitlines()) == 10
    assert len(dump("--quiet", "--records", log).stdout.splitlines()) == 100


def test_names_cannot_move_the_cursor(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2Jname.log"
    path.write_bytes(plain_log(1))
    assert "\x1b" not in dump(path).stdout
    assert "\\x1b[2Jname.log" in dump(path).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--offsets", "9:3"],
        ["--since", "soon"],
        ["--since", "2000", "--until", "1000"],
        ["--key", "a", "--key-hex", "61"],
        ["--key-hex", "6"],
        ["--records", "--summary"],
        ["--verify", "--summary"],
        ["--verify", "--offsets", "1:2"],
        ["--summary", "--limit", "3"],
        ["--to", "out.txt"],
        ["--limit", "-1"],
        ["--max-decompressed-bytes", "lots"],
        ["--unknown"],
    ],
)
def test_wrong_usage(log: Path, arguments: list[str]) -> None:
    result = dump(*arguments, log, code=2)
    assert "Error" in result.stderr
    assert result.stdout == ""


def test_the_command_line_knows_what_can_be_exported() -> None:
    assert EXPORT_EXTENSIONS == EXTENSIONS


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout.split()[0]) == (0, "duralog")


def test_every_option_and_field_is_documented(log: Path) -> None:
    text = (DOCS / "dump.md").read_text(encoding="utf-8")
    help_text = dump("--help").stdout
    options = {word.strip("│ ,") for word in help_text.split() if word.startswith("--")} - {"--help", "--verify:"}
    assert len(options) > 15
    assert [option for option in sorted(options) if f"`{option}" not in text] == []
    fields = {*objects(log)[0], *objects("--summary", log)[0]} - {"topic", "partition"}
    fields.update(name for _, _, expected, _ in SMALL_FILES for name in expected)
    assert [name for name in sorted(fields) if f"`{name}`" not in text] == []
