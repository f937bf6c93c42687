"""Copies that are damaged, short, missing or of another history get what the others have, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

import duralog
from duralog import Record
from duralog.errors import StoreLocked
from duralog.format.batches import scan
from duralog.format.checkpoints import PartitionOffset, decode_offset_checkpoint, encode_offset_checkpoint
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.heal import HealRequest, heal_cluster
from duralog.operations.cluster.verify import verify_cluster
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

FOLDER = f"{TOPIC}-0"


@pytest.fixture
def nodes(tmp_path):
    return three_nodes(tmp_path)


def heal(nodes, **options):
    return heal_cluster(HealRequest(paths=[str(node) for node in nodes], **options))


def files(node):
    """The files of the partition, without the quarantine."""
    return {path.name: path.read_bytes() for path in (node / FOLDER).iterdir() if path.is_file()}


def quarantined(node):
    return sorted((node / FOLDER / "duralog-quarantine").glob("*.bytes"))


def findings(nodes):
    report = verify_cluster(ClusterRequest(paths=[str(node) for node in nodes]))
    return [str(each) for found in report.partitions for each in (*found.findings, *found.notes)]


def checkpoint(node, name):
    return {entry.topic: entry.offset for entry in decode_offset_checkpoint((node / name).read_bytes())}


def of_all(change, *arguments):
    def change_all(paths):
        for path in paths:
            change(path, *arguments)

    return change_all


DAMAGES = {
    "a flipped bit": lambda paths: flip(paths[1], 300),
    "flipped bits in every segment": of_all(flip, 100),
    "a broken length": lambda paths: flip(paths[1], 8),
    "a file that is cut": lambda paths: cut(paths[1], 300),
    "an empty file": lambda paths: cut(paths[1], 0),
    "a deleted segment": lambda paths: paths[1].unlink(),
    "deleted segments": lambda paths: [path.unlink() for path in paths[1:3]],
    "the first segment deleted": lambda paths: paths[0].unlink(),
    "the end deleted": lambda paths: [path.unlink() for path in paths[2:]],
    "the end cut": lambda paths: cut(paths[3], 300),
    "garbage at the end": lambda paths: paths[3].write_bytes(paths[3].read_bytes() + b"\x07" * 99),
    "zeros at the end of a segment": lambda paths: paths[1].write_bytes(paths[1].read_bytes() + bytes(99)),
    "all files emptied": of_all(cut, 0),
}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("node", [0, 1])
def test_a_damaged_copy_becomes_the_same_files_as_the_others(nodes, kind, node):
    whole = files(nodes[2])
    before = {path.name: path.read_bytes() for path in logs(nodes[node])}
    DAMAGES[kind](logs(nodes[node]))
    damaged = files(nodes[node])
    preview = heal(nodes, dry_run=True)
    assert files(nodes[node]) == damaged
    assert not quarantined(nodes[node])
    report = heal(nodes)
    assert [copy.plan for copy in report.healed] == [copy.plan for copy in preview.healed]
    (copy,) = report.healed
    assert copy.plan.findings
    assert report.is_well
    assert files(nodes[node]) == whole
    assert sum(path.stat().st_size for path in quarantined(nodes[node])) == copy.plan.quarantined_bytes
    assert findings(nodes) == []
    again = heal(nodes)
    assert not again.healed
    assert sum(each.sound for each in again.partitions) == 3
    assert {path.name: path.read_bytes() for path in logs(nodes[node])} == before


def test_checkpoints_agree_with_the_healed_log(nodes):
    for path in logs(nodes[1])[2:]:
        path.unlink()
    write_high_watermark(nodes[1], 30)
    assert heal(nodes).is_well
    assert checkpoint(nodes[1], HIGH_WATERMARK_CHECKPOINT)[TOPIC] == 60
    assert checkpoint(nodes[1], RECOVERY_POINT_CHECKPOINT)[TOPIC] == 60


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("position", [0, 3, 6, 7, 12, 15])
def test_a_wrong_offset_or_epoch_is_not_copied(nodes, number, position):
    """The checksum covers neither. In the last batch of the log, nothing after it contradicts a later offset."""
    whole = [files(node) for node in nodes]
    path = logs(nodes[number])[-1]
    *_, last = scan(path.read_bytes())
    flip(path, last.position + position)
    report = heal(nodes)
    assert report.is_well
    assert [copy.plan.location.url for copy in report.healed] == [str(nodes[number])]
    assert [files(node) for node in nodes] == whole


def test_copies_heal_each_other(nodes):
    """Each has damage where another one is good, also in files that are replaced meanwhile."""
    whole = files(nodes[2])
    for number, node in enumerate(nodes):
        flip(logs(node)[number], 300)
        flip(logs(node)[number + 1], 100)
    report = heal(nodes)
    assert len(report.healed) == 3
    assert [files(node) for node in nodes] == [whole] * 3


def test_a_copy_in_two_pieces_is_filled_up_to_the_end_of_the_log(nodes):
    """A follower fetches to the end of its leader's log, also what was not acknowledged."""
    for node in nodes:
        write_high_watermark(node, 33)
    for path in logs(nodes[2])[2:]:
        path.unlink()
    assert heal(nodes).is_well
    assert files(nodes[2]) == files(nodes[0])
    assert checkpoint(nodes[2], HIGH_WATERMARK_CHECKPOINT)[TOPIC] == 33


def test_damage_that_no_copy_is_without_is_reported_as_lost(nodes):
    for node in nodes:
        flip(logs(node)[1], 300)
    report = heal(nodes)
    assert not report.is_well
    (partition,) = report.partitions
    assert partition.lost == ((18, 20),)
    assert [offset for offset, _, _ in scanned(str(nodes[0]), TOPIC)] == [*range(18), *range(21, 60)]
    assert len(quarantined(nodes[0])) == 1
    # The rest is the same everywhere, and stays lost.
    assert not heal(nodes).healed


LOSSES = {
    "a segment": (lambda node: logs(node)[1].unlink(), (15, 29), "has a gap there"),
    "the start": (lambda node: logs(node)[0].unlink(), (0, 14), "starts at offset 15"),
    "the end": (lambda node: cut(logs(node)[3], 300), (48, 59), "ends at offset 48"),
    "everything": (lambda node: of_all(cut, 0)(logs(node)), (0, 59), "has a gap there"),
    "a batch": (lambda node: flip(logs(node)[1], 300), (18, 20), "is damaged there"),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_what_no_copy_has_is_reported_with_what_each_copy_lacks(nodes, kind):
    change, (first, last), why = LOSSES[kind]
    for node in nodes:
        change(node)
    (compared,) = verify_cluster(ClusterRequest(paths=[str(node) for node in nodes])).partitions
    (lost,) = [found for found in compared.findings if found.finding == "lost"]
    assert (lost.first_offset, lost.last_offset) == (first, last)
    assert all(f"{node} {why}" in lost.text for node in nodes)
    assert "--accept-loss" in lost.text
    for options in ({"dry_run": True}, {}):
        report = heal(nodes, **options)
        assert not report.is_well
        assert report.partitions[0].lost == ((first, last),)


def diverge(node, *, at, records=9, epoch=1, watermark=None):
    """Another leader of an older epoch has written other records from this offset on."""
    with duralog.open(node) as store:
        log = store.partition(TOPIC, 0)
        log.truncate_to(at)
        log.become_leader(epoch)
        for number in range(records):
            log.append([Record(key=b"other", value=b"%d" % number)])
            if number % 4 == 3:
                log.roll()
    (node / ".kafka_cleanshutdown").unlink()
    write_meta(node, 3)
    write_high_watermark(node, at if watermark is None else watermark)


def test_a_copy_that_has_diverged_is_truncated_and_filled(nodes):
    whole = files(nodes[0])
    diverge(nodes[2], at=30)
    other = logs(nodes[2])[-1].read_bytes()
    report = heal(nodes)
    (copy,) = report.healed
    assert copy.plan.truncated is not None
    assert copy.plan.truncated.offset == 30
    assert copy.plan.orphans is not None
    assert (copy.plan.orphans.first_offset, copy.plan.orphans.last_offset) == (30, 38)
    assert copy.plan.orphans.acknowledged == 0
    assert files(nodes[2]) == whole
    assert any(path.read_bytes() == other for path in quarantined(nodes[2]))
    assert findings(nodes) == []
    # They are not part of the log: a repair does not put them back.
    from duralog.operations.repair import RepairRequest, repair

    repair(RepairRequest(path=str(nodes[2]), restore=True))
    assert {path.name: path.read_bytes() for path in logs(nodes[2])} == {
        name: data for name, data in whole.items() if name.endswith(".log")
    }


def test_acknowledged_records_that_exist_nowhere_else_stay_unless_asked(nodes):
    diverge(nodes[2], at=30, watermark=34)
    diverged = files(nodes[2])
    flip(logs(nodes[1])[0], 300)
    report = heal(nodes)
    assert not report.is_well
    assert [copy.plan.location.url for copy in report.healed] == [str(nodes[1])]
    (refused,) = [copy for copy in report.partitions[0].copies if copy.failure]
    assert "only this copy has 4 batches below its high watermark" in refused.failure
    assert "--truncate-acknowledged" in refused.failure
    assert files(nodes[2]) == diverged
    assert heal(nodes, truncate_acknowledged=True).is_well
    assert files(nodes[2]) == files(nodes[0])
    assert sum(path.stat().st_size for path in quarantined(nodes[2])) > 0


def test_the_folder_of_another_partition_is_not_a_copy(nodes, tmp_path):
    """Right checksums and epochs, other records."""
    with duralog.open(tmp_path / "other") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        for epoch in range(4):
            log.become_leader(epoch)
            for number in range(5):
                log.append(Record(value=b"%d-%d" % (epoch, number)) for _ in range(3))
            log.roll()
    for name in (FOLDER,):
        shutil.rmtree(nodes[1] / name)
        shutil.copytree(tmp_path / "other" / name, nodes[1] / name)
        shutil.copy(nodes[0] / name / "partition.metadata", nodes[1] / name)
    write_high_watermark(nodes[1], 0)
    assert findings(nodes)
    assert heal(nodes).is_well
    logs_now = {path.name: path.read_bytes() for path in logs(nodes[1])}
    assert {name: data for name, data in logs_now.items() if data} == {
        path.name: path.read_bytes() for path in logs(nodes[0])
    }
    assert scanned(str(nodes[1]), TOPIC) == scanned(str(nodes[0]), TOPIC)
    assert findings(nodes) == []


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_source_in_which_a_crash_has_left_a_finished_segment_gives_that_one(nodes, monkeypatch, is_writable):
    """A `.swap` file takes the place of the damaged file at the next start. Until then, both are there."""
    whole = {path.name: path.read_bytes() for path in logs(nodes[0])}
    old = logs(nodes[0])[1]
    old.with_name(f"{old.name}.swap").write_bytes(old.read_bytes())
    flip(old, 300)
    flip(old, 100)
    for node in nodes[1:]:
        logs(node)[1].unlink()
    heal(nodes, dry_run=True)
    assert len(list(old.parent.glob("*.swap"))) == 1
    monkeypatch.setattr(
        "duralog.operations.cluster.locked_directories.os.access", lambda path, _: is_writable or path != str(nodes[0])
    )
    assert heal(nodes).is_well
    assert len(list(old.parent.glob("*.swap"))) == (0 if is_writable else 1)
    for node in nodes if is_writable else nodes[1:]:
        assert {path.name: path.read_bytes() for path in logs(node)} == whole


def test_a_directory_in_use_is_refused(nodes):
    flip(logs(nodes[1])[1], 300)
    with duralog.open(nodes[0]), pytest.raises(StoreLocked, match="is in use by"):
        heal(nodes)
    with duralog.open(nodes[0]), pytest.raises(StoreLocked):
        heal(nodes, dry_run=True)
    assert heal(nodes).is_well


def test_a_clean_directory_stays_clean_and_an_unclean_one_unclean(nodes):
    marker = ".kafka_cleanshutdown"
    (nodes[0] / marker).write_bytes(b'{"version":0,"brokerEpoch":17}')
    (nodes[1] / marker).write_bytes(b'{"version":0,"brokerEpoch":23}')
    flip(logs(nodes[1])[1], 300)
    flip(logs(nodes[2])[2], 300)
    assert heal(nodes).is_well
    assert b"17" in (nodes[0] / marker).read_bytes()
    assert b"23" in (nodes[1] / marker).read_bytes()
    assert not (nodes[2] / marker).exists()


def test_a_healed_directory_opens_and_takes_records(nodes):
    cut(logs(nodes[1])[3], 100)
    logs(nodes[1])[1].unlink()
    assert heal(nodes).is_well
    with duralog.open(nodes[1]) as store:
        log = store.partition(TOPIC, 0)
        assert (log.start_offset, log.end_offset) == (0, 60)
        log.append([Record(value=b"more")])
        assert len(list(log.read(0))) == 61


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_any_damage_is_healed_if_a_copy_of_each_segment_is_good(tmp_path, block):
    nodes = three_nodes(tmp_path)
    whole = files(nodes[0])
    healed = 0
    for seed in range(block, 60, 4):
        rng = Random(seed)
        for number in range(4):
            for node in rng.sample(nodes, rng.randint(0, 2)):
                path = node / FOLDER / f"{number * 15:020}.log"
                damage(rng, path)
        report = heal(nodes)
        assert report.is_well, f"seed {seed}"
        for node in nodes:
            found = files(node)
            assert [name for name in {*found, *whole} if found.get(name) != whole.get(name)] == [], f"seed {seed}"
        healed += len(report.healed)
    assert healed > 10


# Compacted topics.


@pytest.fixture
def compacted(tmp_path):
    """Two copies that were cleaned, one to the end and one half-way, and one that was not."""
    with duralog.open(tmp_path / "source", {"log.cleaner.enable": False}) as store:
        store.create_topic(TOPIC, partitions=1, config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
        log = store.partition(TOPIC, 0)

        def write(first, last):
            for number in range(first, last):
                value = None if number == 7 else b"%d " % number * 20
                log.append([Record(key=b"k%d" % (number % 5), value=value)])
                if number % 8 == 7:
                    log.roll()

        write(0, 24)
        log.flush()
        store.close()
        copy_directory(tmp_path / "source", tmp_path / "half", 1)
    with duralog.open(tmp_path / "source", {"log.cleaner.enable": False}) as store:
        log = store.partition(TOPIC, 0)
        write(24, 44)
    plain = copy_directory(tmp_path / "source", tmp_path / "broker-1", 1)
    with duralog.open(tmp_path / "source", {"log.cleaner.enable": False}) as store:
        store.compact(TOPIC, 0)
    cleaned = copy_directory(tmp_path / "source", tmp_path / "broker-2", 2)
    again = copy_directory(tmp_path / "source", tmp_path / "broker-3", 3)
    shutil.rmtree(tmp_path / "half")
    for node in (plain, cleaned, again):
        write_high_watermark(node, 44)
    return [plain, cleaned, again]


def newest(node):
    """What a table of the topic shows."""
    found = {}
    for _, key, value in scanned(str(node), TOPIC):
        found[key] = value
    return {key: value for key, value in found.items() if value is not None}


def test_copies_that_were_cleaned_at_different_times_are_not_damaged(compacted):
    before = [files(node) for node in compacted]
    assert before[0] != before[1]
    report = heal(compacted)
    assert not report.healed
    assert report.is_well
    assert [files(node) for node in compacted] == before


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_compacted_copy_gets_all_that_was_cleaned_from_one_copy(compacted, number):
    expected = newest(compacted[0])
    path = next(path for path in logs(compacted[number]) if path.stat().st_size > 200)
    flip(path, 90)
    report = heal(compacted)
    (copy,) = report.healed
    assert copy.plan.quarantined_bytes
    assert report.is_well
    assert findings(compacted) == []
    assert newest(compacted[number]) == expected
    with duralog.open(compacted[number]) as store:
        log = store.partition(TOPIC, 0)
        offsets = [record.offset for record in log.read(log.start_offset)]
        assert offsets == sorted(set(offsets))
        assert log.end_offset == 44


def test_a_healed_compacted_copy_is_as_compacted_as_the_copy_that_it_comes_from(compacted):
    cleaned = checkpoint(compacted[2], CLEANER_OFFSET_CHECKPOINT)[TOPIC]
    assert cleaned > 0
    path = next(path for path in logs(compacted[1]) if path.stat().st_size > 200)
    flip(path, 90)
    assert heal(compacted[1:]).is_well
    assert checkpoint(compacted[1], CLEANER_OFFSET_CHECKPOINT)[TOPIC] == cleaned
    assert not heal(compacted[1:]).healed


def test_a_healed_compacted_copy_counts_as_not_compacted_if_the_other_was_not(compacted):
    assert checkpoint(compacted[1], CLEANER_OFFSET_CHECKPOINT)[TOPIC] > 0
    path = next(path for path in logs(compacted[1]) if path.stat().st_size > 200)
    flip(path, 90)
    assert heal(compacted[:2]).is_well
    assert checkpoint(compacted[1], CLEANER_OFFSET_CHECKPOINT)[TOPIC] == int(path.stem)


def test_a_compacted_copy_made_of_several_counts_as_not_compacted_from_the_change_on(compacted):
    for node in compacted:
        flip(next(path for path in logs(node) if path.stat().st_size > 200), 90)
    heal(compacted)
    for node in compacted[1:]:
        assert checkpoint(node, CLEANER_OFFSET_CHECKPOINT)[TOPIC] == 0


def test_segments_that_a_cleaner_has_emptied_stay(compacted):
    """No batch is left in them. A heal of something else does not touch what is sound."""
    for node in compacted[1:]:
        first = logs(node)[0]
        batches = first.read_bytes()
        base_offset = next(iter(scan(batches))).base_offset
        assert base_offset > 0
        first.write_bytes(b"")
        first.with_name(f"{base_offset:020}.log").write_bytes(batches)
        for path in (node / FOLDER).glob("*index"):
            path.unlink()
    for path in logs(compacted[0])[4:]:
        path.unlink()
    before = [files(node) for node in compacted[1:]]
    report = heal(compacted)
    assert [copy.plan.location.url for copy in report.healed] == [str(compacted[0])]
    assert [files(node) for node in compacted[1:]] == before
    assert not heal(compacted).healed


def test_a_batch_far_from_its_offset_is_not_copied(tmp_path):
    """Its offset is in the range of another segment, and damage comes before it: the checksum covers no offset."""
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        for number in range(24):
            log.append([Record(key=b"key", value=b"%d" % number)])
            if number in (5, 11, 17):
                log.roll()
    nodes = [copy_directory(tmp_path / "source", tmp_path / f"broker-{node}", node) for node in (1, 2, 3)]
    for node in nodes:
        write_high_watermark(node, 24)
    whole = [files(node) for node in nodes]
    for path in logs(nodes[1])[2:]:
        path.unlink()
    path = logs(nodes[1])[1]
    first, second, *_ = scan(path.read_bytes())
    flip(path, first.position + 65)
    flip(path, second.position + 6)
    cut(path, second.position + second.size_bytes)
    report = heal(nodes)
    assert report.is_well
    assert [copy.plan.location.url for copy in report.healed] == [str(nodes[1])]
    assert [files(node) for node in nodes] == whole


def test_an_offset_that_no_segment_reaches_is_not_copied(nodes):
    """Only this copy has the batch."""
    for node in nodes[1:]:
        cut(logs(node)[3], [*scan(logs(node)[3].read_bytes())][-1].position)
    whole = files(nodes[1])
    for node in nodes:
        write_high_watermark(node, 57)
    *_, last = scan(logs(nodes[0])[3].read_bytes())
    flip(logs(nodes[0])[3], last.position + 2)
    heal(nodes)
    logs_now = {path.name: path.read_bytes() for path in logs(nodes[0])}
    assert logs_now == {name: data for name, data in whole.items() if name.endswith(".log")}
    assert {path.name: path.read_bytes() for path in logs(nodes[1])} == logs_now


def test_a_compacted_copy_that_was_fetched_late_does_not_know_all_epochs(tmp_path):
    """When it was fetched, no batch of the epoch was left. The other copy has one, and has not diverged."""
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1, config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
        log = store.partition(TOPIC, 0)
        for epoch in range(3):
            log.become_leader(epoch)
            for number in range(4):
                log.append([Record(key=b"k%d" % number, value=b"%d" % epoch)])
            log.roll()
        log.append([Record(key=b"last", value=b"value")])
    plain = copy_directory(tmp_path / "source", tmp_path / "broker-1", 1)
    with duralog.open(tmp_path / "source") as store:
        store.compact(TOPIC, 0)
    late = copy_directory(tmp_path / "source", tmp_path / "broker-2", 2)
    epochs = late / FOLDER / "leader-epoch-checkpoint"
    assert epochs.read_text() == "0\n3\n0 0\n1 4\n2 8\n"
    epochs.write_text("0\n2\n0 0\n2 8\n")
    for node in (plain, late):
        write_high_watermark(node, 13)
    # The one without the epoch counts.
    nodes = [late, plain]
    before = [files(node) for node in nodes]
    report = heal(nodes)
    assert report.is_well
    assert not report.healed
    assert [files(node) for node in nodes] == before


def test_a_compacted_copy_that_ends_early_is_continued(compacted):
    for path in logs(compacted[0])[3:]:
        path.unlink()
    report = heal(compacted)
    assert report.is_well
    assert newest(compacted[0]) == newest(compacted[1])
    assert findings(compacted) == []


def test_where_no_compacted_copy_is_sound_they_complete_each_other(compacted):
    expected = newest(compacted[0])
    for number, node in enumerate(compacted):
        path = [path for path in logs(node) if path.stat().st_size > 200][min(number, 1) * -1]
        flip(path, 90)
    heal(compacted)
    assert newest(compacted[0]) == expected


def test_replicas_of_other_partitions_keep_their_checkpoints(nodes):
    (nodes[1] / HIGH_WATERMARK_CHECKPOINT).write_bytes(
        encode_offset_checkpoint([PartitionOffset("other", 3, 7), PartitionOffset(TOPIC, 0, 60)])
    )
    flip(logs(nodes[1])[1], 300)
    assert heal(nodes).is_well
    assert checkpoint(nodes[1], HIGH_WATERMARK_CHECKPOINT) == {"other": 7, TOPIC: 60}


def test_transactions_and_producers_are_known_after_a_heal(tmp_path):
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        for number in range(6):
            log.append(
                [Record(value=b"%d" % number)],
                producer_id=number % 2,
                producer_epoch=0,
                base_sequence=number // 2,
                is_transactional=True,
            )
            log.end_transaction(number % 2, 0, commit=number % 3 > 0)
            log.roll()
    nodes = [copy_directory(tmp_path / "source", tmp_path / f"broker-{node}", node) for node in (1, 2)]
    whole = files(nodes[0])
    for path in logs(nodes[1])[1:3]:
        for each in path.parent.glob(f"{path.stem}.*"):
            each.unlink()
    assert heal(nodes).is_well
    assert files(nodes[1]) == whole
    committed = scanned(str(nodes[1]), TOPIC, isolation="read_committed")
    assert [value for _, _, value in committed] == [b"1", b"2", b"4", b"5"]


def test_directories_may_be_given_by_a_pattern_and_topics_chosen(nodes, tmp_path):
    flip(logs(nodes[1])[1], 300)
    from duralog.operations.chosen_partition import Choice

    report = heal_cluster(HealRequest(paths=[str(Path(tmp_path) / "broker-*")], choice=Choice([TOPIC], 0)))
    assert len(report.healed) == 1
