"""A log directory as a source: it agrees with the store and the commands, and survives errors."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import duralog
from duralog.command_line import app
from duralog.console.facts.overview import SourceKind
from duralog.console.facts.runs import RunState
from duralog.console.source import Busy, ChangesNotAllowed, UnknownGroup
from duralog.console.sources.directory import segment_scans
from duralog.console.sources.directory.compaction_runs import DirectoryCompaction
from duralog.console.sources.directory.source import DirectorySource
from duralog.console.sources.opening import open_source
from duralog.errors import DuralogError, InvalidConfig, StorageError, StoreLocked, UnknownTopic
from duralog.operations.verify import verify
from duralog.storage.store import Store
from tests.support.console.console_stores import COMMITTED, HOSTILE_GROUP, KEEP_EVERYTHING, ORDERS, ORDERS_A_SEGMENT
from tests.support.waiting import wait_until

NOW_MS = 1_800_000_000_000


@pytest.fixture
def sources() -> Iterator[Any]:
    """Opens sources that are closed in the end."""
    opened: list[DirectorySource] = []

    def open_one(path: Path, **options: Any) -> DirectorySource:
        opened.append(DirectorySource(str(path), **{"clock": lambda: NOW_MS, **options}))
        return opened[-1]

    yield open_one
    for source in opened:
        source.close()


def test_an_empty_directory(stores: Any, sources: Any) -> None:
    source = sources(stores["empty"])
    overview = source.overview()
    assert (overview.topics, overview.groups, overview.partitions, overview.size_bytes) == ((), (), 0, 0)
    assert (overview.notes, overview.is_online, overview.held_by) == ((), True, None)
    assert source.cleaner().rows == ()
    assert source.quarantine() == ()
    with pytest.raises(UnknownTopic, match="there is no topic orders"):
        source.topic("orders")
    for read in (source.partition, source.records, source.rehearsal, source.compact):
        with pytest.raises(UnknownTopic):
            read("orders", 0)
    with pytest.raises(UnknownGroup):
        source.group("nobody")


def test_records_older_than_the_default_retention_are_a_note(tmp_path: Path, sources: Any) -> None:
    day_ms = 86_400_000
    with Store(str(tmp_path / "data"), clock=lambda: NOW_MS) as store:
        configs: dict[str, dict[str, object]] = {
            "old": {},
            "older": {},
            "kept": {"retention.ms": -1},
            "keys": {"cleanup.policy": "compact"},
        }
        for topic, config in configs.items():
            store.create_topic(topic, 1, config)
            store.partition(topic, 0).append([duralog.Record(key=b"k", value=b"v", timestamp_ms=NOW_MS - 8 * day_ms)])
        store.create_topic("new", 1)
        store.partition("new", 0).append([duralog.Record(value=b"v", timestamp_ms=NOW_MS - 6 * day_ms)])
        size_bytes = 2 * store.partition("old", 0).size_bytes
    (note,) = sources(tmp_path / "data").overview().notes
    assert note.startswith(
        f"old and 1 more topic have records older than the default retention of 7 days, {size_bytes} B. duralog holds"
    )
    assert "retention.ms" in note
    (note,) = sources(tmp_path / "data", clock=lambda: NOW_MS + 2 * day_ms).overview().notes
    assert note.startswith("old and 2 more topics have records")
    with Store(str(tmp_path / "data"), clock=lambda: NOW_MS) as store:
        for topic in ("old", "older"):
            store.alter_topic_config(topic, {"retention.ms": -1})
    assert sources(tmp_path / "data").overview().notes == ()


@pytest.mark.parametrize("kind", ["golden", "shop"])
def test_it_reports_the_same_as_the_store(stores: Any, sources: Any, kind: str) -> None:
    source = sources(stores[kind])
    store = Store(str(stores[kind]), read_only=True)
    overview = source.overview()
    assert [topic.name for topic in overview.topics] == store.topics()
    assert (overview.cluster_id, overview.node_id) == (store.cluster_id, store.node_id)
    for topic in overview.topics:
        rows = source.topic(topic.name)
        assert [row.partition for row in rows] == store.partitions(topic.name)
        assert topic.policy == store.topic_config(topic.name).text("cleanup.policy")
        for row in rows:
            log = store.partition(row.topic, row.partition)
            assert (row.start_offset, row.end_offset) == (log.start_offset, log.end_offset)
            assert (row.size_bytes, row.segments) == (log.size_bytes, len(log.segments))
            facts = source.partition(row.topic, row.partition)
            assert (facts.start_offset, facts.end_offset) == (log.start_offset, log.end_offset)
            assert (facts.last_stable_offset, facts.trouble) == (log.last_stable_offset, None)
            assert [
                (segment.base_offset, segment.size_bytes, segment.largest_timestamp_ms or 0, segment.is_active)
                for segment in facts.segments
            ] == [
                (info.base_offset, info.size_bytes, info.largest_timestamp_ms if info.size_bytes else 0, info.is_active)
                for info in log.segments
            ]
            first = next(iter(log.read(log.start_offset)), None)
            shown = [record for record in source.records(row.topic, row.partition).records if record.marker is None]
            assert (shown[0].offset if shown else None) == (None if first is None else first.offset)


def test_the_newest_record_is_not_the_time_of_an_empty_file(tmp_path: Path, sources: Any) -> None:
    """After a roll the active segment is empty, and its file is newer than all records."""
    first_ms = 1_700_000_000_000
    with duralog.open(tmp_path / "data", KEEP_EVERYTHING) as store:
        store.create_topic("t", 2)
        log = store.partition("t", 0)
        for late_ms in (5_000, 7_000, 9_000):
            log.append([duralog.Record(value=b"v", timestamp_ms=first_ms + late_ms)])
            log.roll()
        assert log.segments[-1].size_bytes == 0
    source = sources(tmp_path / "data")
    assert source.partition("t", 0).latest_timestamp_ms == first_ms + 9_000
    assert source.partition("t", 1).latest_timestamp_ms is None
    (topic,) = source.overview().topics
    assert topic.latest_timestamp_ms == first_ms + 9_000


def test_segments_show_their_files_and_indexes(stores: Any, sources: Any) -> None:
    source = sources(stores["shop"])
    facts = source.partition("orders", 0)
    folder = stores["shop"] / "orders-0"
    for segment, following in zip(facts.segments, [*facts.segments[1:], None], strict=True):
        assert segment.next_offset == (ORDERS if following is None else following.base_offset)
        assert dict(segment.files) == {
            path.name: path.stat().st_size for path in folder.glob(f"{segment.base_offset:020}.*")
        }
        assert segment.files[0][0].endswith(".log")
        index = folder / f"{segment.base_offset:020}.index"
        assert segment.index_entries == index.stat().st_size // 8
    assert facts.configs["retention.ms"] == "-1"
    assert facts.folder == str(folder)


def test_segments_are_scanned_once(stores: Any, sources: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources(stores["shop"])
    assert source.known_scan("orders", 0, 0) is None
    scan = source.scan_segment("orders", 0, 0)
    assert (scan.batches, scan.records, scan.tombstones, scan.keyless) == (1, ORDERS_A_SEGMENT, 0, 0)
    assert scan.codecs == {"zstd": 1.0}
    assert (scan.first_offset, scan.last_offset, scan.trouble) == (0, ORDERS_A_SEGMENT - 1, None)
    assert scan.stored_bytes == (stores["shop"] / "orders-0" / f"{0:020}.log").stat().st_size
    assert scan.compression_ratio is not None
    assert scan.compression_ratio > 2
    monkeypatch.setattr(segment_scans, "read_pieces", lambda _: pytest.fail("it was read again"))
    assert source.scan_segment("orders", 0, 0) is scan
    assert source.known_scan("orders", 0, 0) is scan
    with pytest.raises(UnknownTopic, match="no segment at offset 7"):
        source.scan_segment("orders", 0, 7)
    profile = source.partition("profiles", 0).segments[0]
    monkeypatch.undo()
    assert source.scan_segment("profiles", 0, profile.base_offset).tombstones == 3


def test_groups_are_read_as_the_topic_grows(stores: Any, sources: Any, tmp_path: Path) -> None:
    source = sources(stores["shop"])
    (group,) = source.overview().groups
    assert (group.name, group.state, group.topics, group.lag) == ("billing", None, ("orders",), ORDERS - COMMITTED)
    details = source.group("billing")
    assert details.facts == group
    assert [sample.lag for sample in details.history] == [ORDERS - COMMITTED]
    (offset,) = details.view.offsets
    assert (offset.committed, offset.end_offset) == (COMMITTED, ORDERS)


def test_hostile_names_and_bytes_pass_through(stores: Any, sources: Any) -> None:
    source = sources(stores["hostile"])
    names = [topic.name for topic in source.overview().topics]
    assert "x" * 249 in names
    assert "..-._" in names
    assert source.group(HOSTILE_GROUP).facts.lag is not None
    for name in names:
        for row in source.topic(name):
            source.partition(name, row.partition)
            assert source.records(name, row.partition, backwards=True).note is None
    for name in ("", "../x", "/etc", "x\0y", "\udcff", "a" * 10_000, "orders/../.."):
        for read in (source.partition, source.records, source.tail, source.record):
            with pytest.raises(UnknownTopic):
                read(name, 0, *([0] if read in (source.tail, source.record) else []))
        with pytest.raises(UnknownTopic):
            source.find_key(name, 0, b"x")
    for number in (-1, 1, 2**31, 2**70):
        with pytest.raises(UnknownTopic):
            source.partition("hostile", number)


def test_damage_is_reported_and_the_rest_is_shown(stores: Any, sources: Any) -> None:
    source = sources(stores["damaged"])
    page = source.records("orders", 0, limit=1_000)
    assert len(page.records) == ORDERS - ORDERS_A_SEGMENT
    assert "Damage: " in str(page.note)
    scan = source.scan_segment("orders", 0, ORDERS_A_SEGMENT)
    assert scan.trouble is not None
    assert (scan.tombstones, scan.compression_ratio) == (None, None)
    (entry,) = source.quarantine()
    assert (entry.topic, entry.partition, entry.start) == ("orders", 1, 0)
    assert (stores["damaged"] / entry.path).read_bytes().startswith(b"torn")
    check = source.start_verify()
    check.wait()
    view = check.progress()
    assert (view.state, view.share, view.error) == (RunState.DONE, 1.0, None)
    assert view.errors >= 2
    files = {finding.file for finding in view.findings if finding.is_error}
    assert f"orders-0/{ORDERS_A_SEGMENT:020}.log" in files
    assert source.verification() is check


def test_a_check_of_one_partition(stores: Any, sources: Any) -> None:
    source = sources(stores["damaged"])
    check = source.start_verify("profiles", 0)
    check.wait()
    view = check.progress()
    assert (view.partitions_done, view.partitions_total, view.topic, view.partition) == (1, 1, "profiles", 0)
    assert {finding.topic for finding in view.findings if finding.is_error} == {"profiles"}
    check = source.start_verify("nothing")
    check.wait()
    assert check.progress().state is RunState.FAILED
    assert "there is no partition of nothing" in str(check.progress().error)


def test_one_check_at_a_time_and_it_can_be_stopped(stores: Any, sources: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources(stores["shop"])
    may_go = threading.Event()

    def wait(*arguments: Any, **options: Any) -> Any:
        assert may_go.wait(60)
        return verify(*arguments, **options)

    monkeypatch.setattr("duralog.console.sources.directory.verify_runs.verify", wait)
    check = source.start_verify()
    with pytest.raises(Busy):
        source.start_verify()
    check.stop()
    may_go.set()
    check.wait()
    assert check.progress().state is RunState.STOPPED


# Compaction


def explained(path: Path, topic: str) -> str:
    arguments = ["compact", str(path), "--explain", "--topic", topic, "--partition", "0", "--no-progress"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_explanation_is_that_of_the_command(stores: Any, sources: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.cli.compact.command.now_ms", lambda: NOW_MS)
    source = sources(stores["shop"])
    rehearsal = source.rehearsal("profiles", 0)
    assert rehearsal.text == explained(stores["shop"], "profiles")
    assert "removable" in rehearsal.text
    assert rehearsal.would_run
    assert 0 < rehearsal.records_after < rehearsal.records_before
    facts = source.partition("profiles", 0)
    assert (facts.first_dirty_offset, facts.first_uncleanable_offset) == (0, 90)
    assert facts.why_uncleanable == "the active segment starts at offset 90"
    assert facts.dirty_ratio == 1.0
    with pytest.raises(InvalidConfig, match=r"orders is not compacted, its cleanup.policy is delete"):
        source.rehearsal("orders", 0)


def test_a_compaction_needs_to_be_allowed(stores: Any, sources: Any) -> None:
    source = sources(stores["shop"])
    assert "--allow-changes" in str(source.why_no_compaction("profiles", 0))
    with pytest.raises(ChangesNotAllowed):
        source.compact("profiles", 0)
    assert source.compaction() is None
    command = source.compaction_command("profiles", 0)
    assert command == f"duralog compact {stores['shop']} --topic profiles --partition 0"


def test_a_compaction_does_what_was_explained(stores: Any, sources: Any, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    source = sources(directory, allow_changes=True)
    told = source.rehearsal("profiles", 0)
    before = source.partition("profiles", 0)
    assert source.why_no_compaction("profiles", 0) is None
    run = source.compact("profiles", 0)
    run.wait()
    assert run.error is None
    assert run.progress().state is RunState.DONE
    assert (run.progress().phase, run.progress().share) == ("done", 1.0)
    result = run.result
    assert result is not None
    assert (result.records_before, result.records_after) == (told.records_before, told.records_after)
    assert (result.superseded_records, result.rounds) == (told.superseded_records, 1)
    assert (result.size_before, result.segments_before) == (before.size_bytes, len(before.segments))
    assert source.compaction() is run
    source.step()
    after = source.partition("profiles", 0)
    assert (after.size_bytes, len(after.segments)) == (result.size_after, result.segments_after)
    assert after.first_dirty_offset == after.checkpoint == 90
    assert [segment.is_clean for segment in after.segments[:-1]] == [True] * (len(after.segments) - 1)
    assert [sample.size_bytes for sample in after.history] == [result.size_before, result.size_after]
    kept = source.records("profiles", 0, limit=1_000).records
    assert len(kept) == result.records_after
    with pytest.raises(InvalidConfig):
        source.compact("orders", 0)


def test_a_compaction_does_not_wait_for_readers(stores: Any, sources: Any, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    source = sources(directory, allow_changes=True)
    with duralog.open(directory, KEEP_EVERYTHING):
        source.step()
        assert source.overview().held_by is not None
        assert "has the directory open" in str(source.why_no_compaction("profiles", 0))
        with pytest.raises(StoreLocked):
            source.compact("profiles", 0)
    source.step()
    assert source.overview().held_by is None


def test_a_lock_without_effect_fails_the_run(
    stores: Any, sources: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in another container."""
    directory = stores.copied("shop", tmp_path / "data")
    source = sources(directory, allow_changes=True)
    monkeypatch.setattr("duralog.console.sources.directory.runs.lock_holder", lambda _: None)
    with duralog.open(directory, KEEP_EVERYTHING):
        run = source.compact("profiles", 0)
        run.wait()
    assert run.progress().state is RunState.FAILED
    assert "is in use by" in str(run.error)
    assert run.result is None


def test_one_compaction_at_a_time(stores: Any, sources: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources(stores.copied("shop", tmp_path / "data"), allow_changes=True)
    may_go = threading.Event()
    real = DirectoryCompaction._compact

    def wait(run: DirectoryCompaction) -> None:
        assert may_go.wait(60)
        real(run)

    monkeypatch.setattr(DirectoryCompaction, "_compact", wait)
    run = source.compact("profiles", 0)
    with pytest.raises(Busy, match="profiles-0 is being compacted"):
        source.compact("profiles", 0)
    assert run.progress().state is RunState.RUNNING
    may_go.set()
    source.close()  # Waits for it.
    assert run.progress().state is RunState.DONE
    with pytest.raises(StorageError, match="closing"):
        source.compact("profiles", 0)


def test_the_cleaner_rows_say_what_is_due(stores: Any, sources: Any) -> None:
    facts = sources(stores["shop"]).cleaner()
    by_name = {row.topic: row for row in facts.rows}
    assert by_name["profiles"].is_due
    assert (by_name["profiles"].dirty_ratio, by_name["profiles"].checkpoint) == (1.0, None)
    assert facts.partitions == len(facts.rows)
    assert facts.due == sum(row.is_due for row in facts.rows)
    assert "orders" not in by_name


# A directory in which things happen


def test_a_topic_that_vanishes_is_unknown(stores: Any, sources: Any, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    source = sources(directory)
    shutil.rmtree(directory / "orders-0")
    for read in (source.partition, source.records):
        with pytest.raises(UnknownTopic):
            read("orders", 0)
    source.step()
    assert [row.partition for row in source.topic("orders")] == [1]
    for number in (1,):
        shutil.rmtree(directory / f"orders-{number}")
    source.step()
    with pytest.raises(UnknownTopic):
        source.topic("orders")


def test_a_missing_directory_is_not_reported_as_a_deleted_topic(stores: Any, sources: Any, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    source = sources(directory)
    directory.rename(tmp_path / "elsewhere")
    for is_seen in (False, True):
        for read in (source.partition, source.records, source.rehearsal, source.compact):
            with pytest.raises(StorageError, match="data is not there any more"):
                read("profiles", 0)
        with pytest.raises(StorageError, match="data is not there any more"):
            source.find_key("profiles", 0, b"k")
        if not is_seen:
            source.step()
    assert not source.overview().is_online
    (tmp_path / "elsewhere").rename(directory)
    source.step()
    assert source.overview().is_online
    assert source.records("profiles", 0).records


def test_a_topic_that_was_made_again_is_another_one(sources: Any, tmp_path: Path) -> None:
    with duralog.open(tmp_path / "data", KEEP_EVERYTHING) as store:
        store.create_topic("t", 1)
        store.partition("t", 0).append(
            [duralog.Record(key=b"k", value=b"old")] * 9,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        source = sources(tmp_path / "data")
        assert source.partition("t", 0).last_stable_offset == 0
        store.delete_topic("t")
        store.create_topic("t", 1)
        store.partition("t", 0).append([duralog.Record(key=b"k", value=b"new")] * 10)
        source.step()
        assert source.partition("t", 0).last_stable_offset == 10
        assert source.records("t", 0, limit=1).records[0].value == b"new"


def test_files_that_cannot_be_read_are_a_sentence(stores: Any, sources: Any, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    for path in (directory / "orders-0").glob("*.log"):
        path.unlink()
        path.mkdir()
    source = sources(directory)
    (row, _) = source.topic("orders")
    assert row.trouble is not None
    for read in (source.partition, source.records, lambda *place: source.scan_segment(*place, 0)):
        with pytest.raises(DuralogError):
            read("orders", 0)
    assert any("orders-0" in note for note in source.overview().notes)
    assert source.records("profiles", 0).records


def test_no_file_stays_open(stores: Any, sources: Any) -> None:
    before = len(os.listdir("/proc/self/fd"))
    source = sources(stores["shop"])
    for _ in range(3):
        source.step()
        for name, number in (("orders", 0), ("orders", 1), ("profiles", 0)):
            source.partition(name, number)
            source.records(name, number)
            source.records(name, number, backwards=True)
    source.rehearsal("profiles", 0)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_the_background_thread_looks_and_ends(stores: Any, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    source = open_source(str(directory), refresh_seconds=0.01)
    first = source.overview()
    assert (first.kind, source.has_files) == (SourceKind.DIRECTORY, True)
    wait_until(lambda: source.overview() is not first)
    source.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "duralog-console-refresh"]
    source.close()


def test_what_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.log").touch()
    (tmp_path / "file").touch()
    for path, words in (
        (tmp_path / "nothing", "there is no such directory"),
        (tmp_path / "file", "this is a file, not a directory"),
        ("s3://bucket/logs", "this is a URL"),
        (tmp_path / "orders-0", "this is one partition"),
    ):
        with pytest.raises(DuralogError, match=words):
            open_source(str(path))
    with pytest.raises(DuralogError, match="two directories"):
        open_source(str(tmp_path), data=str(tmp_path / "orders-0"))
