"""Pages of records: whatever a log holds, page after page gives all of it once, forward and backward."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

import duralog
from duralog.columnar.pieces import PIECE_BYTES
from duralog.console.facts.records import SHOWN_BYTES, SHOWN_HEADERS, RecordKind, RecordPage
from duralog.console.facts.runs import RunState
from duralog.console.source import Busy
from duralog.console.sources.directory import batch_steps, key_search, record_pages
from duralog.console.sources.directory.key_search import DirectoryKeySearch
from duralog.console.sources.directory.source import DirectorySource
from duralog.errors import UnknownTopic
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.topic_partition import TopicPartition
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.read_only_directory import DirectoryView
from duralog.storage.store import Store
from tests.support.storage.legacy_logs import LegacyWriter

KEEP = {"log.retention.ms": -1, "log.cleaner.enable": False}
FIRST_MS = 1_700_000_000_000


class Shown:
    """A log and the source that shows it."""

    def __init__(self, directory: Path) -> None:
        self.store = duralog.open(directory, KEEP)
        self.source = DirectorySource(str(directory))
        self.begin("t")

    def begin(self, topic: str) -> None:
        """From now on, it is about this topic."""
        self.topic = topic
        self.store.create_topic(topic, 1)
        self.log: PartitionLog = self.store.partition(topic, 0)
        self.source.step()

    def forward(self, *, limit: int = 7, committed_only: bool = False) -> list[RecordPage]:
        pages = [self.source.records(self.topic, 0, limit=limit, committed_only=committed_only)]
        while pages[-1].next_offset < pages[-1].end_offset:
            following = self.source.records(
                self.topic, 0, offset=pages[-1].next_offset, limit=limit, committed_only=committed_only
            )
            if following.next_offset == pages[-1].next_offset:
                break
            pages.append(following)
        return pages

    def backward(self, *, limit: int = 7) -> list[RecordPage]:
        pages = [self.source.records(self.topic, 0, limit=limit, backwards=True)]
        while (before := pages[0].previous_offset) is not None:
            pages.insert(0, self.source.records(self.topic, 0, offset=before, limit=limit, backwards=True))
        return pages

    def close(self) -> None:
        self.source.close()
        self.store.close()


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    made = Shown(tmp_path / "data")
    yield made
    made.close()


def offsets(pages: list[RecordPage]) -> list[int]:
    return [record.offset for page in pages for record in page.records]


def check_pages(shown: Shown, expected: list[int], limit: int = 7) -> None:
    for pages in (shown.forward(limit=limit), shown.backward(limit=limit)):
        assert offsets(pages) == expected
        for page in pages:
            assert len(page.records) <= limit
            assert all(page.first_offset <= record.offset < page.next_offset for record in page.records)
        for page, following in pairwise(pages):
            assert page.next_offset == following.first_offset
        assert pages[0].first_offset == shown.log.start_offset
        assert pages[-1].next_offset == shown.log.end_offset
        assert pages[0].previous_offset is None
        assert pages[-1].is_at_end


def records(count: int, first: int = 0, size: int = 20) -> list[duralog.Record]:
    return [
        duralog.Record(key=b"k%d" % (number % 5), value=b"%d" % number * size, timestamp_ms=FIRST_MS + number)
        for number in range(first, first + count)
    ]


def test_an_empty_log_has_one_empty_page(shown: Shown) -> None:
    for page in (shown.source.records("t", 0), shown.source.records("t", 0, backwards=True)):
        assert (page.records, page.first_offset, page.next_offset, page.previous_offset) == ((), 0, 0, None)
        assert page.is_at_end
    assert shown.source.record("t", 0, 0) is None


@pytest.mark.parametrize("codec", [codec.label for codec in Codec])
def test_every_codec_reads_the_same(shown: Shown, codec: str) -> None:
    for first in range(0, 60, 20):
        shown.log.append(records(20, first), codec=codec)
    check_pages(shown, list(range(60)))
    page = shown.source.records("t", 0, offset=33, limit=1)
    (record,) = page.records
    assert (record.key, record.value, record.timestamp_ms) == (b"k3", b"33" * 20, FIRST_MS + 33)
    assert (record.codec, record.kind, record.timestamp_type) == (codec, RecordKind.DATA, "CreateTime")


def test_all_of_any_log_is_on_its_pages_once(shown: Shown, randomised: int) -> None:
    """Batches of all formats and codecs, with the gaps that compaction leaves, in several segments."""
    for seed in range(25 * randomised):
        random, writer = Random(seed), LegacyWriter(seed)
        shown.begin(f"any-{seed}")
        for _ in range(random.randint(1, 4)):
            shown.log.append_batches(writer.batches(random.randint(1, 8)), origin=AppendOrigin.AS_IS)
            if random.random() < 0.7:
                shown.log.roll()
        if random.random() < 0.3:
            shown.log.delete_records(random.randrange(shown.log.end_offset))
            shown.store._upkeep.checkpoint()
        expected = [record.offset for record in shown.log.read(shown.log.start_offset)]
        check_pages(shown, expected, random.randint(1, 30))


def test_records_are_read_without_a_refresh_of_the_directory(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    refreshes: list[str] = []
    refresh = Store.refresh

    def counted(store: Store) -> DirectoryView:
        refreshes.append(store.path)
        return refresh(store)

    monkeypatch.setattr(Store, "refresh", counted)
    shown.log.append(records(20))
    for page in (shown.source.records("t", 0), shown.source.tail("t", 0, 0)):
        assert (len(page.records), page.end_offset) == (20, 20)
    assert shown.source.record("t", 0, 19) is not None
    assert not refreshes
    shown.log.delete_records(5)
    shown.store._upkeep.checkpoint()
    for _ in range(3):
        assert shown.source.records("t", 0).first_offset == 5
    assert len(refreshes) == 1


def test_offsets_outside_of_the_log_give_the_nearest_page(shown: Shown) -> None:
    shown.log.append(records(20))
    shown.log.delete_records(5)
    shown.store._upkeep.checkpoint()
    page = shown.source.records("t", 0, offset=2, limit=3)
    assert ([record.offset for record in page.records], page.note) == (
        [5, 6, 7],
        "There is no offset 2: the log goes from 5 to 20.",
    )
    for beyond in (21, 2**63 - 1, 2**70):
        page = shown.source.records("t", 0, offset=beyond, limit=3)
        assert [record.offset for record in page.records] == [17, 18, 19]
    page = shown.source.records("t", 0, offset=20, limit=3)
    assert (page.records, page.note, page.is_at_end) == ((), None, True)
    for below in (-1, -(2**70)):
        assert shown.source.records("t", 0, offset=below, limit=3, backwards=True).records[0].offset == 5


def test_limits_are_kept_within_reason(shown: Shown) -> None:
    shown.log.append(records(1_200, size=1))
    for limit, expected in ((0, 1), (-5, 1), (10**9, 1_000)):
        assert len(shown.source.records("t", 0, limit=limit).records) == expected


def test_a_time_leads_to_its_first_record(shown: Shown) -> None:
    shown.log.append(records(50))
    page = shown.source.records("t", 0, time_ms=FIRST_MS + 30, limit=2)
    assert [record.offset for record in page.records] == [30, 31]
    page = shown.source.records("t", 0, time_ms=FIRST_MS + 30, limit=2, backwards=True)
    assert [record.offset for record in page.records] == [28, 29]
    for early in (0, -1, -(2**63)):
        assert shown.source.records("t", 0, time_ms=early, limit=2).records[0].offset == 0
    page = shown.source.records("t", 0, time_ms=2**63 - 1, limit=2)
    assert [record.offset for record in page.records] == [48, 49]
    assert page.note is not None
    assert page.note.startswith("There is no record at ")


def test_large_fields_are_cut_and_one_record_is_whole(shown: Shown) -> None:
    value, headers = os.urandom(10 * SHOWN_BYTES), [(f"h{number}", b"x") for number in range(SHOWN_HEADERS + 5)]
    shown.log.append([duralog.Record(key=b"k" * (SHOWN_BYTES + 1), value=value, headers=headers)])
    shown.log.append([duralog.Record(key=None, value=None), duralog.Record(key=b"", value=b"", headers=[("h", None)])])
    shown.log.append([duralog.Record(key=b"x", value=None)])
    large, nothing, empty, tombstone = shown.source.records("t", 0).records
    assert large.is_cut
    assert (len(large.key or b""), len(large.value or b""), len(large.headers)) == (
        SHOWN_BYTES,
        SHOWN_BYTES,
        SHOWN_HEADERS,
    )
    assert (large.key_bytes, large.value_bytes, large.header_count) == (SHOWN_BYTES + 1, len(value), len(headers))
    whole = shown.source.record("t", 0, 0)
    assert whole is not None
    assert (whole.value, len(whole.headers), whole.is_cut) == (value, len(headers), False)
    assert (nothing.key, nothing.value, nothing.is_tombstone, nothing.size_bytes) == (None, None, False, 0)
    assert (empty.key, empty.value, empty.headers, empty.is_tombstone) == (b"", b"", (("h", None),), False)
    assert (tombstone.is_tombstone, tombstone.is_cut) == (True, False)


def test_transactions_are_marked(shown: Shown) -> None:
    log = shown.log

    def write(producer_id: int, sequence: int, count: int) -> None:
        log.append(
            records(count),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    write(1, 0, 2)  # 0, 1: committed at 2
    log.end_transaction(1, 0, commit=True)
    write(1, 2, 2)  # 3, 4: aborted at 5
    log.end_transaction(1, 0, commit=False)
    write(2, 0, 1)  # 6: open
    log.append(records(1))  # 7: of no transaction, behind one that is open
    log.roll()
    write(2, 1, 1)  # 8: open
    page = shown.source.records("t", 0)
    assert [record.kind.value for record in page.records] == [
        *("data", "data", "marker", "aborted", "aborted", "marker", "open", "data", "open")
    ]
    markers = [record.marker for record in page.records if record.kind is RecordKind.MARKER]
    assert markers == ["commit of producer 1, epoch 0", "abort of producer 1, epoch 0"]
    assert page.last_stable_offset == 6
    committed = shown.source.records("t", 0, committed_only=True)
    assert [record.offset for record in committed.records] == [0, 1]
    assert committed.next_offset == 6
    assert [record.offset for record in shown.source.records("t", 0, backwards=True, committed_only=True).records] == [
        *(0, 1)
    ]
    facts = shown.source.partition("t", 0)
    assert facts.last_stable_offset == 6
    (transaction,) = facts.open_transactions
    assert (transaction.producer_id, transaction.first_offset) == (2, 6)
    log.end_transaction(2, 0, commit=True)
    assert shown.source.partition("t", 0).last_stable_offset == 10
    assert shown.source.records("t", 0, offset=6, limit=1).records[0].kind is RecordKind.DATA
    assert [record.offset for record in shown.source.records("t", 0, committed_only=True).records] == [0, 1, 6, 7, 8]


def test_the_last_stable_offset_is_followed_without_reading_all_again(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of now: a marker much later than the first record would roll the segment.
    written = [duralog.Record(key=b"k", value=b"v")] * 5
    shown.log.append(written, producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert shown.source.partition("t", 0).last_stable_offset == 0
    monkeypatch.setattr(PartitionLog, "producers", lambda _: pytest.fail("all of it was read again"))
    shown.log.append(written)
    assert shown.source.partition("t", 0).last_stable_offset == 0
    shown.log.end_transaction(3, 0, commit=True)
    assert shown.source.partition("t", 0).last_stable_offset == 11


def damage(log: PartitionLog, at_offset: int, change: bytes = b"\xff", shift: int = 70) -> None:
    """In the batch that holds the offset, behind its header."""
    segment = log.view.segments.floor(at_offset)
    assert segment is not None
    found = segment.find_batch(at_offset)
    assert found is not None
    with open(segment.file.name, "r+b") as file:
        file.seek(found.position + shift)
        file.write(change)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_damaged_batch_is_reported_and_skipped(shown: Shown, codec: str) -> None:
    for first in range(0, 50, 10):
        shown.log.append(records(10, first), codec=codec)
    damage(shown.log, 25)
    expected = [*range(20), *range(30, 50)]
    for pages in (shown.forward(limit=100), shown.backward(limit=100)):
        assert offsets(pages) == expected
        assert "Damage: " in str(pages[0].note)
        assert f"{0:020}.log" in str(pages[0].note)
    assert shown.source.record("t", 0, 25) is None


def test_a_length_that_leads_nowhere_ends_the_segment_and_not_the_log(shown: Shown) -> None:
    for first in range(0, 50, 10):
        shown.log.append(records(10, first))
        if first in (20, 40):
            shown.log.roll()
    damage(shown.log, 15, b"\0\0\0\1", shift=8)
    for pages in (shown.forward(limit=100), shown.backward(limit=100)):
        assert set(offsets(pages)) >= set(range(30, 50))
        assert set(offsets(pages)) <= {*range(10), *range(20, 50)}
        assert "Damage: " in "".join(str(page.note) for page in pages)
    damage(shown.log, 35, b"\x7f\xff\xff\xff", shift=8)
    assert set(offsets(shown.forward(limit=100))) >= set(range(10))


def test_a_batch_that_is_too_large_is_not_read(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_steps, "LARGEST_BATCH_BYTES", 200_000)
    shown.log.append(records(10))
    shown.log.append([duralog.Record(key=b"large", value=bytes(300_000), timestamp_ms=FIRST_MS)])
    shown.log.append(records(10))
    for pages in (shown.forward(limit=100), shown.backward(limit=100)):
        assert offsets(pages) == [*range(10), *range(11, 21)]
        assert "too large to be shown" in str(pages[0].note)


def test_a_page_ends_when_enough_was_read(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_pages, "_MOST_READ_BYTES", 100_000)
    for first in range(0, 400, 10):
        shown.log.append(
            records(10, first, 500),
            producer_id=1,
            producer_epoch=0,
            base_sequence=first,
            is_transactional=True,
        )
    shown.log.end_transaction(1, 0, commit=False)
    pages = shown.forward(limit=100, committed_only=True)
    assert offsets(pages) == []
    assert len(pages) > 2
    assert "were read for it" in str(pages[0].note)
    assert pages[-1].next_offset == 401


# Following


def test_a_tail_gives_what_came_and_no_more(shown: Shown) -> None:
    shown.log.append(records(10))
    page = shown.source.records("t", 0, backwards=True)
    assert shown.source.tail("t", 0, page.next_offset).records == ()
    shown.log.append(records(5, 10))
    page = shown.source.tail("t", 0, page.next_offset)
    assert [record.offset for record in page.records] == [10, 11, 12, 13, 14]
    shown.log.append(records(100, 15))
    page = shown.source.tail("t", 0, page.next_offset, limit=20)
    assert [record.offset for record in page.records] == list(range(95, 115))
    assert page.note == "Offsets 15 to 94 came too fast to be shown."
    assert page.next_offset == 115
    assert shown.source.tail("t", 0, 2**70).next_offset == 115
    assert shown.source.tail("t", 0, -5, limit=1_000).records[0].offset == 0


# Searching


def found_by(shown: Shown, key: bytes, **options: int) -> tuple[list[int], RunState, int]:
    search = shown.source.find_key("t", 0, key, **options)
    search.wait()
    progress = search.progress()
    assert progress.error is None
    assert progress.found == len(search.found())
    return [record.offset for record in search.found()], progress.state, progress.offset


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_search_finds_all_records_of_a_key(shown: Shown, codec: str) -> None:
    for first in range(0, 100, 10):
        shown.log.append(records(10, first), codec=codec)
        if first == 50:
            shown.log.roll()
    shown.log.append([duralog.Record(key=b"", value=b"empty"), duralog.Record(key=None, value=b"none")])
    assert found_by(shown, b"k3") == (list(range(3, 100, 5)), RunState.DONE, 102)
    assert found_by(shown, b"k3", from_offset=60) == (list(range(63, 100, 5)), RunState.DONE, 102)
    assert found_by(shown, b"k") == ([], RunState.DONE, 102)
    assert found_by(shown, b"") == ([100], RunState.DONE, 102)
    assert found_by(shown, b"k3", from_offset=102) == ([], RunState.DONE, 102)


def test_a_search_stops_at_its_limit_and_continues_from_there(shown: Shown) -> None:
    shown.log.append(records(100))
    everything: list[int] = []
    offset, state = 0, RunState.STOPPED
    while state is RunState.STOPPED:
        found, state, offset = found_by(shown, b"k1", from_offset=offset, limit=6)
        everything += found
    assert everything == list(range(1, 100, 5))


def test_a_search_passes_damage_over(shown: Shown) -> None:
    for first in range(0, 50, 10):
        shown.log.append(records(10, first))
    damage(shown.log, 25)
    assert found_by(shown, b"k0") == ([0, 5, 10, 15, 30, 35, 40, 45], RunState.DONE, 50)


def test_a_search_can_be_stopped_and_only_some_run_at_a_time(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        shown.log.append(records(200, size=8_000))
    assert shown.log.size_bytes > PIECE_BYTES
    may_go = Event()
    real = DirectoryKeySearch._search_piece

    def wait(search: DirectoryKeySearch, *arguments: Any) -> bool:
        assert may_go.wait(60)
        return real(search, *arguments)

    monkeypatch.setattr(DirectoryKeySearch, "_search_piece", wait)
    first, second = (shown.source.find_key("t", 0, b"k1", limit=1_000) for _ in range(2))
    with pytest.raises(Busy):
        shown.source.find_key("t", 0, b"k1")
    first.stop()
    third = shown.source.find_key("t", 0, b"k1", limit=1_000)
    second.stop()
    third.stop()
    may_go.set()
    for search in (first, second, third):
        search.wait()
        assert search.progress().state is RunState.STOPPED
        assert search.progress().offset < 1_000
    assert found_by(shown, b"k1", limit=1_000)[1] is RunState.DONE


def test_a_stopped_search_continues_where_it_ended(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is stopped between the records of one step, after some of them were found."""
    shown.log.append(records(50), codec="none")
    shown.log.append(records(50, 50), codec="lz4")
    searches: list[DirectoryKeySearch] = []
    real = key_search.with_key

    def stopped_meanwhile(*arguments: Any) -> Any:
        searches[0].stop()
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(key_search, "with_key", stopped_meanwhile)
        search = DirectoryKeySearch(shown.source._logs, TopicPartition("t", 0), b"k3", from_offset=None, limit=100)
        searches.append(search)
        search.start()
        search.wait()
    assert search.progress().state is RunState.STOPPED
    found = [record.offset for record in search.found()]
    more, state, _ = found_by(shown, b"k3", from_offset=search.progress().offset)
    assert state is RunState.DONE
    assert found + more == list(range(3, 100, 5))


def test_a_search_in_a_topic_that_vanishes_is_reported(shown: Shown) -> None:
    shown.log.append(records(10))
    shown.source.step()
    shown.store.delete_topic("t")
    search = shown.source.find_key("t", 0, b"k1")
    search.wait()
    assert search.progress().state is RunState.FAILED
    assert search.progress().error == "there is no partition 0 of t"
    shown.source.step()
    with pytest.raises(UnknownTopic):
        shown.source.find_key("t", 0, b"k1")


def test_a_bomb_is_not_unpacked(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.console.sources.shown_batches._MOST_UNPACKED_BYTES", 100_000)
    bomb = record_batch.encode(
        [duralog.Record(key=b"k", value=bytes(1_000_000), timestamp_ms=1)], base_offset=0, codec=Codec.ZSTD
    )
    assert len(bomb) < 5_000
    shown.log.append_batches(bomb, origin=AppendOrigin.AS_IS)
    shown.log.append(records(3))
    page = shown.source.records("t", 0)
    assert [record.offset for record in page.records] == [1, 2, 3]
    assert "Damage: " in str(page.note)
