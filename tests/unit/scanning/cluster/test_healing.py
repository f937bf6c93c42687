"""Reading through damage: another copy has what the chosen one has not."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import pytest

import duralog
from duralog import Record
from duralog.errors import CorruptRecord, OffsetOutOfRange
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.healing import read_through_damage
from duralog.scanning.cluster.sound_slices import sound_slices
from duralog.scanning.cluster.sources import HealedRange, plan_cluster
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import CorruptBytes
from tests.support.cluster.made import (
    TOPIC,
    copy_directory,
    cut,
    damage,
    flip,
    logs,
    three_nodes,
    write_high_watermark,
    write_meta,
)
from tests.support.cluster.recorded import scanned

BATCH = 300
"""Some byte within the second batch of a segment."""


@pytest.fixture
def nodes(tmp_path):
    return three_nodes(tmp_path)


@pytest.fixture
def expected(nodes):
    return scanned(str(nodes[2]), TOPIC)


def chosen(nodes):
    """The chosen directory first, then the others."""
    with open_cluster(nodes) as cluster:
        first = cluster.copies(TopicPartition(TOPIC, 0)).chosen.url
    return sorted(nodes, key=lambda node: str(node) != first)


def healed_scan(nodes, **options):
    healed: list[HealedRange] = []
    return scanned(nodes, TOPIC, on_healed=healed.append, **options), healed


def test_nothing_is_healed_where_nothing_is_damaged(nodes, expected):
    assert healed_scan(nodes) == (expected, [])
    assert len(expected) == 60


def test_a_corrupt_batch_comes_from_another_copy(nodes, expected):
    first, second, _ = chosen(nodes)
    flip(logs(first)[1], BATCH)
    found, (healed,) = healed_scan(nodes)
    assert found == expected
    assert (healed.topic, healed.partition) == (TOPIC, 0)
    assert 15 <= healed.first_offset <= healed.last_offset < 30
    assert healed.path == str(logs(first)[1])
    assert healed.source == str(second)
    assert "checksum" in healed.reason
    assert str(second) in str(healed)


def test_damage_in_two_copies_at_different_places_costs_nothing(nodes, expected):
    first, second, third = chosen(nodes)
    flip(logs(first)[1], BATCH)
    flip(logs(second)[1], BATCH)
    flip(logs(third)[2], BATCH)
    found, healed = healed_scan(nodes)
    assert found == expected
    assert {each.source for each in healed} == {str(third)}


@pytest.mark.parametrize("size", [0, 1, 200, 700])
def test_a_segment_that_is_cut_comes_from_another_copy(nodes, expected, size):
    first, _, _ = chosen(nodes)
    cut(logs(first)[1], size)
    found, healed = healed_scan(nodes)
    assert found == expected
    assert healed
    assert all(15 <= each.first_offset <= each.last_offset < 30 for each in healed)


def test_a_missing_segment_comes_from_another_copy(nodes, expected):
    first, _, _ = chosen(nodes)
    logs(first)[1].unlink()
    found, (healed,) = healed_scan(nodes)
    assert found == expected
    assert (healed.first_offset, healed.last_offset) == (15, 29)


def test_a_copy_that_ends_too_early_is_continued(nodes, expected):
    first, _, _ = chosen(nodes)
    for path in logs(first)[2:]:
        path.unlink()
    with open_cluster(nodes) as cluster:
        problems = cluster.copies(TopicPartition(TOPIC, 0)).problems
        assert "ends at offset 30, before its own high watermark of 60" in str(problems[0])
    assert healed_scan(nodes)[0] == expected


def test_reading_fails_only_where_no_copy_is_good(nodes, expected):
    for node in nodes:
        flip(logs(node)[1], BATCH)
    healed: list[HealedRange] = []
    reader = duralog.scan(nodes, topics=[TOPIC], columns=["offset"], on_healed=healed.append)
    found: list[int] = []
    with pytest.raises(CorruptRecord, match="cannot be read from any copy") as raised:
        found.extend(offset for batch in reader for offset in batch.column("offset").to_pylist())
    # Which copies there are, how to see what they lack, and what can be done.
    for part in (*map(str, nodes), "duralog cluster verify", "duralog cluster heal", "--accept-loss", "PERMISSIVE"):
        assert part in str(raised.value)
    assert found == [offset for offset, _, _ in expected][: len(found)]
    assert 15 <= len(found) < 30


ENDS = {
    "the start": (lambda node: logs(node)[0].unlink(), (0, 14)),
    "the end": (lambda node: cut(logs(node)[3], 300), (48, 59)),
}


@pytest.mark.parametrize("kind", ENDS)
def test_offsets_that_no_copy_has_are_logged(nodes, expected, kind, caplog):
    change, (first, last) = ENDS[kind]
    for node in nodes:
        change(node)
    found, _ = healed_scan(nodes)
    assert found == [record for record in expected if not first <= record[0] <= last]
    (text,) = [record.message for record in caplog.records if "no copy has them" in record.message]
    assert f"orders-0: consumers were served offsets {first} to {last}" in text
    assert "duralog cluster verify" in text


def test_an_unreadable_directory_does_not_stop_the_others(nodes, expected):
    first, _, _ = chosen(nodes)
    for path in logs(first):
        path.unlink()
        path.mkdir()
    assert healed_scan(nodes)[0] == expected


def test_reading_ends_at_the_high_watermark(nodes, expected):
    for node in nodes:
        write_high_watermark(node, 33)
    assert healed_scan(nodes)[0] == expected[:33]
    assert healed_scan(nodes, to_end=True)[0] == expected


def test_a_batch_of_another_epoch_heals_nothing(nodes, tmp_path):
    """A copy whose checkpoint does not show that it has diverged: its batches do."""
    first, second, third = chosen(nodes)
    flip(logs(first)[1], BATCH)
    for node in (second, third):
        data = bytearray(logs(node)[1].read_bytes())
        position = 0
        while position < len(data):
            data[position + 12 : position + 16] = (77).to_bytes(4, "big")  # Not covered by the checksum.
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        logs(node)[1].write_bytes(data)
    with pytest.raises(CorruptRecord):
        healed_scan([first, second, third])


@pytest.mark.parametrize("block", range(4))
def test_any_damage_is_read_through_if_a_copy_of_each_segment_is_good(tmp_path, block):
    nodes = three_nodes(tmp_path)
    expected = scanned(str(nodes[0]), TOPIC)
    whole = {path: path.read_bytes() for node in nodes for path in logs(node)}
    ranges = 0
    for seed in range(block, 40, 4):
        rng = Random(seed)
        for path, data in whole.items():
            path.write_bytes(data)
        for number in range(4):
            for node in rng.sample(nodes, rng.randint(0, 2)):
                path = sorted(each for each in whole if each.parent.parent == node)[number]
                damage(rng, path)
        found, healed = healed_scan(nodes)
        assert found == expected, f"seed {seed}"
        ranges += len(healed)
    assert ranges > 5


def test_any_columns_and_times_are_read_through_damage(nodes, expected):
    first, _, _ = chosen(nodes)
    flip(logs(first)[1], BATCH)
    values = duralog.scan(nodes, topics=[TOPIC], columns=["value"]).read_all()
    assert values.column_names == ["value"]
    assert values["value"].to_pylist() == [value for _, _, value in expected]
    timed = duralog.scan(nodes, topics=[TOPIC], not_before_ms=1).read_all()
    assert timed.column_names == duralog.scan(str(nodes[1]), topics=[TOPIC]).schema.names
    assert timed.num_rows == 60


def test_what_a_cleaner_removed_is_not_damage(tmp_path):
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1, config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
        log = store.partition(TOPIC, 0)
        for number in range(20):
            log.append([duralog.Record(key=b"k%d" % (number % 3), value=b"%d" % number)])
            if number % 5 == 4:
                log.roll()
    plain = copy_directory(tmp_path / "source", tmp_path / "broker-1", 1)
    with duralog.open(tmp_path / "source") as store:
        store.compact(TOPIC, 0)
    cleaned = copy_directory(tmp_path / "source", tmp_path / "broker-2", 2)
    expected = scanned(str(cleaned), TOPIC)
    assert len(expected) < 20
    # The cleaned copy has one more record, so it is chosen.
    with duralog.open(cleaned) as store:
        store.partition(TOPIC, 0).append([duralog.Record(key=b"last", value=b"")])
    write_meta(cleaned, 2)
    found, healed = healed_scan([plain, cleaned])
    assert [offset for offset, _, _ in found] == [*(offset for offset, _, _ in expected), 20]
    assert not healed


def test_the_sources_travel_to_other_processes(nodes):
    with open_cluster(nodes) as cluster:
        planned = plan_cluster(cluster, cluster.all_partitions(), to_end=True)
    again = pickle.loads(pickle.dumps(planned))
    assert again == planned
    healed: list[HealedRange] = []
    (task,) = again.tasks
    flip(Path(task[1].path), BATCH)
    batches = list(read_through_damage(task, columns=["offset"], on_healed=healed.append))
    assert sum(batch.num_rows for batch in batches) == 60
    assert len(healed) == 1


@pytest.mark.parametrize("lost", [[(0, 1)], [(0, 1), (1, 2)]])
def test_an_aborted_transaction_stays_hidden_if_its_marker_is_in_a_segment_that_is_gone(tmp_path, lost):
    """Also if the copy that has the marker has lost the records, which come from a third one."""
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        log.append([duralog.Record(value=b"before")])
        log.append(
            [duralog.Record(value=b"aborted")],
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        log.roll()
        log.end_transaction(1, 0, commit=False)
        log.roll()
        log.append([duralog.Record(value=b"after")])
        log.roll()
        log.append([duralog.Record(value=b"last")])
        end = log.end_offset
    nodes = [copy_directory(tmp_path / "source", tmp_path / f"broker-{node}", node) for node in (1, 2, 3)]
    for node in nodes:
        write_high_watermark(node, end)
    paths = chosen(nodes)
    for number, segment in lost:
        gone = logs(paths[number])[segment]
        for path in gone.parent.glob(f"{gone.stem}.*"):
            path.unlink()
    found, healed = healed_scan(nodes, isolation="read_committed")
    assert [value for _, _, value in found] == [b"before", b"after", b"last"]
    assert healed


@pytest.mark.parametrize("seed", [7, 8, 18, 28, 30])
def test_random_transactions_are_read_through_damage_or_not_at_all(tmp_path, seed):
    """With one of the seeds, no copy knows all transactions that are open: then reading fails."""
    rng = Random(seed)
    _write_transactions(tmp_path / "source", rng)
    whole = logs(tmp_path / "source")
    nodes = [copy_directory(tmp_path / "source", tmp_path / f"broker-{node}", node) for node in (1, 2, 3)]
    with duralog.open(tmp_path / "source") as store:
        end = store.partition(TOPIC, 0).end_offset
    for node in nodes:
        write_high_watermark(node, end)
    expected = {level: scanned(nodes, TOPIC, isolation=level) for level in ("read_uncommitted", "read_committed")}
    for path in whole:
        for node in rng.sample(nodes, rng.randint(0, 2)):
            copied = node / path.parent.name / path.name
            if rng.random() < 0.5:
                for each in copied.parent.glob(f"{copied.stem}.*"):
                    each.unlink()
            elif copied.stat().st_size:
                damage(rng, copied)
    for level, records in expected.items():
        try:
            assert healed_scan(nodes, isolation=level)[0] == records
        except OffsetOutOfRange:
            assert (seed, level) == (18, "read_committed")


def _write_transactions(folder, rng):
    with duralog.open(folder) as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        sequences = dict.fromkeys(range(3), 0)
        running: set[int] = set()
        for number in range(40):
            kind = rng.random()
            producer = rng.randrange(3)
            if kind < 0.15:
                log.roll()
            elif kind < 0.3 and running:
                producer = rng.choice(sorted(running))
                log.end_transaction(producer, 0, commit=rng.random() < 0.5)
                running.discard(producer)
            elif kind < 0.75:
                log.append(
                    [duralog.Record(value=b"%d-%d" % (producer, number))],
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences[producer],
                    is_transactional=True,
                )
                sequences[producer] += 1
                running.add(producer)
            else:
                log.append([duralog.Record(value=b"plain-%d" % number)])


def test_a_committed_transaction_stays_visible_if_its_marker_is_damaged(tmp_path):
    """Its records are not those of the producer's next transaction, which was aborted."""
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        for sequence in range(2):
            if sequence:
                log.roll()
            log.append(
                [duralog.Record(value=b"%d" % sequence)],
                producer_id=1,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            marker = logs(tmp_path / "source")[0].stat().st_size
            log.end_transaction(1, 0, commit=sequence == 0)
            if not sequence:
                commit_marker = marker
    nodes = [copy_directory(tmp_path / "source", tmp_path / f"broker-{node}", node) for node in (1, 2)]
    for node in nodes:
        write_high_watermark(node, 4)
    flip(logs(chosen(nodes)[0])[0], commit_marker + 45)  # The producer id.
    found, healed = healed_scan(nodes, isolation="read_committed")
    assert [value for _, _, value in found] == [b"0"]
    assert healed


def test_the_first_offset_is_not_lost_with_the_only_batch_of_a_segment(tmp_path):
    """The batch is at a wrong offset, which the checksum does not cover."""
    nodes = three_nodes(tmp_path, segments=2, batches=1)
    whole = scanned(str(nodes[2]), TOPIC)
    flip(logs(chosen(nodes)[0])[0], 6)
    found, healed = healed_scan(nodes)
    assert found == whole
    assert [(each.first_offset, each.last_offset) for each in healed] == [(0, 2)]


def test_a_transaction_whose_marker_is_above_the_high_watermark_is_open(tmp_path):
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        log.append([duralog.Record(value=b"before")])
        for sequence in range(2):
            log.append(
                [duralog.Record(value=b"inside")],
                producer_id=7,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        log.append([duralog.Record(value=b"after")])
        log.end_transaction(7, 0, commit=True)
    node = copy_directory(tmp_path / "source", tmp_path / "broker-1", 1)

    def read(**options):
        return [offset for offset, _, _ in scanned([node], TOPIC, **options)]

    write_high_watermark(node, 5)
    assert read(isolation="read_committed") == [0, 1, 2, 3]
    write_high_watermark(node, 4)
    assert read(isolation="read_committed") == [0]
    assert read() == [0, 1, 2, 3]
    assert read(isolation="read_committed", to_end=True) == [0, 1, 2, 3]


def test_readers_that_cannot_start_again_get_sound_slices(nodes, expected):
    """Every offset once, each from a copy that has it; nothing is replaced where nothing is damaged."""
    first, second, third = chosen(nodes)
    with open_cluster(nodes) as cluster:
        slices = plan_cluster(cluster, cluster.all_partitions(), to_end=True).slices
    healed: list[HealedRange] = []
    assert list(sound_slices(slices, healed.append)) == list(slices)
    flip(logs(first)[1], BATCH)
    flip(logs(second)[1], BATCH)
    flip(logs(first)[3], BATCH)
    sound = list(sound_slices(slices, healed.append))
    assert {each.source for each in healed} == {str(second), str(third)}
    assert [part.is_from_other_copy for part in sound].count(True) == 2
    assert [part.start_offset for part in sound][1:] == [part.end_offset for part in sound][:-1]
    offsets = [offset for batch in read_slices(sound, columns=["offset"]) for offset in batch["offset"].to_pylist()]
    assert offsets == [offset for offset, _, _ in expected]


def test_what_no_copy_has_is_reported_once_and_passed_over(nodes, expected):
    for node in nodes:
        flip(logs(node)[1], BATCH)
    with open_cluster(nodes) as cluster:
        (task,) = plan_cluster(cluster, cluster.all_partitions()).tasks
    damaged: list[CorruptBytes] = []
    healed: list[HealedRange] = []
    batches = read_through_damage(task, columns=["offset"], on_healed=healed.append, on_corrupt=damaged.append)
    offsets = [offset for batch in batches for offset in batch["offset"].to_pylist()]
    (found,) = damaged
    gone = range(found.first_offset, found.last_offset + 1)
    assert offsets == [offset for offset, _, _ in expected if offset not in gone]
    assert not healed


@pytest.mark.parametrize("seed", range(12))
def test_committed_records_are_those_of_a_whole_copy_if_one_lost_ends_of_transactions(tmp_path, seed):
    """The chosen copy has lost segments in the middle, and its producer snapshots: transactions seem to be open."""
    rng = Random(seed)
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        sequences: dict[int, int] = {}
        opened: set[int] = set()
        for number in range(rng.randint(20, 60)):
            kind = rng.random()
            producer = rng.randrange(4)
            if kind < 0.3:
                log.append([Record(value=b"plain %d" % number)])
            elif kind < 0.55 and opened:
                ended = rng.choice(sorted(opened))
                opened.remove(ended)
                log.end_transaction(ended, 0, commit=rng.random() < 0.5)
            else:
                sequence = sequences.get(producer, 0)
                value = b"%d of %d" % (number, producer)
                log.append(
                    [Record(value=value)],
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequence,
                    is_transactional=True,
                )
                sequences[producer] = sequence + 1
                opened.add(producer)
            if rng.random() < 0.25:
                log.roll()
        for producer in opened:
            if rng.random() < 0.7:
                log.end_transaction(producer, 0, commit=True)
        log.append([Record(value=b"last")])
        end = log.end_offset
    copies = [copy_directory(tmp_path / "source", tmp_path / f"broker-{node}", node) for node in (1, 2, 3)]
    for node in copies:
        write_high_watermark(node, end)
    expected = scanned([str(node) for node in copies], TOPIC, isolation="read_committed")
    assert expected == scanned(str(copies[2]), TOPIC, isolation="read_committed")
    paths = logs(copies[0])
    for path in rng.sample(paths[1:-1], min(rng.randint(1, 2), len(paths) - 2)):
        path.unlink()
    for path in (copies[0] / f"{TOPIC}-0").glob("*.snapshot"):
        path.unlink()
    assert scanned([str(node) for node in copies], TOPIC, isolation="read_committed") == expected
