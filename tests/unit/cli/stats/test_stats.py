"""`duralog stats`: the figures of the Spark job without Spark, and the page with charts."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import select
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

import duralog
from duralog.cli.stats.view import write_stats
from duralog.cli.voice.output import Output
from duralog.command_line import app
from duralog.spark.jobs.stats import stats as stats_on_spark
from duralog.statistics.on_threads import stats_on_threads
from duralog.statistics.shapes import SegmentState
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.local_files import refusals
from tests.support.places import GOLDEN
from tests.support.spark.lake_directory import START_MS, run_here

HOSTILE_KEY = b"<script>alert(1)</script>"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["stats", *arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A compacted topic, compacted in part, with hot keys of which one is hostile; a plain one; an empty one."""
    path = tmp_path / "data"
    with duralog.open(path, {"log.cleaner.enable": False}) as store:
        store.create_topic("changes", 2, {"cleanup.policy": "compact"})
        log = store.partition("changes", 0)
        _append(log, 0, 300)
        store.compact("changes", 0)
        _append(log, 300, 650)
        _append(store.partition("changes", 1), 0, 40)
        store.create_topic("plain", 1)
        store.partition("plain", 0).append([duralog.Record(value=b"x" * 100, timestamp_ms=START_MS)], codec="zstd")
        store.create_topic("nothing", 1)
    return path


def _append(log: duralog.PartitionLog, first: int, end: int) -> None:
    for number in range(first, end):
        key = HOSTILE_KEY if number % 3 == 0 else b"\xff\x00%d" % (number % 20)
        value = None if number % 50 == 49 else b"v" * (number % 30)
        record = duralog.Record(key=key, value=value, timestamp_ms=START_MS + number * 60_000)
        log.append([record], codec=["none", "lz4"][number % 2])
        if number % 100 == 99:
            log.roll()


def without_time(report: Any) -> dict[str, Any]:
    return {**report.to_dict(), "seconds": 0}


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["store", "legacy", "compaction/after"])
@pytest.mark.parametrize("options", [{}, {"prefix_length": 2, "largest": 3}, {"compaction": False}])
def test_the_figures_are_those_of_the_job(
    folder: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(monkeypatch, importlib.import_module("duralog.spark.jobs.stats"))
    path = str(GOLDEN / folder)
    on_spark = stats_on_spark(None, path, **options)  # type: ignore[arg-type]
    for threads in (1, 3):
        assert without_time(stats_on_threads(path, threads=threads, **options)) == without_time(on_spark)
    with_charts = stats_on_threads(path, hot_keys=3, **options)
    assert without_time(with_charts) == without_time(on_spark)
    assert with_charts.shapes.keys() == {topic.topic for topic in on_spark.topics}


@pytest.mark.slow
def test_without_pyspark(data: Path) -> None:
    """Nothing of it is even looked for."""
    program = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['py4j'] = None\n"
        f"sys.argv = ['duralog', 'stats', {str(data)!r}, '--json']\n"
        "from duralog.command_line import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [topic["topic"] for topic in json.loads(done.stdout)["topics"]] == ["changes", "nothing", "plain"]


def test_keys_that_do_not_fit_are_counted_in_shares(data: Path) -> None:
    whole = stats_on_threads(data, hot_keys=4)
    tiny = stats_on_threads(data, hot_keys=4, map_bytes=200)
    assert without_time(tiny) == without_time(whole)
    assert tiny.shapes["changes"].hot_keys == whole.shapes["changes"].hot_keys
    assert tiny.shapes["changes"].popularity.keys_by_records == whole.shapes["changes"].popularity.keys_by_records


def test_what_charts_are_drawn_from(data: Path) -> None:
    report = stats_on_threads(data, hot_keys=2)
    shape = report.shapes["changes"]
    with duralog.open(data, read_only=True) as store:
        logs = [store.partition("changes", number) for number in (0, 1)]
        records = [(log.partition, record) for log in logs for record in log.read(log.start_offset)]
        segments = logs[0].segments
    counts = Counter((partition, record.key) for partition, record in records)
    assert sum(shape.records.sizes) == len(records)
    assert shape.records.times.records == len(records)
    assert shape.popularity.keys_by_records == Counter(counts.values())
    assert shape.hot_keys[0] == (HOSTILE_KEY, len(HOSTILE_KEY), 0, counts[0, HOSTILE_KEY])
    assert [hot.records for hot in shape.hot_keys] == [count for _, count in counts.most_common(2)]
    states = [segment.state for segment in shape.partitions[0].segments]
    assert len(states) == len(segments)
    assert states[0] is SegmentState.CLEAN
    assert states[-1] is SegmentState.ACTIVE
    assert SegmentState.DIRTY in states
    assert {found.state for found in report.shapes["plain"].partitions[0].segments} == {SegmentState.ACTIVE}


def test_the_command(data: Path) -> None:
    done = run(str(data), "--largest", "1", "--prefix-length", "1")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    for heading in ("Topics and partitions", "Codecs and batches", "Prefixes of keys", "Largest records"):
        assert heading in lines
    assert run(str(data), "--quiet").stdout == ""
    one = json.loads(run("--data", str(data), "--topic", "changes", "--partition", "1", "--json").stdout)
    assert [(found["topic"], found["partition"], found["records"]) for found in one["partitions"]] == [
        ("changes", 1, 40)
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "where? Give DIR as the argument, or --data DIR"),
        (("{data}", "--topic", "nope"), 1, "there is no topic nope"),
        (("{data}", "--topic", "plain", "--partition", "7"), 1, "there is no partition 7 of plain"),
        (("{data}/missing",), 1, "there is no such directory"),
        (("{data}", "--html", "{data}/no/such/page.html"), 1, "there is no directory"),
        (("{data}", "--html", "{data}"), 1, "this is a directory"),
        (("{data}", "--prefix-separator", "ab"), 1, "the separator of prefixes is one byte"),
        (("{data}", "--prefix-length", "0"), 2, "--prefix-length"),
        (("{data}", "--prefix-length", str(2**70)), 2, "--prefix-length"),
    ],
)
def test_what_is_wrong_is_reported(data: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run(*(argument.format(data=data) for argument in arguments))
    assert done.exit_code == code
    assert message in re.sub(r"[\s│]+", " ", done.output)


def test_damage(data: Path, tmp_path: Path) -> None:
    log = max((data / "changes-0").glob("*.log"), key=lambda file: file.stat().st_size)
    damaged = bytearray(log.read_bytes())
    damaged[200] ^= 1
    log.write_bytes(damaged)
    page = tmp_path / "page.html"
    done = run(str(data), "--html", str(page), "--quiet")
    assert done.exit_code == 1
    assert done.stdout.startswith("! ")
    assert done.stdout.count("\n") == 1
    assert "Damage: 1 place" in page.read_text()


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    done = run(str(data), "--html", str(file))
    assert done.exit_code == 0, done.output
    assert str(file) in done.stdout
    page = file.read_text(encoding="utf-8")
    elements = Elements(page)
    assert "script" not in elements.tags
    assert not {"src", "href", "onload", "onclick"} & elements.attributes
    assert not re.search(r"https?:|@import|url\(", page)
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)
    shown = " ".join(elements.text)
    assert HOSTILE_KEY.decode() in shown
    assert "0xff00" in shown
    for title in (
        *("Size by topic", "All topics", "Records over time, all topics", "Size by segment", "Records over time"),
        *("Key popularity", "Hot keys", "Record sizes and compression", "Compaction"),
    ):
        assert title in shown, title
    assert "1 topic is empty" in shown
    assert [*tmp_path.glob("*.tmp")] == []
    as_json = run(str(data), "--html", str(file), "--json")
    assert json.loads(as_json.stdout)["topics"]


def test_a_page_again(data: Path, tmp_path: Path) -> None:
    """A link stays one, and who may read the page does not change."""
    file, link = tmp_path / "page.html", tmp_path / "link.html"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    assert run(str(data), "--html", str(link), "--quiet").exit_code == 0
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_page_in_a_read_only_folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before anything is read."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr("duralog.statistics.on_threads.stats_on_threads", None)
    done = run(str(data), "--html", str(tmp_path / "page.html"))
    assert done.exit_code == 1
    assert f"this user may not write to {tmp_path}" in done.stderr


def test_a_page_into_a_pipe(data: Path, tmp_path: Path) -> None:
    """Whatever is no page is written to, and not replaced: /dev/stdout and /dev/null are files too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    read = b""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, str(data), "--html", str(pipe), "--quiet")
        while not running.done():
            select.select([end], [], [], 0.05)
            with suppress(BlockingIOError):
                read += os.read(end, 1 << 20)
    read += os.read(end, 1 << 20)
    os.close(end)
    assert running.result().exit_code == 0, running.result().output
    assert pipe.is_fifo()
    assert read.endswith(b"</html>\n")


def test_a_hostile_name_of_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "<img onerror=x>\x1b[31m"
    with duralog.open(path) as store:
        store.create_topic("t", 1, {"message.timestamp.after.max.ms": 2**63 - 1})
        store.partition("t", 0).append([duralog.Record(key=b"\x1b]0;x\x07", value=b"v", timestamp_ms=2**62)] * 3)
    done = run(str(path), "--html", str(tmp_path / "page.html"))
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "img" not in Elements(page).tags
    assert "\x1b" not in page + done.stdout


@pytest.mark.slow
def test_a_page_of_a_thousand_partitions_is_small(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with duralog.open(path, {"log.cleaner.enable": False}) as store:
        for topic in range(40):
            name = f"a.rather.long.name.of.a.topic.number.{topic}"
            store.create_topic(name, 25, {"cleanup.policy": "compact"} if topic % 2 else {})
            for number in range(25):
                record = duralog.Record(key=b"k", value=b"v" * topic, timestamp_ms=START_MS + number)
                store.partition(name, number).append([record, record])
    file = tmp_path / "page.html"
    done = run(str(path), "--html", str(file), "--quiet")
    assert done.exit_code == 0, done.output
    assert file.stat().st_size < 1 << 20
    page = file.read_text(encoding="utf-8")
    assert "These are the 16 largest of 25 partitions." in page
    assert "30 smaller topics have no charts here" in page
    assert "24 smaller topics, not shown, have" in page


def test_unreadable_files_are_reported_and_the_rest_is_counted(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duralog.open(data, {"log.cleaner.enable": False}) as store:
        log = store.partition("changes", 0)
        log.roll()
        _append(log, 650, 700)
    before = json.loads(run(str(data), "--json").stdout)
    segment = sorted((data / "changes-0").glob("*.log"))[-2]
    list_folder, open_file = LocalFileSystem.list, LocalFileSystem.open

    def refused_list(files: LocalFileSystem, folder: str) -> object:
        with refusals("list", folder):
            if folder.endswith("plain-0"):
                raise PermissionError(errno.EACCES, "Permission denied", folder)
            return list_folder(files, folder)

    def refused_open(files: LocalFileSystem, path: str, **how: bool) -> object:
        with refusals("open", path):
            if path == str(segment):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return open_file(files, path, **how)

    monkeypatch.setattr(LocalFileSystem, "list", refused_list)
    monkeypatch.setattr(LocalFileSystem, "open", refused_open)
    page = data.parent / "page.html"
    result = run(str(data), "--json", "--html", str(page))
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout)
    found = {(row["topic"], row["partition"]): row for row in report["partitions"]}
    whole = {(row["topic"], row["partition"]): row for row in before["partitions"]}
    assert found["changes", 1] == whole["changes", 1]
    assert found["nothing", 0] == whole["nothing", 0]
    assert 0 < found["changes", 0]["records"] < whole["changes", 0]["records"]
    assert found["changes", 0]["compaction"] is None
    assert found["plain", 0]["records"] == 0
    assert report["read_bytes"] == before["read_bytes"] - segment.stat().st_size - whole["plain", 0]["disk_bytes"]
    assert [row["damage"] for row in report["partitions"] if row["damage"]] == [
        [f"{segment}: cannot open: Permission denied"],
        [f"{data / 'plain-0'}: cannot list: Permission denied"],
    ]
    assert "plain-0: cannot list" in page.read_text()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_narrow_terminal_shows_sizes_rather_than_times_and_cuts_no_time(data: Path, width: int) -> None:
    stream = BytesIO()
    output = Output(stream, width=width)
    write_stats(output, stats_on_threads(data, largest=0), str(data))
    output.flush()
    text = stream.getvalue().decode()
    (heading,) = (line for line in text.splitlines() if line.startswith("topic") and "keys" in line)
    assert "on disk" in heading
    assert width < 80 or "compaction saves" in heading
    assert ("first" in heading) == (width == 200)
    assert "…" not in text
