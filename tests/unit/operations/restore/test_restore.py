"""Topics of a cluster's directories in a new one: records, configs, groups and transactions, and what stops it."""

from __future__ import annotations

import json
import os
import shutil
from random import Random

import pytest

import duralog
from duralog import Record
from duralog.broker.transactions.state import Transaction
from duralog.broker.transactions.transaction_log import encode
from duralog.errors import InvalidConfig, StorageError, StoreLocked, UnknownTopic
from duralog.format.checkpoints import EpochStart
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.java_hash import coordinator_partition
from duralog.format.topic_partition import TopicPartition
from duralog.operations.groups.stored_groups import StoreGroups, groups_of_store
from duralog.operations.restore import restore as restoring
from duralog.operations.restore.new_directory import NewDirectory
from duralog.operations.restore.report import RestoreRequest
from duralog.operations.restore.restore import restore
from duralog.operations.verify import VerifyRequest, verify
from duralog.storage.log.isolation import Isolation
from duralog.storage.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism
from tests.support.cluster.made import (
    TOPIC,
    cut,
    damage,
    flip,
    logs,
    three_nodes,
    write_high_watermark,
    write_log,
)
from tests.support.cluster.plain_log import PlainBatch, plain_batches
from tests.support.commands import run


def restored(paths, target, **options):
    return restore(RestoreRequest(paths=[str(path) for path in paths], target=str(target), **options))


def batches(directory, topic=TOPIC, partition=0) -> list[PlainBatch]:
    return plain_batches(directory / f"{topic}-{partition}")


@pytest.fixture
def nodes(tmp_path):
    return three_nodes(tmp_path)


def test_batches_segments_epochs_and_configs_are_those_of_the_source(tmp_path):
    source = write_log(tmp_path / "source", config={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    report = restored([source], tmp_path / "new")
    (found,) = report.partitions
    assert report.is_made
    assert not report.lost
    assert (found.contents.records, found.contents.first_offset, found.contents.last_offset) == (60, 0, 59)
    assert batches(tmp_path / "new") == batches(source)
    assert [path.name for path in logs(tmp_path / "new")] == [path.name for path in logs(source)]
    checkpoint = f"{TOPIC}-0/leader-epoch-checkpoint"
    assert (tmp_path / "new" / checkpoint).read_bytes() == (source / checkpoint).read_bytes()
    with duralog.open(source, read_only=True) as old, duralog.open(tmp_path / "new") as new:
        assert new.topic_id(TOPIC) == old.topic_id(TOPIC)
        assert new.cluster_id != old.cluster_id
        assert new.topic_overrides(TOPIC) == {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
        # Above all epochs that a client may have seen.
        topic = new.find_topic(TOPIC)
        assert topic is not None
        assert topic.leader_epoch(0) == 4
        log = new.partition(TOPIC, 0)
        assert log.append([Record(key=b"k", value=b"next")]).base_offset == 60
        assert log.leader_epochs.entries[-1] == EpochStart(4, 60)
    assert verify(VerifyRequest(path=str(tmp_path / "new"))).is_sound
    assert not (tmp_path / ".new.incomplete").exists()


def test_only_what_consumers_were_served_unless_asked_for(nodes, tmp_path):
    for node in nodes:
        write_high_watermark(node, 33)
    (found,) = restored(nodes, tmp_path / "served").partitions
    assert (found.end_offset, found.contents.records) == (33, 33)
    assert batches(tmp_path / "served") == batches(nodes[0])[:11]
    (found,) = restored(nodes, tmp_path / "all", to_end=True).partitions
    assert (found.end_offset, found.contents.records) == (60, 60)


def test_the_start_of_the_log_may_lie_within_a_batch(tmp_path):
    source = write_log(tmp_path / "source")
    with duralog.open(source) as store:
        store.partition(TOPIC, 0).delete_records(before_offset=19)
        store.apply_retention()
    (found,) = restored([source], tmp_path / "new").partitions
    assert (found.start_offset, found.contents.records, found.contents.first_offset) == (19, 41, 19)
    with duralog.open(tmp_path / "new") as store:
        assert store.partition(TOPIC, 0).start_offset == 19
    assert batches(tmp_path / "new") == [batch for batch in batches(source) if batch.last_offset >= 19]


def test_a_log_without_records_keeps_its_place(tmp_path):
    source = write_log(tmp_path / "source")
    with duralog.open(source) as store:
        store.partition(TOPIC, 0).delete_records(before_offset=-1)
        store.apply_retention()
    (found,) = restored([source], tmp_path / "new").partitions
    assert (found.end_offset, found.contents.records, found.contents.first_offset) == (60, 0, None)
    with duralog.open(tmp_path / "new") as store:
        log = store.partition(TOPIC, 0)
        assert (log.start_offset, log.end_offset) == (60, 60)


@pytest.mark.parametrize("seed", range(6))
def test_damage_in_some_copies_is_not_in_the_new_one(nodes, tmp_path, seed):
    """Against the batches of an undamaged copy, by a decoder that shares nothing with the one that restores."""
    rng = Random(seed)
    whole = batches(nodes[2])
    for node in nodes[:2]:
        for path in rng.sample(logs(node), rng.randint(1, 3)):
            damage(rng, path)
    report = restored(nodes, tmp_path / "new")
    assert report.is_made
    assert batches(tmp_path / "new") == whole
    (found,) = report.partitions
    expected = restored(nodes[2:], tmp_path / "other").partitions[0]
    assert found.contents == expected.contents


@pytest.mark.parametrize("seed", range(4))
def test_random_logs_are_restored_as_they_are(tmp_path, seed):
    """Codecs, headers, tombstones, transactions, compaction and deleted records."""
    rng = Random(seed)
    source = tmp_path / "source"
    config = {"cleanup.policy": "compact", "internal.segment.bytes": 1 << 14, "min.cleanable.dirty.ratio": 0}
    with duralog.open(source) as store:
        store.create_topic("users", partitions=2, config=config)
        for number in range(2):
            _fill(rng, store.partition("users", number))
        if seed % 2:
            store.compact("users", 0)
        if seed % 3 == 0:
            log = store.partition("users", 1)
            log.delete_records(before_offset=rng.randrange(log.end_offset))
    report = restored([source], tmp_path / "new")
    assert report.is_made
    assert not report.lost
    with duralog.open(source, read_only=True) as old, duralog.open(tmp_path / "new", read_only=True) as new:
        for number, found in enumerate(report.partitions):
            start = old.partition("users", number).start_offset
            expected = [batch for batch in batches(source, "users", number) if batch.last_offset >= start]
            assert batches(tmp_path / "new", "users", number) == expected
            records = [record for batch in expected for record in batch.records if record.offset >= start]
            assert found.contents.records == len(records)
            one, other = (each.partition("users", number) for each in (old, new))
            assert (one.start_offset, one.end_offset) == (other.start_offset, other.end_offset)
            assert one.last_stable_offset == other.last_stable_offset
            for isolation in Isolation:
                assert list(one.read(start, isolation=isolation.value)) == list(
                    other.read(start, isolation=isolation.value)
                )


def _fill(rng, log):
    open_ones: dict[int, int] = {}
    for _ in range(rng.randint(20, 60)):
        kind = rng.random()
        records = [
            Record(
                key=b"k%d" % rng.randrange(20),
                value=rng.choice([None, rng.randbytes(rng.randrange(400))]),
                headers=rng.choice([[], [("h", b"x" * rng.randrange(9)), ("n", None)]]),
                timestamp_ms=1_700_000_000_000 + rng.randrange(10**6),
            )
            for _ in range(rng.randint(1, 8))
        ]
        if kind < 0.6:
            log.append(records, codec=rng.choice([None, "gzip", "snappy", "lz4", "zstd"]))
        elif kind < 0.7 and open_ones:
            log.end_transaction(rng.choice([*open_ones]), 0, commit=rng.random() < 0.5)
        else:
            producer = rng.randrange(3)
            sequence = open_ones.get(producer, 0)
            log.append(records, producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True)
            open_ones[producer] = sequence + len(records)
    for producer in open_ones:
        log.end_transaction(producer, 0, commit=True)


def test_what_no_copy_has_stops_the_restore_unless_it_is_accepted(nodes, tmp_path):
    for node in nodes:
        flip(logs(node)[1], 300)
    report = restored(nodes, tmp_path / "new")
    assert not report.is_made
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / ".new.incomplete").exists()
    ((partition, lost),) = report.lost
    assert (str(partition), lost.first_offset, lost.last_offset) == ("orders-0", 18, 20)
    assert "00000000000000000015.log" in lost.reason
    report = restored(nodes, tmp_path / "new", accept_loss=True)
    assert report.is_made
    assert [(each.first_offset, each.last_offset) for _, each in report.lost] == [(18, 20)]
    assert len(batches(tmp_path / "new")) == 19


LOSSES = {
    "a hole": (lambda node: logs(node)[1].unlink(), (15, 29)),
    "the start": (lambda node: logs(node)[0].unlink(), (0, 14)),
    "the end": (lambda node: logs(node)[3].unlink(), (45, 59)),
    "half of the end": (lambda node: cut(logs(node)[3], 300), (48, 59)),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_missing_files_are_a_loss(nodes, tmp_path, kind):
    change, expected = LOSSES[kind]
    for node in nodes:
        change(node)
    report = restored(nodes, tmp_path / "new")
    assert not report.is_made
    first, last = report.lost[0][1].first_offset, report.lost[-1][1].last_offset
    assert (first, last) == expected
    report = restored(nodes, tmp_path / "new", accept_loss=True)
    assert report.is_made
    assert report.records == 60 - (last - first + 1)


def test_a_partition_without_a_copy_is_a_loss(tmp_path):
    source = tmp_path / "source"
    with duralog.open(source) as store:
        store.create_topic("orders", partitions=3)
        store.partition("orders", 0).append([Record(value=b"a")])
    shutil.rmtree(source / "orders-2")
    report = restored([source], tmp_path / "new", dry_run=True)
    ((partition, lost),) = report.lost
    assert (partition, lost.reason) == (TopicPartition("orders", 2), "no directory has a copy")
    assert restored([source], tmp_path / "new", accept_loss=True).is_made
    with duralog.open(tmp_path / "new") as store:
        assert store.partitions("orders") == [0, 1, 2]


# Groups


def test_groups_continue_where_they_were(tmp_path):
    source = tmp_path / "source"
    with duralog.open(source, config={"offsets.topic.num.partitions": 4}) as store:
        for topic in ("orders", "payments", "other"):
            store.create_topic(topic, partitions=2)
            for number in range(2):
                store.partition(topic, number).append([Record(value=b"v%d" % each) for each in range(9)])
        groups = StoreGroups(str(source), store, evicts=False)
        groups.set_offsets("billing", {("orders", 0): 5, ("orders", 1): 7, ("other", 0): 1})
        groups.set_offsets("audit", {("payments", 1): 9, ("payments", 0): 99})
        groups.set_offsets("else", {("other", 1): 2})
    report = restored([source], tmp_path / "new", topics=["orders", "pay*"])
    assert [topic.name for topic in report.topics] == ["orders", "payments"]
    assert {group.name: dict(group.offsets) for group in report.groups} == {
        "billing": {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 7},
        "audit": {TopicPartition("payments", 0): 99, TopicPartition("payments", 1): 9},
    }
    (note,) = report.notes
    assert note.place == "payments-0"
    assert "committed offset 99" in note.text
    with duralog.open(tmp_path / "new") as store:
        assert store.topics() == ["__consumer_offsets", "orders", "payments"]
        assert store.partition_count("__consumer_offsets") == 4
        found = {view.group: [each.committed for each in view.offsets] for view in groups_of_store(store)}
        assert found == {"audit": [99, 9], "billing": [5, 7]}


def test_groups_are_not_dropped_if_it_is_unknown_how_many_partitions_they_were_in(tmp_path):
    """Without the metadata and without the last partition, groups hash to other partitions than those they are in."""
    source = tmp_path / "source"
    with duralog.open(source, config={"offsets.topic.num.partitions": 4}) as store:
        store.create_topic("orders", partitions=1)
        store.partition("orders", 0).append([Record(value=b"v")] * 9)
        groups = StoreGroups(str(source), store, evicts=False)
        for number in range(8):
            groups.set_offsets(f"g{number}", {("orders", 0): number})
    shutil.rmtree(source / "__cluster_metadata-0")
    every = restored([source], tmp_path / "all")
    assert {group.name for group in every.groups} == {f"g{number}" for number in range(8)}
    last = {f"g{number}" for number in range(8) if coordinator_partition(f"g{number}", 4) == 3}
    assert last
    shutil.rmtree(source / "__consumer_offsets-3")
    report = restored([source], tmp_path / "new")
    assert not report.is_made
    assert [note.place for note in report.notes if "more than the 3 partitions" in note.text] == ["__consumer_offsets"]
    report = restored([source], tmp_path / "new", accept_loss=True)
    assert {group.name for group in report.groups} == {group.name for group in every.groups} - last


def test_a_damaged_offsets_topic_is_a_loss(tmp_path):
    source = tmp_path / "source"
    with duralog.open(source, config={"offsets.topic.num.partitions": 1}) as store:
        store.create_topic("orders", partitions=1)
        StoreGroups(str(source), store, evicts=False).set_offsets("billing", {("orders", 0): 0})
    flip(logs(source, "__consumer_offsets")[0], 80)
    report = restored([source], tmp_path / "new")
    assert not report.is_made
    assert [note.place for note in report.notes] == ["__consumer_offsets-0"]
    report = restored([source], tmp_path / "new", accept_loss=True)
    assert report.is_made
    assert not report.groups


# Transactions


def _with_open_transaction(source, *, state=None, producer_epoch=3):
    with duralog.open(source) as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        log.append([Record(value=b"plain")])
        log.append([Record(value=b"open")], producer_id=7, producer_epoch=3, base_sequence=0, is_transactional=True)
        if state is not None:
            store.create_topic("__transaction_state", partitions=1)
            transaction = Transaction(
                producer_id=7,
                producer_epoch=producer_epoch,
                timeout_ms=1000,
                status=state,
                partitions=frozenset({TopicPartition(TOPIC, 0)}),
                updated_ms=1,
            )
            store.partition("__transaction_state", 0).append([encode("writer", transaction, 2)])
    return source


def committed(directory):
    with duralog.open(directory) as store:
        log = store.partition(TOPIC, 0)
        assert log.last_stable_offset == log.end_offset
        return [record.value for record in log.read(0, isolation="read_committed")]


@pytest.mark.parametrize(
    ("state", "producer_epoch", "commits"),
    [
        (None, 3, False),
        (TransactionStatus.ONGOING, 3, False),
        (TransactionStatus.PREPARE_ABORT, 3, False),
        (TransactionStatus.PREPARE_COMMIT, 3, True),
        (TransactionStatus.PREPARE_COMMIT, 4, True),
        (TransactionStatus.PREPARE_COMMIT, 9, False),
    ],
)
def test_an_open_transaction_ends_as_its_coordinator_decided(tmp_path, state, producer_epoch, commits):
    source = _with_open_transaction(tmp_path / "source", state=state, producer_epoch=producer_epoch)
    (found,) = restored([source], tmp_path / "new").partitions
    (ended,) = found.transactions
    assert (ended.producer_id, ended.first_offset, ended.marker_offset, ended.committed) == (7, 1, 2, commits)
    assert found.end_offset == 2
    assert committed(tmp_path / "new") == ([b"plain", b"open"] if commits else [b"plain"])


@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_a_marker_above_the_high_watermark_counts_if_the_transaction_is_whole(tmp_path, commits, has_more):
    source = _with_open_transaction(tmp_path / "source")
    with duralog.open(source) as store:
        log = store.partition(TOPIC, 0)
        if has_more:
            log.append([Record(value=b"more")], producer_id=7, producer_epoch=3, base_sequence=1, is_transactional=True)
        log.end_transaction(7, 3, commit=commits)
    # Of a stopped cluster, the ISR would prove that all of it was served.
    shutil.rmtree(source / "__cluster_metadata-0")
    write_high_watermark(source, 2)
    (found,) = restored([source], tmp_path / "new").partitions
    (ended,) = found.transactions
    assert ended.committed is (commits and not has_more)
    assert ("--to-end" in ended.reason) is has_more
    (found,) = restored([source], tmp_path / "all", to_end=True).partitions
    assert not found.transactions
    assert batches(tmp_path / "all") == batches(source)


def test_producer_ids_are_not_given_out_again(tmp_path):
    source = _with_open_transaction(tmp_path / "source")
    restored([source], tmp_path / "new")
    with duralog.open(tmp_path / "new") as store:
        assert store.take_producer_ids().start == 8


# Users, ACLs and quotas


@pytest.fixture
def guarded(tmp_path):
    source = tmp_path / "source"
    with duralog.open(source) as store:
        store.create_topic(TOPIC, partitions=1)
        store.partition(TOPIC, 0).append([Record(value=b"v")])
        ada = ("ada", ScramMechanism.SCRAM_SHA_512)
        store.alter_scram_credentials({ada: ScramCredential.of_password(ada[1], "secret")})
        store.create_acls(
            [
                Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:ada", "*", operation, Permission.ALLOW)
                for name in (TOPIC, "*")
                for operation in (Operation.READ, Operation.WRITE)
            ]
        )
        store.alter_client_quotas(
            {
                frozenset({("user", "ada"), ("client-id", None)}): {
                    "producer_byte_rate": 1e6,
                    "request_percentage": 9.5,
                },
                frozenset({("user", None)}): {"consumer_byte_rate": 2e6},
            }
        )
    return source


def access(directory):
    with duralog.open(directory) as store:
        return dict(store.scram_credentials), set(store.acls), dict(store.client_quotas)


def test_users_acls_and_quotas_come_if_they_are_asked_for(guarded, tmp_path):
    expected = access(guarded)
    assert [len(each) for each in expected] == [1, 4, 2]
    preview = restored([guarded], tmp_path / "new", with_access=True, dry_run=True)
    report = restored([guarded], tmp_path / "new", with_access=True)
    assert access(tmp_path / "new") == expected
    assert report.to_dict() | {"users": 1, "acls": 4, "quotas": 2} == report.to_dict()
    assert preview.access == report.access
    assert not report.notes
    assert "stored_key" not in repr(report)


def test_without_being_asked_for_they_stay_behind_with_a_note(guarded, tmp_path):
    report = restored([guarded], tmp_path / "new")
    assert access(tmp_path / "new") == ({}, set(), {})
    (note,) = report.notes
    assert "1 user, 4 ACLs and 2 quotas of the old cluster are not restored: --with-access" in note.text


def test_the_command_restores_access(guarded, tmp_path):
    result = run("cluster", "restore", str(guarded), "--to", str(tmp_path / "new"), "--with-access")
    assert "1 user, 4 ACLs and 2 quotas" in result.stdout
    assert len(access(tmp_path / "new")[1]) == 4


def test_access_needs_the_metadata(nodes, tmp_path):
    with pytest.raises(StorageError, match="no directory has the cluster metadata, so users, ACLs and quotas"):
        restored(nodes, tmp_path / "new", with_access=True)


def test_access_that_is_not_on_disk_is_noticed(guarded, tmp_path, monkeypatch):
    monkeypatch.setattr(restoring, "write_access", lambda *_: None)
    with pytest.raises(StorageError, match="the users, ACLs or quotas are not what was read"):
        restored([guarded], tmp_path / "new", with_access=True)
    assert not (tmp_path / "new").exists()


# The directory


def test_without_metadata_nothing_is_deleted_later(nodes, tmp_path):
    report = restored(nodes, tmp_path / "new")
    assert report.topics[0].configs == {"retention.ms": "-1"}
    assert "configs are not known" in report.notes[0].text


def test_what_retention_will_delete_is_said(tmp_path):
    source = tmp_path / "source"
    with duralog.open(source) as store:
        store.create_topic(TOPIC, partitions=1)
        store.partition(TOPIC, 0).append([Record(value=b"old", timestamp_ms=1_000_000)])
    report = restored([source], tmp_path / "new")
    (note,) = report.notes
    assert "retention.ms=-1" in note.text


def test_a_place_that_is_taken_is_refused(nodes, tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").write_text("mine")
    with pytest.raises(InvalidConfig, match="is not empty"):
        restored(nodes, taken)
    with pytest.raises(InvalidConfig, match="not a directory"):
        restored(nodes, taken / "file")
    with pytest.raises(InvalidConfig, match="which is read"):
        restored(nodes, nodes[0] / "new")
    with pytest.raises(UnknownTopic, match="there is no topic pay"):
        restored(nodes, tmp_path / "new", topics=["pay*"])
    with pytest.raises(InvalidConfig, match="cannot be restored"):
        restored(nodes, tmp_path / "new", topics=["__consumer_offsets"])
    (taken / "file").unlink()
    assert restored(nodes, taken).is_made


@pytest.mark.parametrize("step", ["copy_partition", "write_groups", "bytes_of", "check_groups"])
def test_an_interrupted_restore_leaves_nothing_that_looks_complete(nodes, tmp_path, monkeypatch, step):
    class Killed(BaseException):
        pass

    def stop(*_arguments, **_options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(restoring, step, stop)
        # The machine is dead.
        patch.setattr(NewDirectory, "discard", lambda target: target._frame.held_lock.release())
        with pytest.raises(Killed):
            restored(nodes, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert (tmp_path / ".new.incomplete").exists()
    assert restored(nodes, tmp_path / "new").is_made
    assert not (tmp_path / ".new.incomplete").exists()


@pytest.mark.parametrize("position", [-1, 14, 15])
def test_a_disk_that_returns_other_bytes_is_noticed(nodes, tmp_path, monkeypatch, position):
    """Also in the leader epoch, which no checksum covers."""
    prove = restoring._Restore._prove

    def damaged(self, *arguments):
        path = logs(tmp_path / ".new.incomplete" / "new")[2]
        flip(path, path.stat().st_size - 1 if position < 0 else position)
        return prove(self, *arguments)

    monkeypatch.setattr(restoring._Restore, "_prove", damaged)
    with pytest.raises(duralog.DuralogError):
        restored(nodes, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_in_the_way_is_left_alone(nodes, tmp_path):
    (tmp_path / ".new.incomplete").mkdir()
    (tmp_path / ".new.incomplete" / "mine").write_text("keep")
    with pytest.raises(InvalidConfig, match="was not made by a restore"):
        restored(nodes, tmp_path / "new")
    assert (tmp_path / ".new.incomplete" / "mine").exists()


def test_what_an_interrupted_restore_left_is_removed_also_if_the_removal_was_interrupted(nodes, tmp_path):
    frame = tmp_path / ".new.incomplete"
    (frame / "new" / "orders-0").mkdir(parents=True)
    (frame / "duralog-restore").touch()
    assert restored(nodes, tmp_path / "new").is_made
    assert not frame.exists()
    frame.mkdir()
    (frame / ".lock").touch()
    assert restored(nodes, tmp_path / "new2").is_made
    (frame / "duralog-restore").touch()
    with pytest.raises(InvalidConfig, match="is not empty, and complete: the restore that made it was stopped"):
        restored(nodes, tmp_path / "new")


def test_two_restores_to_one_place_are_not_mixed(nodes, tmp_path, monkeypatch):
    prove = restoring._Restore._prove

    def begin_another(self, *arguments):
        with pytest.raises(StoreLocked, match="is in use by"):
            restored(nodes, tmp_path / "new")
        return prove(self, *arguments)

    monkeypatch.setattr(restoring._Restore, "_prove", begin_another)
    assert restored(nodes, tmp_path / "new").is_made


def test_directories_of_one_node_are_restored_together(tmp_path):
    disks = [str(tmp_path / "disk1"), str(tmp_path / "disk2")]
    with duralog.open(disks) as store:
        store.create_topic("orders", partitions=4)
        for number in range(4):
            store.partition("orders", number).append([Record(value=b"%d" % number)])
    report = restored(disks, tmp_path / "new")
    assert [found.contents.records for found in report.partitions] == [1] * 4
    with duralog.open(tmp_path / "new") as store:
        assert [next(store.partition("orders", n).read(0)).value for n in range(4)] == [b"0", b"1", b"2", b"3"]


# The command


def test_the_command(nodes, tmp_path):
    new = str(tmp_path / "new")
    paths = [str(node) for node in nodes]
    result = run("cluster", "restore", *paths, "--to", new, "--dry-run")
    assert "would be restored; nothing was changed" in result.stdout
    assert not os.path.exists(new)
    flip(logs(nodes[0])[1], 300)
    result = run("cluster", "restore", *paths, "--to", new, "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert {line["kind"] for line in lines} == {"topic", "partition", "note", "summary"}
    (partition,) = [line for line in lines if line["kind"] == "partition"]
    assert partition["is_proven"]
    assert partition["healed"]
    assert lines[-1]["is_made"]
    result = run("cluster", "restore", *paths, "--to", new, code=1)
    assert "is not empty" in result.stderr


def test_the_command_shows_what_is_lost(nodes, tmp_path):
    for node in nodes:
        flip(logs(node)[1], 300)
    arguments = ["cluster", "restore", *map(str, nodes), "--to", str(tmp_path / "new")]
    result = run(*arguments, code=1)
    assert "orders-0: offsets 18 to 20: lost" in result.stdout
    assert "--accept-loss restores the rest" in result.stdout
    result = run(*arguments, "--accept-loss")
    assert "except for what was lost" in result.stdout
