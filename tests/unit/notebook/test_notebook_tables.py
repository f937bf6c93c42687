"""Stores, logs and reports as tables in a notebook: right, small and escaped. Records as frames of other libraries."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.errors import DuralogError
from duralog.notebook.html_tables import MOST_BLOCKS, Block, captioned, strip_html, table_html, time_shown
from duralog.notebook.notebook_tables import verification_html
from duralog.operations.compact import CompactRequest, compact
from duralog.operations.compacted_logs import LogsToCompact
from duralog.operations.retain import RetainRequest, retain
from duralog.operations.verify import VerifyRequest, verify
from duralog.storage.log.retention import Removal, RetentionReport
from tests.support.places import GOLDEN

START_MS = 1_700_000_000_000
HOSTILE = '<img src=x onerror="alert(1)">\x1b[31m'


class Cells(HTMLParser):
    """The rows of the tables, as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.words = ""
        self.blocks: list[tuple[str, str]] = []
        """Text and style of each block of a picture."""
        self._is_in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if "title" in given:
            self.blocks.append((str(given["title"]), str(given["style"])))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._is_in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[-1][-1] += data
        else:
            self.words += data


def shown(value: Any) -> Cells:
    cells = Cells(value._repr_html_())
    assert cells.tags <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}
    return cells


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with duralog.open(tmp_path / "data", {"log.cleaner.enable": False}) as store:
        store.create_topic("changes", 2, {"cleanup.policy": "compact"})
        log = store.partition("changes", 0)
        for number in range(10):
            log.append([duralog.Record(key=b"k%d" % (number % 2), value=b"v", timestamp_ms=START_MS + number)])
            if number % 4 == 3:
                log.roll()
        store.create_topic("empty", 1)
    return tmp_path / "data"


def test_a_store(path: Path) -> None:
    with duralog.open(path, {"log.cleaner.enable": False}) as store:
        cells = shown(store)
        assert "2 topics, open for writing" in cells.words
    assert cells.rows[0] == ["topic", "partitions", "policy", "offsets", "segments", "size", "newest record"]
    assert cells.rows[1][:5] == ["changes", "2", "compact", "10", "4"]
    assert cells.rows[1][6] == "2023-11-14 22:13:20Z"
    assert cells.rows[2] == ["empty", "1", "delete", "0", "1", "0 B", "-"]
    assert [text.split(":")[0] for text, _ in cells.blocks] == ["changes"]


def test_a_store_that_is_only_read(path: Path) -> None:
    with duralog.open(path, read_only=True) as store:
        assert shown(store).rows[1][:5] == ["changes", "2", "compact", "10", "4"]
        # Showing it is not asking for its logs: they are found as they are when somebody does.
        assert dict(store.logs) == {}
        with duralog.open(path) as writer:
            writer.partition("changes", 0).append([duralog.Record(key=b"new", value=b"v")])
        assert store.partition("changes", 0).end_offset == 11
    assert shown(store).rows[2][:2] == ["empty", "1"]


def test_of_very_many_partitions_only_what_is_known(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.storage.store._MOST_SHOWN", 2)
    with duralog.open(path, read_only=True) as store:
        store.partition("empty", 0)
        rows = shown(store).rows
    assert rows[1][3:] == ["-", "-", "-", "-"]
    assert rows[2][3] == "0"


def test_a_log(path: Path) -> None:
    with duralog.open(path, read_only=True) as store:
        log = store.partition("changes", 0)
        cells = shown(log)
        sizes = [segment.size_bytes for segment in log.segments]
    assert "changes-0" in cells.words
    assert "offsets 0 to 10" in cells.words
    assert [row[:3] for row in cells.rows[1:]] == [
        ["0", "4", f"{sizes[0]} B"],
        ["4", "8", f"{sizes[1]} B"],
        ["8", "10", f"{sizes[2]} B"],
    ]
    assert [row[4] for row in cells.rows[1:]] == ["", "", "active"]
    assert [text.split(":")[0] for text, _ in cells.blocks] == ["offsets 0 to 4", "offsets 4 to 8", "offsets 8 to 10"]
    assert all(f"width: {size / sum(sizes):.3%}" in style for (_, style), size in zip(cells.blocks, sizes, strict=True))


def test_a_log_of_many_segments_shows_the_first_and_the_last(tmp_path: Path) -> None:
    with duralog.open(tmp_path) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        for _ in range(50):
            log.append([duralog.Record(value=b"v", timestamp_ms=START_MS)])
            log.roll()
        rows = shown(log).rows
    assert len(rows) == 20
    assert rows[10][0] == "33 more"
    assert (rows[1][0], rows[-1][0]) == ("0", "50")


def test_reports(path: Path) -> None:
    with duralog.open(path, {"log.cleaner.enable": False}) as store:
        store.partition("changes", 0).roll()
        compacted = shown(store.compact("changes", 0))
        again = shown(store.compact("changes", 0))
        retention = shown(store.plan_retention())
    assert "Compaction of changes-0" in compacted.words
    assert compacted.rows[1] == ["records", "10", "2", "80.0%"]
    assert ["superseded by a later record", "", "", "8"] in compacted.rows
    before, after = compacted.blocks
    assert (before[0].split(":")[0], after[0].split(":")[0]) == ("before", "after")
    assert "width: 100.000%" in before[1]
    assert "width: 100.000%" not in after[1]
    assert "nothing can be compacted" in again.rows[-1][0]
    assert retention.words.split() == ["Retention", "nothing", "has", "expired"]
    removal = Removal(
        topic="t", partition=3, base_offset=0, end_offset=1000, size_bytes=2048, policy="BeyondSize", reason=HOSTILE
    )
    full = shown(RetentionReport(removals=[removal] * 30, failures={("t", 4): "it is offline"}))
    assert full.rows[1][:5] == ["t-3", "0", "1,000", "2 KiB", "BeyondSize"]
    assert "30 segments, 60 KiB" in full.words
    assert "and 11 more" in full.words


def test_a_verification(path: Path) -> None:
    check = duralog.Verification(str(path))
    assert "not run yet" in shown(check).words
    reports = list(check.run())
    cells = shown(check)
    assert f"{len(reports)} partitions, no findings" in cells.words
    assert [row[0] for row in cells.rows[1:]] == [report.name for report in reports]
    log = next((path / "changes-0").glob("*.log"))
    damaged = bytearray(log.read_bytes())
    damaged[30] ^= 1
    log.write_bytes(damaged)
    check = duralog.Verification(str(path))
    (report,) = [report for report in check.run() if report.error_count]
    cells = shown(check)
    assert cells.rows[1][0] == "changes-0"
    assert int(cells.rows[1][-1]) == report.error_count
    assert [text for text, _ in cells.blocks if not text.endswith("sound")] == ["changes-0: 1 finding"]
    alone = shown(report)
    assert alone.rows[2] == ["finding"]
    assert alone.rows[3] == [str(report.errors[0])]


def test_a_finding_among_very_many_partitions_is_seen(path: Path) -> None:
    check = duralog.Verification(str(path))
    (sound, *_) = check.run()
    damaged = replace(sound, folder="bad-7", error_count=1)
    cells = Cells(verification_html("logs", [*[sound] * MOST_BLOCKS * 2, damaged], 1))
    assert cells.blocks[0][0] == "bad-7: 1 finding"
    assert cells.rows[1][0] == "bad-7"
    strip = Cells(strip_html([*[Block(1, "", "#000")] * MOST_BLOCKS, Block(1, "", "#fff")]))
    assert "background: #000" in strip.blocks[-1][1]


def test_reports_of_whole_directories(path: Path) -> None:
    compacted = shown(compact(CompactRequest(logs=LogsToCompact(path=str(path)))))
    assert f"Compaction of {path}" in compacted.words
    assert "1 partition compacted" in compacted.words
    assert [row[:3] for row in compacted.rows[1:]] == [["changes-0", "8", "2"], ["changes-1", "", ""]]
    assert compacted.rows[2][-1] == "nothing to compact"
    assert [text.split(":")[0] for text, _ in compacted.blocks] == ["before", "after"]
    verified = verify(VerifyRequest(path=str(path)))
    cells = shown(verified)
    assert f"{len(verified.partitions)} partitions, no findings" in cells.words
    assert len(cells.blocks) == len(verified.partitions)
    retained = shown(retain(RetainRequest(path=str(path), now_ms=START_MS + 1000, dry_run=True)))
    assert "nothing has expired" in retained.words


def test_a_scan(path: Path) -> None:
    scan = duralog.scan(path, topic="changes", columns=["offset", "key"], where="key exists")
    cells = shown(scan)
    assert cells.rows[1:] == [["offset", "int64"], ["key", "binary"]]
    assert f"changes in {path}, where key exists" in cells.words


def test_stats(path: Path) -> None:
    cells = shown(duralog.stats(path))
    assert cells.rows[1][:6] == ["changes", "2", "10", "2", "8", "0"]
    assert isinstance(duralog.stats(path), duralog.StatsReport)


def test_text_is_never_markup() -> None:
    html = captioned(HOSTILE, HOSTILE, [HOSTILE], [[HOSTILE]], [HOSTILE]) + table_html([HOSTILE], [[HOSTILE]])
    assert "<img" not in html
    assert "\x1b" not in html
    assert Cells(html).rows[1] == [HOSTILE.replace("\x1b", "\\x1b")]


def test_a_strip_of_very_many_blocks_is_bounded_and_escaped() -> None:
    cells = Cells(strip_html([Block(1, HOSTILE, "#000")] * 10_000))
    assert len(cells.blocks) == MOST_BLOCKS
    assert cells.blocks[0][0] == HOSTILE.replace("\x1b", "\\x1b")
    assert cells.blocks[-1][0] == "9,801 more"
    assert "width: 98.010%" in cells.blocks[-1][1]
    assert strip_html([]) == ""


def test_times_beyond_the_calendar() -> None:
    assert [time_shown(time_ms) for time_ms in (None, -1, 0, 2**62, -(2**62))] == [
        *("-", "-", "1970-01-01 00:00:00Z", str(2**62), str(-(2**62)))
    ]


def test_frames(path: Path) -> None:
    with duralog.open(path, read_only=True) as store:
        log = store.partition("changes", 0)
        table = log.read_arrow(2, 5, columns=["offset", "timestamp", "key"])
        pandas_frame = log.to_pandas(2, 5, columns=["offset", "timestamp", "key"])
        polars_frame = log.to_polars(2, 5, columns=["offset", "timestamp", "key"])
        assert len(log.to_pandas()) == len(log.to_polars()) == 10
        committed = log.to_polars(isolation="read_committed")
        assert committed.columns == log.read_arrow().column_names
        with pytest.raises(duralog.OffsetOutOfRange):
            log.to_pandas(99)
    assert pandas_frame["offset"].tolist() == polars_frame["offset"].to_list() == [2, 3, 4]
    assert pandas_frame["key"].tolist() == polars_frame["key"].to_list() == [b"k0", b"k1", b"k0"]
    assert pandas_frame["timestamp"][0].isoformat() == "2023-11-14T22:13:20.002000+00:00"
    assert polars_frame["timestamp"].to_list() == table["timestamp"].to_pylist()


def test_duckdb_asks_the_table(path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duralog.open(path, read_only=True) as store:
        records = store.partition("changes", 0).read_arrow()
    with duckdb.connect() as connection:
        connection.register("records", records)
        found = connection.sql(
            'select key, count(*), max("offset") from records where value is not null group by key order by key'
        ).fetchall()
    assert found == [(b"k0", 5, 8), (b"k1", 5, 9)]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named(path: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with duralog.open(path, read_only=True) as store:
        log = store.partition("changes", 0)
        with pytest.raises(DuralogError, match=f"to_{library} needs {library}, .* pip install {library}"):
            getattr(log, f"to_{library}")()


def test_showing_loads_no_library() -> None:
    program = (
        "import duralog, sys\n"
        f"store = duralog.open({str(GOLDEN / 'store')!r}, read_only=True)\n"
        "store._repr_html_()\n"
        "print(*{'pandas', 'polars', 'pyarrow', 'duckdb', 'IPython', 'pyspark'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
