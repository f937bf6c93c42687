"""Records of whole topics: merged pages, searches and downloads, from a directory and through a broker."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duralog
from duralog.columnar.schema import RECORD_SCHEMA
from duralog.console.facts.runs import RunState
from duralog.console.facts.topic_records import MOST_MATCHES, Cursor, MatchProgress, PlacedRecord, WantedRecords
from duralog.console.source import Busy, Source
from duralog.console.sources import topic_search
from duralog.console.sources.directory import batch_steps
from duralog.console.sources.directory.source import DirectorySource
from duralog.console.sources.opening import open_source
from duralog.console.sources.record_files import FILES
from duralog.console.sources.topic_pages import topic_page
from duralog.console.sources.topic_search import TopicSearch
from duralog.errors import DuralogError
from duralog.filters.parsing import parse
from duralog.testing import running_broker

KEEP = {"log.retention.ms": -1, "log.cleaner.enable": False}
FIRST_MS = 1_700_000_000_000
PARTITIONS = (0, 1, 2, 3)
RECORDS = 600
Place = tuple[int, int, int]
"""Time, partition, offset: the order of the pages."""


def fill(store: duralog.Store) -> None:
    """Partition 3 is empty, and 2 has fewer records; times rise in each, and are often the same."""
    random = Random(5)
    for number in range(RECORDS):
        partition = random.choice((0, 0, 0, 0, 1, 1, 1, 1, 2))
        log = store.partition("t", partition)
        value = {"n": number, "customer": {"id": number % 50}, "tags": ["even" if number % 2 == 0 else "odd"]}
        record = duralog.Record(
            key=b"k%d" % (number % 10),
            value=None if number % 97 == 0 else json.dumps(value).encode(),
            timestamp_ms=FIRST_MS + number // 7,
            headers=[("trace", b"%d" % number)] if number % 5 == 0 else (),
        )
        log.append([record], codec="zstd" if number % 3 == 0 else "none")
        if number % 150 == 149:
            log.roll()


@pytest.fixture(scope="module", params=["directory", "broker"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    directory = tmp_path_factory.mktemp("topic") / "data"
    with duralog.open(directory, KEEP) as store:
        store.create_topic("t", len(PARTITIONS))
        fill(store)
    if request.param == "directory":
        opened = open_source(str(directory), start=False)
        yield opened
        opened.close()
        return
    with running_broker(KEEP, data=str(directory)) as broker:
        opened = open_source(broker.bootstrap_servers, start=False)
        opened.step()
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Place, duralog.Record]]:
    directory = tmp_path_factory.mktemp("all") / "data"
    with duralog.open(directory, KEEP) as store:
        store.create_topic("t", len(PARTITIONS))
        fill(store)
        found = [
            ((record.timestamp_ms, partition, record.offset), record)
            for partition in PARTITIONS
            for record in store.partition("t", partition).read(0)
        ]
    return sorted(found, key=lambda each: each[0])


def places(records: tuple[PlacedRecord, ...]) -> list[Place]:
    return [record.order for record in records]


# Pages


@pytest.mark.parametrize("limit", [23, 100])
def test_pages_are_what_sorting_everything_gives(
    source: Source, everything: list[tuple[Place, duralog.Record]], limit: int
) -> None:
    expected = [place for place, _ in everything]
    for backwards in (False, True):
        pages = [topic_page(source, "t", PARTITIONS, backwards=backwards, limit=limit)]
        while not (pages[-1].is_at_start if backwards else pages[-1].is_at_end):
            at: Cursor = pages[-1].first if backwards else pages[-1].end
            pages.append(topic_page(source, "t", PARTITIONS, at=at, backwards=backwards, limit=limit))
            assert len(pages) <= RECORDS
        if backwards:
            pages.reverse()
        assert [place for page in pages for place in places(page.records)] == expected
        assert all(earlier.end == later.first for earlier, later in pairwise(pages))


def test_a_page_and_back(source: Source) -> None:
    first = topic_page(source, "t", PARTITIONS, limit=20)
    second = topic_page(source, "t", PARTITIONS, at=first.end, limit=20)
    back = topic_page(source, "t", PARTITIONS, at=second.first, backwards=True, limit=20)
    assert (first.is_at_start, second.is_at_start, back.is_at_start) == (True, False, True)
    assert places(back.records) == places(first.records)


def test_a_page_from_a_time_on_and_before_it(source: Source, everything: list[tuple[Place, duralog.Record]]) -> None:
    expected = [place for place, _ in everything]
    time_ms = FIRST_MS + 40
    at = next(number for number, place in enumerate(expected) if place[0] >= time_ms)
    page = topic_page(source, "t", PARTITIONS, time_ms=time_ms, limit=30)
    assert places(page.records) == expected[at : at + 30]
    before = topic_page(source, "t", PARTITIONS, time_ms=time_ms, backwards=True, limit=30)
    assert places(before.records) == expected[at - 30 : at]
    assert before.end == page.first
    late = topic_page(source, "t", PARTITIONS, time_ms=FIRST_MS + 10**9)
    assert (late.records, late.is_at_end) == ((), True)


def test_some_partitions_only(source: Source, everything: list[tuple[Place, duralog.Record]]) -> None:
    page = topic_page(source, "t", (2, 3), limit=1_000)
    assert places(page.records) == [place for place, _ in everything if place[1] == 2]
    assert (page.is_at_start, page.is_at_end) == (True, True)


def test_a_cursor_beyond_the_log_is_its_end(source: Source) -> None:
    page = topic_page(source, "t", PARTITIONS, at=dict.fromkeys(PARTITIONS, 10**9))
    assert (page.records, page.is_at_end) == ((), True)
    before = topic_page(source, "t", PARTITIONS, at=dict.fromkeys(PARTITIONS, 10**9), backwards=True)
    assert before.records == topic_page(source, "t", PARTITIONS, backwards=True).records


def test_times_that_go_back_lose_nothing(tmp_path: Path) -> None:
    random = Random(3)
    with duralog.open(tmp_path / "data", KEEP) as store:
        store.create_topic("t", 3)
        for partition in range(3):
            records = [duralog.Record(value=b"x", timestamp_ms=FIRST_MS + random.randrange(50)) for _ in range(40)]
            store.partition("t", partition).append(records)
    source = DirectorySource(str(tmp_path / "data"))
    for backwards in (False, True):
        seen: list[tuple[int, int]] = []
        page = topic_page(source, "t", range(3), backwards=backwards, limit=11)
        while True:
            seen += [(one.partition, one.record.offset) for one in page.records]
            if page.is_at_start if backwards else page.is_at_end:
                break
            at = page.first if backwards else page.end
            page = topic_page(source, "t", range(3), at=at, backwards=backwards, limit=11)
        assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(40)]
        assert len(seen) == 120
    source.close()


# Searches


def searched(source: Source, wanted: WantedRecords) -> tuple[list[Place], MatchProgress]:
    search = source.topic_searches.start(wanted)
    assert isinstance(search, TopicSearch)
    search.wait(60)
    return places(search.found()), search.progress()


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_search_finds_what_a_plain_one_finds(
    source: Source, everything: list[tuple[Place, duralog.Record]], newest_first: bool
) -> None:
    wanted = WantedRecords(
        topic="t",
        partitions=PARTITIONS,
        where=parse("$.customer.id < 10 and $.tags[*] = odd and not key = k3"),
        from_ms=FIRST_MS + 10,
        before_ms=FIRST_MS + 60,
        newest_first=newest_first,
    )
    expected = []
    for place, record in everything:
        value = {} if record.value is None else json.loads(record.value)
        is_in_time = FIRST_MS + 10 <= place[0] < FIRST_MS + 60
        if value and is_in_time and record.key != b"k3" and value["customer"]["id"] < 10 and value["tags"] == ["odd"]:
            expected.append(place)
    assert len(expected) > 20
    found, progress = searched(source, wanted)
    assert found == (expected[::-1] if newest_first else expected)
    assert (progress.state, progress.matches, progress.share, progress.is_cut) == (
        RunState.DONE,
        len(found),
        1.0,
        False,
    )
    assert progress.records_read > len(found)


def test_a_search_of_some_offsets(source: Source, everything: list[tuple[Place, duralog.Record]]) -> None:
    wanted = WantedRecords(topic="t", partitions=(0, 1), from_offset=20, before_offset=60)
    found, _ = searched(source, wanted)
    assert sorted(found) == [place for place, _ in everything if place[1] < 2 and 20 <= place[2] < 60]


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_search_keeps_the_first_matches_and_says_that_there_are_more(
    source: Source, everything: list[tuple[Place, duralog.Record]], newest_first: bool
) -> None:
    wanted = WantedRecords(topic="t", partitions=PARTITIONS, where=parse("key exists"), newest_first=newest_first)
    reader = source.topic_searches._reader  # type: ignore[attr-defined]
    search = TopicSearch(reader, wanted, limit=25)
    search.start()
    search.wait(60)
    expected = sorted((place for place, _ in everything), reverse=newest_first)
    assert places(search.found()) == expected[:25]
    assert search.progress().is_cut


def make_backward(directory: Path) -> list[Place]:
    """Two partitions of three segments each, whose times go back and forth. Returns all places, the oldest first."""
    random, places = Random(7), []
    with duralog.open(directory, {**KEEP, "log.index.interval.bytes": 100}) as store:
        store.create_topic("t", 2)
        for partition in (0, 1):
            for turn in range(6):
                times = [FIRST_MS + random.randrange(1_000_000) for _ in range(1_000)]
                log = store.partition("t", partition)
                first = log.append([duralog.Record(value=bytes(300), timestamp_ms=time) for time in times]).base_offset
                places += [(time, partition, first + at) for at, time in enumerate(times)]
                if turn % 2 == 1:
                    log.roll()
    return sorted(places)


@pytest.mark.parametrize("newest_first", [True, False])
def test_the_first_matches_are_exact_where_times_go_back(tmp_path: Path, newest_first: bool) -> None:
    expected = make_backward(tmp_path / "data")
    source = open_source(str(tmp_path / "data"), start=False)
    found, progress = searched(source, WantedRecords(topic="t", partitions=(0, 1), newest_first=newest_first))
    source.close()
    assert found == (expected[::-1] if newest_first else expected)[:MOST_MATCHES]
    assert (progress.is_cut, progress.is_about, progress.share) == (True, False, 1.0)


def test_the_first_matches_of_a_broker_are_said_to_be_about(tmp_path: Path) -> None:
    make_backward(tmp_path / "data")
    with running_broker(KEEP, data=str(tmp_path / "data")) as broker:
        source = open_source(broker.bootstrap_servers, start=False)
        source.step()
        for newest_first in (True, False):
            found, progress = searched(source, WantedRecords(topic="t", partitions=(0, 1), newest_first=newest_first))
            assert (len(found), progress.is_cut, progress.is_about) == (MOST_MATCHES, True, True)
        source.close()


def test_a_search_with_enough_matches_reads_no_segment_that_is_older(tmp_path: Path) -> None:
    """One record of the first segment has a late time: its segment is read, those in between are not."""
    with duralog.open(tmp_path / "data", KEEP) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        for turn in range(10):
            times = [FIRST_MS + turn * 1_000 + at for at in range(1_000)]
            if turn == 0:
                times[5] = FIRST_MS + 10**6
            log.append([duralog.Record(value=bytes(1_000), timestamp_ms=time) for time in times])
            log.roll()
    source = open_source(str(tmp_path / "data"), start=False)
    found, progress = searched(source, WantedRecords(topic="t", partitions=(0,)))
    source.close()
    assert [offset for _, _, offset in found] == [5, *range(9_999, 9_999 - MOST_MATCHES + 1, -1)]
    assert progress.records_read < 4_000


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_search_reads_every_batch_once(source: Source, monkeypatch: pytest.MonkeyPatch, newest_first: bool) -> None:
    for module in (topic_search, batch_steps):
        monkeypatch.setattr(module, "_FIRST_BYTES", 200)
        monkeypatch.setattr(module, "_GROWTH", 1)
    wanted = WantedRecords(topic="t", partitions=PARTITIONS, where=parse("key = none"), newest_first=newest_first)
    found, progress = searched(source, wanted)
    assert (found, progress.records_read) == ([], RECORDS)
    assert progress.bytes_total in (None, progress.bytes_read), "a broker does not know how much there is"


def test_a_search_can_be_stopped(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = source.topic_searches._reader  # type: ignore[attr-defined]
    search = TopicSearch(reader, WantedRecords(topic="t", partitions=PARTITIONS))
    search.stop()
    search.start()
    search.wait(60)
    assert search.progress().state is RunState.STOPPED


def test_a_partition_that_is_not_there_is_a_note(source: Source) -> None:
    found, progress = searched(source, WantedRecords(topic="t", partitions=(2, 9)))
    assert {place[1] for place in found} == {2}
    assert "Partition 9" in progress.notes[0]


# Downloads


def downloaded(source: Source, wanted: WantedRecords, extension: str) -> tuple[bytes, list[MatchProgress]]:
    file, reports = FILES[extension](), list[MatchProgress]()
    batches = source.topic_searches.matching(wanted, reports.append, lambda: False)
    return b"".join([*map(file.feed, batches), file.finish()]), reports


def test_downloads_have_all_matches(source: Source, everything: list[tuple[Place, duralog.Record]]) -> None:
    wanted = WantedRecords(topic="t", partitions=PARTITIONS, where=parse("header trace exists"))
    expected = sorted(((place[1], place[2]), record) for place, record in everything if record.headers)
    lines, reports = downloaded(source, wanted, "jsonl")
    rows = [json.loads(line) for line in lines.decode().splitlines()]
    assert [(row["partition"], row["offset"]) for row in rows] == [place for place, _ in expected]
    assert [row["headers"][0]["value"].encode() for row in rows] == [record.headers[0][1] for _, record in expected]
    assert (reports[-1].matches, reports[-1].share) == (len(expected), 1.0)
    table = pq.read_table(io.BytesIO(downloaded(source, wanted, "parquet")[0]))
    assert table.schema.equals(RECORD_SCHEMA)
    assert table.column("value").to_pylist() == [record.value for _, record in expected]
    cells = list(csv.DictReader(io.StringIO(downloaded(source, wanted, "csv")[0].decode(), newline="")))
    assert [cell["key"].encode() for cell in cells] == [record.key for _, record in expected]
    assert [cell["value_encoding"] for cell in cells] == ["utf-8" if record.value else "" for _, record in expected]


def test_a_stopped_download_fails(source: Source) -> None:
    wanted = WantedRecords(topic="t", partitions=PARTITIONS)
    with pytest.raises(DuralogError, match="stopped"):
        list(source.topic_searches.matching(wanted, lambda _: None, lambda: True))


def test_a_few_downloads_at_a_time(source: Source) -> None:
    wanted = WantedRecords(topic="t", partitions=PARTITIONS)
    running = [
        source.topic_searches.matching(wanted, lambda _: None, lambda: False)
        for _ in range(topic_search._MOST_DOWNLOADS + 1)
    ]
    for batches in running[:-1]:
        next(batches)
    with pytest.raises(Busy):
        next(running[-1])
    for batches in running[:-1]:
        batches.close()  # type: ignore[attr-defined]
    assert downloaded(source, wanted, "jsonl")[0]


@pytest.mark.parametrize("extension", FILES)
def test_a_file_without_records(extension: str) -> None:
    empty = FILES[extension]().finish()
    if extension == "parquet":
        assert pq.read_table(io.BytesIO(empty)).num_rows == 0
    else:
        assert len(empty.splitlines()) == (1 if extension == "csv" else 0)


HOSTILE = (
    b"=1+1",
    b"+1",
    b"-1",
    b"@x",
    b"\tx",
    b"\rx",
    b"\xff\x00",
    b"\xfa\xeb",
    b"'=1",
    b'a"b,\n',
    "€".encode(),
    b"",
    None,
)


def hostile_batch() -> pa.RecordBatch:
    rows = [
        {
            "topic": "-t",
            "partition": 0,
            "offset": number,
            "timestamp": None if number else 2**62,
            "timestamp_type": 0,
            "key": data,
            "value": data,
            "headers": [{"key": "=h", "value": data}],
        }
        for number, data in enumerate(HOSTILE)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def test_cells_are_never_formulas_and_read_back_to_their_bytes() -> None:
    text = (FILES["csv"].feed(file := FILES["csv"](), hostile_batch()) + file.finish()).decode()
    cells = list(csv.reader(io.StringIO(text, newline="")))
    assert not [cell for row in cells for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    for row, data in zip(csv.DictReader(io.StringIO(text, newline="")), HOSTILE, strict=True):
        cell, encoding = row["value"], row["value_encoding"]
        if encoding.startswith("quoted "):
            cell, encoding = cell[1:], encoding.removeprefix("quoted ")
        read = None if not encoding else base64.b64decode(cell) if encoding == "base64" else cell.encode()
        assert read == data


def test_json_lines_read_back_to_their_bytes() -> None:
    lines = FILES["jsonl"]().feed(hostile_batch()).decode().splitlines()
    assert len(lines) == len(HOSTILE)
    for line, data in zip(map(json.loads, lines), HOSTILE, strict=True):
        for part in (line, line["headers"][0]):
            text = part.get("value")
            read = base64.b64decode(part["value_base64"]) if "value_base64" in part else text and text.encode()
            assert (b"" if text == "" else read) == data
