"""Reading slices: the asked-for columns, logs that change under the reader, damage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from duralog.columnar.pieces import read_pieces
from duralog.columnar.schema import RECORD_SCHEMA
from duralog.columnar.tables import to_table
from duralog.errors import CorruptRecord, OffsetOutOfRange, StorageError
from duralog.format.layout import BATCH_V2
from duralog.format.topic_partition import TopicPartition
from duralog.scanning import part_reading
from duralog.scanning.locations import open_store
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.planning import Plan, plan
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import CorruptBytes, DataLoss, Slice
from duralog.storage.log.isolation import Isolation
from duralog.storage.store import Store
from tests.support.spark.planned_log import ROLLED_AFTER, fill, offsets, open_for_writing, plan_all, read, record

ORDERS = TopicPartition("orders", 0)
END = 1000
BATCH = 10
SIZES = [1, 3000, 128 << 20]
ALL = list(range(END))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written")
    with open_for_writing(path) as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 0, END, batch=BATCH)
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "log"))


@pytest.fixture
def live(path: Path) -> Iterator[Store]:
    """The directory, open for writing."""
    with open_for_writing(path, **{"log.segment.delete.delay.ms": 0}) as store:
        yield store


def planned(path: Path, max_slice_bytes: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> Plan:
    with open_store(str(path)) as store:
        return plan_all(store, isolation, max_slice_bytes=max_slice_bytes)


# Columns


def test_all_columns_in_the_order_of_the_schema(written: Path) -> None:
    batches = list(read_slices(planned(written, 3000).slices))
    assert all(batch.schema == RECORD_SCHEMA and batch.num_rows for batch in batches)
    table = pa.Table.from_batches(batches)
    assert table.column("topic").to_pylist() == ["orders"] * END
    assert table.column("value").to_pylist() == [record(number).value for number in ALL]


def test_only_the_columns_that_are_asked_for(written: Path) -> None:
    table = read(planned(written, 3000).slices, columns=["timestamp", "offset"])
    assert table.column_names == ["offset", "timestamp"]
    assert offsets(table) == ALL


# A log that changes between planning and reading


@pytest.mark.parametrize("max_slice_bytes", SIZES)
def test_what_is_appended_later_is_not_read(live: Store, path: Path, max_slice_bytes: int) -> None:
    before = planned(path, max_slice_bytes)
    fill(live.partition("orders", 0), END, END + 500)
    assert offsets(read(before.slices)) == ALL
    assert offsets(read(planned(path, max_slice_bytes).slices)) == list(range(END + 500))


@pytest.mark.parametrize("max_slice_bytes", SIZES)
def test_a_roll_changes_nothing(live: Store, path: Path, max_slice_bytes: int) -> None:
    log = live.partition("orders", 0)
    fill(log, END, END + 50)
    before = planned(path, max_slice_bytes)
    log.roll()
    fill(log, END + 50, END + 100)
    assert offsets(read(before.slices)) == list(range(END + 50))


@pytest.mark.parametrize("max_slice_bytes", SIZES)
def test_what_retention_takes_is_data_loss(live: Store, path: Path, max_slice_bytes: int) -> None:
    before = planned(path, max_slice_bytes)
    live.partition("orders", 0).delete_segments([0, ROLLED_AFTER], "expired")
    with pytest.raises(OffsetOutOfRange, match=r"orders-0: offsets 0 to \d+ were asked for, .* from 400 to 1000"):
        read(before.slices)
    losses: list[DataLoss] = []
    assert offsets(read(before.slices, on_data_loss=losses.append)) == list(range(400, END))
    lost = [offset for loss in losses for offset in range(loss.asked_start, min(loss.asked_end, 400))]
    assert lost == list(range(400))


def test_a_slice_that_is_partly_gone_gives_the_rest(path: Path) -> None:
    [part] = planned(path, 128 << 20).slices[:1]
    with open_for_writing(path) as store:
        store.alter_topic_config("orders", {"cleanup.policy": "compact"})
        store.partition("orders", 0).delete_records(150)
        store.compact("orders", 0)
        kept = [record.offset for record in store.partition("orders", 0).read(150) if record.offset < ROLLED_AFTER]
    losses: list[DataLoss] = []
    assert offsets(read([part], on_data_loss=losses.append)) == kept
    assert [(loss.asked_start, loss.asked_end, loss.available_start) for loss in losses] == [(0, ROLLED_AFTER, 150)]


@pytest.mark.parametrize("max_slice_bytes", SIZES)
@pytest.mark.parametrize("read_before", [0, 1, 3])
def test_compaction_in_the_middle(live: Store, path: Path, max_slice_bytes: int, read_before: int) -> None:
    """Slices that were read before show the log before, the others the log after. Nothing comes twice."""
    live.alter_topic_config("orders", {"cleanup.policy": "compact"})
    before = planned(path, max_slice_bytes)
    tables = [read([part]) for part in before.slices[:read_before]]
    log = live.partition("orders", 0)
    live.compact("orders", 0)
    after = [record.offset for record in log.read(0)]
    assert len(after) < 300
    tables += [read([part]) for part in before.slices[read_before:]]
    found = offsets(pa.concat_tables(tables))
    assert found == sorted(set(found))
    turn = before.slices[read_before - 1].end_offset if read_before else 0
    assert found == [*range(turn), *(offset for offset in after if offset >= turn)]


def test_a_running_reader_continues_with_its_files(live: Store, path: Path) -> None:
    live.alter_topic_config("orders", {"cleanup.policy": "compact"})
    parts = planned(path, 128 << 20).slices
    reading = read_slices(parts)
    first = next(reading)
    live.compact("orders", 0)
    found = offsets(to_table(iter([first, *reading]), None))
    assert found[:ROLLED_AFTER] == ALL[:ROLLED_AFTER]
    assert found[ROLLED_AFTER:] == [record.offset for record in live.partition("orders", 0).read(ROLLED_AFTER)]


def test_a_file_that_is_cut_while_it_is_read_gives_nothing_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_reading, "read_pieces", partial(read_pieces, piece_bytes=2000))
    last = planned(path, 128 << 20).slices[-1]
    losses: list[DataLoss] = []
    reading = read_slices([last], on_data_loss=losses.append)
    found = [next(reading), next(reading)]
    os.truncate(last.path, os.path.getsize(last.path) - 1)
    assert offsets(to_table(iter([*found, *reading]), None)) == list(range(last.start_offset, END - BATCH))
    assert len(losses) == 1


def test_the_end_that_was_cut_off_is_data_loss(live: Store, path: Path) -> None:
    before = planned(path, 3000)
    live.partition("orders", 0).truncate_to(950)
    losses: list[DataLoss] = []
    assert offsets(read(before.slices, on_data_loss=losses.append)) == list(range(950))
    assert losses[0].available_end == 950


def test_a_deleted_topic_is_data_loss(live: Store, path: Path) -> None:
    before = planned(path, 128 << 20)
    live.delete_topic("orders")
    with pytest.raises(OffsetOutOfRange, match="orders-0: offsets 0 to 200 were asked for"):
        read(before.slices)
    losses: list[DataLoss] = []
    assert read(before.slices, on_data_loss=losses.append).num_rows == 0
    assert len(losses) == len(before.slices)


@pytest.mark.parametrize("max_slice_bytes", SIZES)
def test_a_topic_that_was_created_again_is_another_one(live: Store, path: Path, max_slice_bytes: int) -> None:
    """It has files of the same names and sizes, with the same offsets in them."""
    before = planned(path, max_slice_bytes)
    live.delete_topic("orders")
    live.create_topic("orders", 1)
    fill(live.partition("orders", 0), 0, 2 * END, batch=BATCH)
    losses: list[DataLoss] = []
    assert not list(read_slices(before.slices, on_data_loss=losses.append))
    assert [(loss.asked_start, loss.asked_end) for loss in losses] == [
        (found.start_offset, found.end_offset) for found in before.slices
    ]
    with pytest.raises(OffsetOutOfRange, match="but the topic was deleted and created again since"):
        list(read_slices(before.slices[-1:]))


def test_a_directory_that_is_gone_is_an_error(path: Path) -> None:
    before = planned(path, 3000)
    shutil.rmtree(path)
    with pytest.raises(StorageError, match="cannot list: No such file or directory"):
        read(before.slices)


def test_aborted_data_stays_hidden_in_a_log_that_was_compacted_meanwhile(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1, {"cleanup.policy": "compact"})
        log = store.partition("orders", 0)
        for number in range(20):
            log.append(
                [record(key) for key in range(number, number + 10)],
                producer_id=1,
                producer_epoch=0,
                base_sequence=number * 10,
                is_transactional=True,
            )
            log.end_transaction(1, 0, commit=number % 2 == 0)
            if number % 5 == 4:
                log.roll()
        before = planned(tmp_path, 700, Isolation.READ_COMMITTED)
        store.compact("orders", 0)
        assert offsets(read(before.slices)) == offsets(log.read_arrow(isolation="read_committed"))


# Indexes that are wrong


@pytest.mark.parametrize("max_slice_bytes", SIZES)
@pytest.mark.parametrize(("start", "end"), [(0, END), (330, 370), (399, 400)])
def test_an_index_that_leads_astray_costs_nothing_but_time(
    path: Path, max_slice_bytes: int, start: int, end: int
) -> None:
    for index in (path / "orders-0").glob("*.index"):
        data = bytearray(index.read_bytes())
        for at in range(7, len(data), 16):
            data[at] ^= 0x55
        index.write_bytes(data)
    with open_store(str(path)) as store:
        slices = plan(store, {ORDERS: OffsetRange(start, end)}, max_slice_bytes=max_slice_bytes).slices
    assert offsets(read(slices)) == list(range(start, end))


# Damage


def batch_at(path: Path, offset: int) -> tuple[Path, int, int]:
    """The file, the position and the size of the batch that starts with this offset."""
    log = path / "orders-0" / f"{offset // ROLLED_AFTER * ROLLED_AFTER:020}.log"
    with open_store(str(path)) as store:
        segment = store.partition("orders", 0).view.segments.floor(offset)
        assert segment is not None
        found = segment.find_batch(offset)
        assert found is not None
        return log, found.position, found.size


def flip(log: Path, position: int) -> None:
    data = bytearray(log.read_bytes())
    data[position] ^= 0x41
    log.write_bytes(data)


def read_to_the_first_error(slices: Iterable[Slice]) -> tuple[list[int], CorruptRecord | None]:
    found: list[int] = []
    try:
        for batch in read_slices(slices):
            found += batch.column("offset").to_pylist()
    except CorruptRecord as error:
        return found, error
    return found, None


def told_offsets(told: list[CorruptBytes]) -> list[int]:
    return [offset for found in told for offset in range(found.first_offset, found.last_offset + 1)]


@pytest.mark.parametrize("max_slice_bytes", SIZES)
@pytest.mark.parametrize("offset", [0, 200, 390, 990])
@pytest.mark.parametrize("field", ["crc", "last_offset_delta"])
def test_a_corrupt_batch_is_named_or_skipped(path: Path, offset: int, field: str, max_slice_bytes: int) -> None:
    log, position, size = batch_at(path, offset)
    slices = planned(path, max_slice_bytes).slices
    flip(log, position + getattr(BATCH_V2.at, field) + 1)
    if max_slice_bytes > 1:
        found, error = read_to_the_first_error(slices)
        assert found == list(range(offset))
        sentence = f"{log}: position {position}: wrong checksum; offsets {offset} to {offset + 9} of orders-0"
        assert str(error).startswith(sentence)
    told: list[CorruptBytes] = []
    assert offsets(read(slices, on_corrupt=told.append)) == [*range(offset), *range(offset + BATCH, END)]
    assert told_offsets(told) == list(range(offset, offset + BATCH))
    assert {(found.path, found.position, found.end_position) for found in told} == {
        (str(log), position, position + size)
    }
    assert f"{size} bytes, offsets {offset} to " in str(told[0])


@pytest.mark.parametrize("max_slice_bytes", [3000, 128 << 20])
@pytest.mark.parametrize("wrong", [505, 495, 40, 1_000_000, 2**40, -1])
def test_a_batch_with_a_wrong_offset_gives_no_record_another_offset(
    path: Path, wrong: int, max_slice_bytes: int
) -> None:
    """The one field that matters and that no checksum covers."""
    log, position, _ = batch_at(path, 500)
    slices = planned(path, max_slice_bytes).slices
    data = bytearray(log.read_bytes())
    data[position : position + 8] = wrong.to_bytes(8, signed=True)
    log.write_bytes(data)
    _, error = read_to_the_first_error(slices)
    assert "the offsets of a batch overlap those of the batch before or after it" in str(error)
    told: list[CorruptBytes] = []
    table = read(slices, on_corrupt=told.append)
    missing = sorted({*ALL} - {*offsets(table)})
    assert set(range(500, 510)) <= set(missing) <= set(range(490, 520))
    assert set(missing) - set(told_offsets(told)) <= {509}  # the end of a slice, to which the batch does not belong now
    for number, value in zip(offsets(table), table.column("value").to_pylist(), strict=True):
        assert value == record(number).value


@pytest.mark.parametrize("max_slice_bytes", SIZES)
@pytest.mark.parametrize("offset", [0, 200, 500, 990])
@pytest.mark.parametrize("byte", [0, 3], ids=["far too long", "a little too long"])
def test_after_a_broken_length_reading_continues_at_an_index_entry(
    path: Path, offset: int, byte: int, max_slice_bytes: int
) -> None:
    log, position, _ = batch_at(path, offset)
    slices = planned(path, max_slice_bytes).slices
    flip(log, position + BATCH_V2.at.length + byte)
    with pytest.raises(CorruptRecord, match=rf"{log}: position {position}: .*; offsets {offset} to \d+ of orders-0"):
        read(slices)
    told: list[CorruptBytes] = []
    found = offsets(read(slices, on_corrupt=told.append))
    lost = told_offsets(told)
    assert sorted(found + lost) == ALL
    assert lost == list(range(offset, offset + len(lost)))
    assert len(lost) <= 3 * BATCH
    assert {one.position for one in told} >= {position}


def test_without_an_index_the_rest_of_the_segment_is_reported(path: Path) -> None:
    log, position, _ = batch_at(path, 300)
    slices = planned(path, 128 << 20).slices
    flip(log, position + BATCH_V2.at.length)
    log.with_suffix(".index").unlink()
    told: list[CorruptBytes] = []
    found = offsets(read(slices, on_corrupt=told.append))
    assert found == [*range(300), *range(400, END)]
    [one] = told
    assert (one.position, one.end_position) == (position, log.stat().st_size)
    assert told_offsets(told) == list(range(300, 400))


@pytest.mark.parametrize("max_slice_bytes", SIZES)
def test_neighbours_are_reported_one_by_one(path: Path, max_slice_bytes: int) -> None:
    slices = planned(path, max_slice_bytes).slices
    places = [batch_at(path, offset) for offset in (300, 310, 320)]
    for log, position, _ in places:
        flip(log, position + BATCH_V2.at.last_offset_delta + 3)
    told: list[CorruptBytes] = []
    assert offsets(read(slices, on_corrupt=told.append)) == [*range(300), *range(330, END)]
    assert told_offsets(told) == list(range(300, 330))
    assert sorted({one.position for one in told}) == [position for _, position, _ in places]


def test_damage_before_the_range_is_ignored(path: Path) -> None:
    log, position, _ = batch_at(path, 310)
    flip(log, position + BATCH_V2.at.crc)
    with open_store(str(path)) as store:
        slices = plan(store, {ORDERS: OffsetRange(325, 380)}).slices
    assert slices[0].position <= position + 1000
    assert offsets(read(slices)) == list(range(325, 380))


def test_a_batch_that_damage_makes_look_like_a_marker_is_reported(path: Path) -> None:
    log, position, _ = batch_at(path, 300)
    data = bytearray(log.read_bytes())
    data[position + BATCH_V2.at.attributes + 1] |= 0x20
    log.write_bytes(data)
    with pytest.raises(CorruptRecord, match="offsets 300 to 309 of orders-0 cannot be read"):
        read(planned(path, 3000).slices)
