"""Compacting a log: rounds, groups, what becomes of the files, and what stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duralog.errors import CorruptRecord, Fault, StorageError
from duralog.format.checksum import crc32c
from duralog.format.filenames import FileKind, FileState, parse_segment_file
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from duralog.kernels.offset_map import SLOT_BYTES, OffsetMap, map_bytes_for
from duralog.storage.compaction import cleaned_segment
from duralog.storage.compaction import mapping as compaction_mapping
from duralog.storage.compaction import run as compaction_run
from duralog.storage.compaction import settings as compaction_settings
from duralog.storage.compaction.compact import compact_log, preview_compaction
from duralog.storage.compaction.report import CompactionProgress, CompactionReport, CompactionStopped
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.local_files import LocalFile
from duralog.storage.log.partition_log import PartitionLog
from tests.support.storage.log_in_folder import NOW_MS, LogInFolder

DAY_MS = 86_400_000


def make(tmp_path: Path, **configs: object) -> LogInFolder:
    settings: dict[str, Any] = {
        "cleanup_policy": "compact",
        "internal_segment_bytes": 100_000,
        "index_interval_bytes": 200,
    }
    return LogInFolder(tmp_path / "orders-3", **{**settings, **configs})


def write(log: PartitionLog, *keys_of_segments: str, value: bytes = b"v" * 50) -> None:
    """A segment for each word, a record for each of its letters; an upper-case one is a tombstone."""
    for letters in keys_of_segments:
        for letter in letters:
            key = letter.lower().encode()
            log.append([Record(key=key, value=None if letter.isupper() else value, timestamp_ms=NOW_MS)])
        log.roll()


def compact(
    log: PartitionLog, first_dirty_offset: int = 0, end: int | None = None, now_ms: int = NOW_MS, **settings: Any
) -> CompactionReport:
    return compact_log(
        log,
        first_dirty_offset=first_dirty_offset,
        end=log.view.segments.active.base_offset if end is None else end,
        now_ms=now_ms,
        settings=CompactionSettings(**settings),
    )


def keys(log: PartitionLog) -> str:
    letters = [(record.key or b"?").decode() for record in log.read(log.start_offset)]
    values = [record.value for record in log.read(log.start_offset)]
    return "".join(letter.upper() if value is None else letter for letter, value in zip(letters, values, strict=True))


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in log.read(log.start_offset)]


def test_the_last_record_of_each_key_stays_with_its_offset(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abcab", "ad", "Ea")
    report = compact(log)
    assert keys(log) == "cbdEa"
    assert offsets(log) == [2, 4, 6, 7, 8]
    assert (report.records_before, report.records_after, report.superseded_records) == (9, 5, 4)
    assert (report.kept_tombstones, report.expired_tombstones) == (1, 0)
    assert report.earliest_horizon_ms == report.latest_horizon_ms == NOW_MS + DAY_MS
    assert report.end_offset == 9
    assert (report.segments_before, report.segments_after) == (3, 1)
    assert report.bytes_after == report.written_bytes == log.segments[0].size_bytes < report.bytes_before
    assert report.rounds == 1
    assert not report.notes


def test_the_system_keeps_no_more_in_memory_and_begins_to_write_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make(tmp_path, internal_segment_bytes=10 << 20).open()
    write(log, "abcdefghij" * 3, "klmnopqrst", value=bytes(100_000))
    forgotten: list[tuple[str, int, int]] = []
    begun: list[tuple[str, int]] = []
    monkeypatch.setattr(LocalFile, "forget", lambda file, at, size: forgotten.append((Path(file.name).name, at, size)))
    monkeypatch.setattr(LocalFile, "begin_sync", lambda file, at: begun.append((Path(file.name).name, at)))
    monkeypatch.setattr(cleaned_segment, "_WRITTEN_AHEAD", 600_000)
    monkeypatch.setattr(compaction_settings, "PIECE_BYTES", 700_000)
    report = compact(log)
    assert report.records_after == 20
    # The first piece with survivors, and from then on as much as was written.
    first = [at for name, at, _ in forgotten if name == f"{0:020d}.log"]
    assert min(first) > 1_000_000
    sizes = [size for _, _, size in forgotten]
    assert report.written_bytes <= sum(sizes) < report.written_bytes + max(sizes)
    assert {name for name, _ in begun} == {f"{0:020d}.log.cleaned"}
    positions = [at for _, at in begun]
    assert positions[0] == 0
    assert len(positions) >= 2
    assert positions == sorted(set(positions))


def test_the_active_segment_and_what_is_not_yet_to_be_compacted_are_left_alone(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "aa", "aa")
    log.append([Record(key=b"a", value=b"active", timestamp_ms=NOW_MS)])
    assert compact(log, end=2).end_offset == 2
    assert offsets(log) == [1, 2, 3, 4]
    # Within a segment: up to where that begins.
    assert compact(log, end=3).end_offset == 2
    assert compact(log, end=1 << 40).end_offset == 4
    assert offsets(log) == [3, 4]


def test_nothing_to_do(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "aa")
    before = owner.contents()
    report = compact(log, first_dirty_offset=2)
    assert (report.rounds, report.end_offset, report.records_before) == (0, 2, 0)
    assert owner.contents() == before


def test_files_that_were_replaced_go_later_with_the_snapshots_of_segments_that_are_no_more(tmp_path: Path) -> None:
    owner = make(tmp_path, file_delete_delay_ms=1234)
    log = owner.open()
    write(log, "ab", "ab", "ab")
    owner.catch_up()
    assert [name for name in owner.names if name.endswith(".snapshot")] == [
        f"{base:020}.snapshot" for base in (2, 4, 6)
    ]
    compact(log)
    states = {parse_segment_file(name) for name in owner.names if name[0] == "0"}
    deleted = {(file.offset, file.kind) for file in states if file and file.state is FileState.DELETED}
    assert deleted == {
        *((base, kind) for base in (0, 2, 4) for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)),
        *((base, FileKind.PRODUCER_SNAPSHOT) for base in (2, 4)),
    }
    assert [delay_ms for delay_ms, _, _ in owner.waiting] == [1234]
    owner.catch_up()
    assert [name for name in owner.names if name[0] == "0"] == [
        *(f"{0:020}{kind}" for kind in (".index", ".log", ".timeindex")),
        *(f"{6:020}{kind}" for kind in (".log", ".snapshot")),
    ]


def test_a_group_of_which_nothing_is_left_becomes_an_empty_segment(tmp_path: Path) -> None:
    owner = make(tmp_path, internal_segment_bytes=1100)
    log = owner.open()
    write(log, "abab", "abab", "cabcab")
    compact(log)
    assert [(segment.base_offset, segment.size_bytes > 0) for segment in log.segments] == [
        (0, False),
        (8, True),
        (14, False),
    ]
    assert keys(log) == "cab"
    log.close()
    again = make(tmp_path, internal_segment_bytes=1100).open()
    assert keys(again) == "cab"
    assert again.start_offset == 0


def test_readers_that_hold_the_old_segments_read_on(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "aaa", "aaa")
    reading = log.read(0)
    assert next(reading).offset == 0
    view = log.view
    compact(log)
    owner.catch_up()
    assert [record.offset for record in reading] == [1, 2, 3, 4, 5]
    assert view.segments.first.find_offset_by_timestamp(NOW_MS) is not None
    assert offsets(log) == [5]


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_change_nothing(tmp_path: Path, workers: int) -> None:
    contents = []
    for count in (1, workers):
        owner = make(tmp_path / str(count), internal_segment_bytes=1 << 20)
        owner.path.parent.mkdir()
        log = owner.open()
        for number in range(600):
            records = [Record(key=b"%d" % (n * number % 301), value=bytes(40), timestamp_ms=NOW_MS) for n in range(30)]
            log.append(records, codec=("none", "lz4", "zstd")[number % 3])
            if number % 100 == 99:
                log.roll()
        for segment in log.view.segments:
            owner.files.set_modified_ms(segment.path(FileKind.LOG), NOW_MS)
        report = compact(log, workers=count)
        assert report.records_before == 18_000
        owner.catch_up()
        contents.append(owner.contents())
    assert contents[0] == contents[1]


@pytest.mark.parametrize("load_factor", [0.05, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_a_map_that_is_made_for_some_keys_is_not_full_with_them(load_factor: float) -> None:
    for keys in (*range(50), 10**6 - 1, 10**6):
        assert OffsetMap(map_bytes_for(keys, load_factor), load_factor).capacity > keys


def test_more_keys_than_the_map_takes_make_several_rounds(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    letters = "abcdefgh"
    write(log, letters, letters, letters)
    ended: list[int] = []
    memory_bytes = 6 * SLOT_BYTES
    report = compact(log, memory_bytes=memory_bytes, load_factor=0.5, on_round=ended.append)
    assert keys(log) == letters
    assert ended == sorted(set(ended))
    assert ended[-1] == report.end_offset == 24
    assert report.rounds == len(ended) > 3
    assert (report.records_before, report.records_after) == (24, 8)
    (note,) = report.notes
    needed = int(note.partition("log.cleaner.dedupe.buffer.size of ")[2].partition(" ")[0])
    again = make(tmp_path / "again")
    again.path.parent.mkdir()
    log = again.open()
    write(log, letters, letters, letters)
    assert compact(log, memory_bytes=needed, load_factor=0.5).rounds == 1


def test_the_first_dirty_offset_may_lie_within_a_segment(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abcabc", "c")
    compact(log, first_dirty_offset=4)
    # The keys below it are not mapped: only later records supersede them.
    assert offsets(log) == [0, 3, 4, 6]


def test_a_log_whose_start_was_raised(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abc", "abc", "a")
    log.delete_records(4)
    report = compact(log, first_dirty_offset=4)
    assert log.start_offset == 4
    assert offsets(log) == [4, 5, 6]
    assert report.end_offset == 7
    assert log.segments[0].base_offset == 0


def test_keyless_records_are_dropped_and_counted(tmp_path: Path) -> None:
    owner = make(tmp_path, cleanup_policy="delete")
    log = owner.open()
    log.append([Record(value=b"1", timestamp_ms=NOW_MS), Record(key=b"k", value=b"2", timestamp_ms=NOW_MS)])
    log.roll()
    report = compact(log)
    assert offsets(log) == [1]
    assert report.keyless_records == 1


def test_tombstones_go_when_their_horizon_has_passed(tmp_path: Path) -> None:
    log = make(tmp_path, delete_retention_ms=1000).open()
    write(log, "aA", "b")
    assert compact(log).kept_tombstones == 1
    write(log, "c")
    assert compact(log, first_dirty_offset=3, now_ms=NOW_MS + 999).kept_tombstones == 1
    write(log, "d")
    report = compact(log, first_dirty_offset=4, now_ms=NOW_MS + 1000)
    assert (report.expired_tombstones, report.kept_tombstones, report.earliest_horizon_ms) == (1, 0, None)
    assert keys(log) == "bcd"


def test_a_round_that_begins_behind_an_abort_marker_takes_no_committed_data_for_aborted(tmp_path: Path) -> None:
    log = make(tmp_path, index_interval_bytes=0, delete_retention_ms=1000).open()

    def send(key: bytes, value: bytes | None, sequence: int) -> None:
        log.append(
            [Record(key=key, value=value, timestamp_ms=NOW_MS)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    log.append([Record(key=b"gone", value=b"v", timestamp_ms=NOW_MS)])
    send(b"aborted", b"v", 0)
    log.end_transaction(7, 0, commit=False)
    for letter in "abc":
        log.append([Record(key=letter.encode(), value=b"v", timestamp_ms=NOW_MS)])
    send(b"gone", None, 1)
    log.end_transaction(7, 0, commit=True)
    write(log, "d")
    # The second round begins after the abort marker, and the tombstone is in it.
    report = compact(log, memory_bytes=5 * SLOT_BYTES, load_factor=0.61)
    assert report.rounds > 1
    write(log, "e")
    compact(log, first_dirty_offset=report.end_offset, now_ms=NOW_MS + 1000)
    assert keys(log) == "abcde"


# Damage


def damage(owner: LogInFolder, base_offset: int, position: int, value: bytes) -> None:
    path = owner.path / f"{base_offset:020}.log"
    content = bytearray(path.read_bytes())
    content[position : position + len(value)] = value
    path.write_bytes(content)


def test_a_batch_with_a_wrong_checksum_is_copied_and_supersedes_nothing(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "ab", "ab", "b")
    log.close()
    damage(owner, 2, 100, b"!")
    log = owner.open()
    before = log.view.segments[1].file.read(0, log.segments[1].size_bytes // 2)
    report = compact(log)
    assert len(report.corrupt_batches) == 1
    assert f"{2:020}.log" in report.corrupt_batches[0]
    assert log.segments[0].base_offset == 0
    content = log.view.segments.first.file.read(0, log.segments[0].size_bytes)
    assert before in content
    (first, *_) = log.view.segments.first.batches_from()
    assert first.batches["last_offset"].tolist() == [0, 2, 4]


def test_very_much_damage_takes_little_memory_and_costs_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_mapping, "_MOST_BAD_CHECKSUMS", 1)
    monkeypatch.setattr(compaction_run, "_MOST_DAMAGE_REPORTED", 2)
    owner = make(tmp_path)
    log = owner.open()
    write(log, "aaaaaa", "a")
    log.close()
    content = (owner.path / f"{0:020}.log").read_bytes()
    batch_bytes = len(content) // 6
    for number in range(1, 5):
        damage(owner, 0, number * batch_bytes + 100, b"!")
    damaged = (owner.path / f"{0:020}.log").read_bytes()[batch_bytes : 5 * batch_bytes]
    log = owner.open()
    report = compact(log)
    assert log.view.segments.first.file.read(0, 4 * batch_bytes) == damaged
    assert log.segments[0].size_bytes == 5 * batch_bytes
    assert len(report.corrupt_batches) == 3
    assert report.corrupt_batches[-1] == "more than 2 batches are damaged"


@pytest.mark.parametrize("memory_bytes", [1 << 20, 4 * SLOT_BYTES])
def test_a_record_that_claims_an_offset_beyond_its_batch(tmp_path: Path, memory_bytes: int) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "axbC", "abd", "a")
    log.close()
    # The last record says that it is number 63 of its batch.
    batch = bytearray((owner.path / f"{7:020}.log").read_bytes())
    assert batch[BATCH_V2.size + 3 : BATCH_V2.size + 6] == b"\0\x02a"
    batch[BATCH_V2.size + 3] = 2 * 63
    damage(owner, 7, BATCH_V2.size + 3, bytes([2 * 63]))
    damage(owner, 7, BATCH_V2.at.crc, crc32c(batch[BATCH_V2.at.attributes :]).to_bytes(4, "big"))
    log = owner.open()
    ended: list[int] = []
    report = compact(log, memory_bytes=memory_bytes, load_factor=0.5, on_round=ended.append)
    assert ended == sorted(set(ended))
    assert ended[-1] == report.end_offset == 8
    (left,) = log.view.segments.first.batches_from()
    assert left.batches["last_offset"].tolist() == [1, 3, 5, 6, 7]


@pytest.mark.parametrize(
    ("position", "value", "fault"),
    [
        (8, b"\x7f", "the file ends inside a batch"),
        (16, b"\x09", "unknown format version"),
        (0, b"\x01", "offsets"),
        (7, b"\x00", "offsets"),
    ],
    ids=["length", "magic", "offset of another log", "offset of an earlier segment"],
)
@pytest.mark.parametrize(
    ("first_dirty_offset", "workers"), [(0, 1), (0, 2), (9, 1), (9, 2)], ids=["dirty", "dirty-2", "clean", "clean-2"]
)
def test_a_segment_that_cannot_be_walked_through_stays_as_it_is(
    tmp_path: Path, position: int, value: bytes, fault: str, first_dirty_offset: int, workers: int
) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "abc", "aab", "aabc", "abc")
    log.close()
    size = (owner.path / f"{3:020}.log").stat().st_size
    damage(owner, 3, size // 3 + position, value)
    log = owner.open()
    left = owner.contents()[f"{3:020}.log"]
    preview = preview_compaction(log, first_dirty_offset=first_dirty_offset, end=13, now_ms=NOW_MS)
    previewed = [found.compacted.size_bytes for found in preview.pieces()]
    report = compact(log, first_dirty_offset=first_dirty_offset, workers=workers)
    owner.catch_up()
    (reason,) = report.left_segments
    assert f"{3:020}.log" in reason
    assert fault in reason
    assert preview.report.left_segments == report.left_segments
    assert owner.contents()[f"{3:020}.log"] == left
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 13]
    assert report.end_offset == 13
    survivors = [
        int(offset)
        for segment in log.view.segments
        if segment.base_offset != 3
        for piece in segment.batches_from()
        for offset in piece.batches["last_offset"]
    ]
    assert survivors == [10, 11, 12]
    assert sum(previewed) == report.written_bytes


def test_a_segment_that_would_become_too_large_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "ab", "abcdefgh", "ab")
    monkeypatch.setattr(cleaned_segment, "MOST_BYTES", 500)
    left = owner.contents()[f"{2:020}.log"]
    report = compact(log)
    owner.catch_up()
    assert report.left_segments == [
        f"{owner.path}/{2:020}.log stays as it is: what is left of it does not fit into a segment"
    ]
    assert [segment.base_offset for segment in log.segments] == [0, 2, 10, 12]
    assert owner.contents()[f"{2:020}.log"] == left
    assert keys(log) == "abcdefghab"


# Stopping


def test_whatever_check_stop_raises_ends_it_and_leaves_no_files(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "abc", "abc")
    before = owner.contents()
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked == limit:
            raise CompactionStopped("asked to")

    # At the beginning, at that of each pass, for each piece, and before the swap.
    for limit in range(1, 9):
        asked = 0
        with pytest.raises(CompactionStopped):
            compact(log, check_stop=stop)
        assert asked == limit
        assert owner.contents() == before
    limit = asked = 0
    compact(log, check_stop=stop)
    assert asked == 8
    assert keys(log) == "abc"


def test_an_error_of_on_bytes_ends_it(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "abc", "abc")
    before = owner.contents()
    told: list[int] = []

    def fail(size_bytes: int) -> None:
        told.append(size_bytes)
        if len(told) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(log, on_bytes=fail)
    assert owner.contents() == before
    report = compact(log, on_bytes=told.append)
    assert sum(told[4:]) == report.map_bytes + report.read_bytes + report.written_bytes


def swapping(log: PartitionLog, meanwhile: Callable[[], object], **options: Any) -> CompactionReport:
    """Compact, and do something to the log when the second pass has begun."""
    done = False

    def progress(progress: CompactionProgress) -> None:
        nonlocal done
        if progress.phase == "rewriting" and progress.bytes_done and not done:
            done = True
            meanwhile()

    return compact(log, on_progress=progress, **options)


def test_a_segment_that_was_deleted_meanwhile_stops_it(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "abc", "abc")
    with pytest.raises(CompactionStopped, match="segment at 0 was changed"):
        swapping(log, lambda: log.delete_segments([0], "retention"))
    assert offsets(log) == [3, 4, 5]
    assert not [name for name in owner.names if "cleaned" in name]
    compact(log, first_dirty_offset=3)


def test_segments_that_were_deleted_before_their_turn_are_left_out(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abc", "abd", "ae")

    def lose(progress: CompactionProgress) -> None:
        if progress.phase == "mapping":
            log.delete_segments([0], "retention")

    report = compact(log, on_progress=lose)
    assert keys(log) == "bdae"
    assert offsets(log) == [4, 5, 6, 7]
    assert (report.end_offset, report.records_before, report.records_after) == (8, 5, 4)
    assert [segment.base_offset for segment in log.segments] == [3, 8]


def test_all_segments_may_be_deleted_before_their_turn(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abc", "abd")
    report = compact(log, on_progress=lambda _: log.delete_segments([0, 3], "retention"))
    assert (report.end_offset, report.records_before, offsets(log)) == (6, 0, [])


def test_a_segment_that_was_cut_meanwhile_stops_it(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abc", "abc")
    with pytest.raises(CompactionStopped):
        swapping(log, lambda: log.truncate_to(4))
    assert offsets(log) == [0, 1, 2, 3]
    # One that was cut and written to again to the same size is the active one.
    write(log, "a", "bc")
    assert keys(log) == "abcaabc"


def test_what_goes_wrong_after_it_was_stopped_is_no_failure(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "abc", "abc")
    is_stopped = False

    def check() -> None:
        if is_stopped:
            raise CompactionStopped("the log is cut off")

    def cut_off(progress: CompactionProgress) -> None:
        nonlocal is_stopped
        if progress.bytes_done:
            is_stopped = True
            raise CorruptRecord("the file became shorter while it was read", fault=Fault.FIELD_LENGTH)

    with pytest.raises(CompactionStopped):
        compact(log, check_stop=check, on_progress=cut_off)
    # And one that was stopped before there is anything to be done.
    with pytest.raises(CompactionStopped):
        compact(log, first_dirty_offset=6, check_stop=check)


def test_a_log_that_was_closed_meanwhile_stops_it(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "abc", "abc")
    with pytest.raises(CompactionStopped, match="closed"):
        swapping(log, log.close)
    assert not [name for name in owner.names if "cleaned" in name]


def test_appends_and_rolls_go_on_meanwhile(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abc", "abc")
    swapping(log, lambda: write(log, "abc"))
    assert keys(log) == "abcabc"
    assert offsets(log) == [3, 4, 5, 6, 7, 8]


def test_only_one_compaction_of_a_log_at_a_time(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abc", "abc")
    refused: list[Exception] = []

    def compact_too() -> None:
        try:
            compact(log)
        except CompactionStopped as error:
            refused.append(error)

    def in_a_thread() -> None:
        thread = threading.Thread(target=compact_too)
        thread.start()
        thread.join()

    swapping(log, in_a_thread)
    assert len(refused) == 1
    assert keys(log) == "abc"


def test_a_log_that_was_opened_for_reading_is_not_compacted_but_can_be_previewed(tmp_path: Path) -> None:
    owner = make(tmp_path)
    log = owner.open()
    write(log, "abc", "abcd")
    log.close()
    before = owner.contents()
    reading = owner.open(read_only=True)
    with pytest.raises(StorageError):
        compact(reading)
    preview = preview_compaction(reading, first_dirty_offset=0, end=7, now_ms=NOW_MS)
    assert (preview.end_offset, preview.map_records) == (7, 7)
    assert [[segment.base_offset for segment in group] for group in preview.groups] == [[0, 3]]
    pieces = list(preview.pieces())
    assert [(found.group, found.segment.base_offset, len(found.compacted.batches)) for found in pieces] == [
        (0, 0, 0),
        (0, 3, 4),
    ]
    assert owner.contents() == before
    log = owner.open()
    report = compact(log)
    told = preview.report
    assert (told.records_before, told.records_after) == (report.records_before, report.records_after)
    assert (told.bytes_before, told.bytes_after) == (report.bytes_before, report.bytes_after)
    assert (told.segments_before, told.segments_after) == (report.segments_before, report.segments_after)


# Progress, disk and the order of renames


def test_progress_is_reported_from_the_beginning_to_the_end_of_each_pass(tmp_path: Path) -> None:
    log = make(tmp_path).open()
    write(log, "abc", "abc", "abc")
    told: list[CompactionProgress] = []
    report = compact(log, on_progress=told.append)
    mapping = [progress for progress in told if progress.phase == "mapping"]
    rewriting = [progress for progress in told if progress.phase == "rewriting"]
    assert told == mapping + rewriting
    for phase in (mapping, rewriting):
        done = [progress.bytes_done for progress in phase]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, report.bytes_before)
        assert {progress.bytes_total for progress in phase} == {report.bytes_before}
    assert {progress.round for progress in told} == {1}


class _Watched(LocalFileSystem):
    """Remembers what happens to names, and how many bytes the folder had at most."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self.peak_bytes = 0

    def rename(self, source: str, target: str) -> None:
        self.steps.append(Path(target).suffix if parse_segment_file(Path(target).name) else "?")
        super().rename(source, target)
        self._measure(target)

    def sync_folder(self, path: str) -> None:
        self.steps.append("sync")
        super().sync_folder(path)

    def _measure(self, path: str) -> None:
        used = sum(entry.size for entry in self.list(str(Path(path).parent)))
        self.peak_bytes = max(self.peak_bytes, used)


def test_each_step_of_a_swap_is_on_disk_before_the_next(tmp_path: Path) -> None:
    files = _Watched()
    owner = make(tmp_path, files=files)
    log = owner.open()
    write(log, "abc", "abc")
    owner.catch_up()
    files.steps.clear()
    compact(log)
    begin = files.steps.index(".swap")
    assert files.steps[begin - 1 :] == [
        *("sync", ".swap", ".swap", ".swap", "sync"),
        *(".deleted",) * 7,
        *("sync", ".log", ".index", ".timeindex", "sync"),
    ]


def test_only_one_group_is_on_disk_twice(tmp_path: Path) -> None:
    files = _Watched()
    owner = make(tmp_path, files=files, internal_segment_bytes=20_000)
    log = owner.open()
    for number in range(40):
        # Hardly anything is superseded, so that each group is as large after as before.
        log.append([Record(key=b"%d" % (number % 38), value=bytes(5000), timestamp_ms=NOW_MS)])
    log.roll()
    assert len(log.segments) > 10
    owner.catch_up()
    before = sum(path.stat().st_size for path in owner.path.iterdir())
    files.peak_bytes = 0
    report = compact(log, on_progress=lambda _: owner.catch_up())
    assert report.bytes_after > 0.8 * report.bytes_before
    group_bytes = 20_000 + 1_000
    assert before < files.peak_bytes <= before + group_bytes
