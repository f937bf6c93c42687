"""Tables that fit the terminal, characters that take two places, and colours only where they are wanted."""

from __future__ import annotations

import os
import pty
import re
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog import Record
from duralog.cli.dump.batches import COLUMNS, LEAST
from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import Table, fitting, header_line, plural, row_line, write_fact, write_table
from duralog.cli.voice.terminal import can_redraw, cells, shortened, shows_colours, width_of
from duralog.storage.store import Store

NAMES = ("topic", "id", "bytes", "configs")
ROWS = [
    ["orders", "kEfKdk48S9C6IbcemVN-3g", "1,024", "retention.ms=1, cleanup.policy=compact"],
    ["a-long-name-that-somebody-thought-was-a-good-idea", "awUNcVvRRwiZ4v7KGTY19w", "7", "-"],
]


def written(width: int | None, **options: object) -> list[str]:
    stream = BytesIO()
    output = Output(stream, width=width)
    write_table(output, NAMES, ROWS, right=("bytes",), **options)  # type: ignore[arg-type]
    output.flush()
    return stream.getvalue().decode().splitlines()


def test_a_pipe_gets_all_of_it() -> None:
    lines = written(None)
    assert lines[0].split() == [*NAMES]
    assert lines[2].startswith("a-long-name-that-somebody-thought-was-a-good-idea  awUNcVvRRwiZ4v7KGTY19w")
    assert len(lines) == 3
    assert max(map(len, lines)) > 100


def test_names_are_shortened_before_columns_are_left_out() -> None:
    lines = written(90, cut=("topic", "configs"), least=("id",))
    assert max(map(len, lines)) <= 90
    assert lines[0].split() == [*NAMES]
    assert "…" in lines[1] or "…" in lines[2]
    assert "kEfKdk48S9C6IbcemVN-3g" in lines[1]


def test_the_least_columns_are_left_out_and_named() -> None:
    lines = written(45, cut=("topic", "configs"), least=("id",))
    assert max(map(len, lines)) <= 45
    assert lines[0].split() == ["topic", "bytes", "configs"]
    assert lines[-1] == "(no room for id; --json has all)"
    assert re.match(r"a-long-.*….*-idea", lines[2])


def test_what_is_left_out_is_reported_once() -> None:
    stream = BytesIO()
    output = Output(stream, width=45)
    for _ in range(3):
        write_table(output, NAMES, ROWS, right=("bytes",), least=("id",))
    output.flush()
    assert stream.getvalue().decode().count("no room for") == 1


def test_a_column_is_not_cut_to_less_than_it_may() -> None:
    lines = written(60, cut={"topic": 12, "configs": 30}, least=("id", "bytes"))
    assert lines[0].split() == ["topic", "bytes", "configs"]
    assert max(map(len, lines)) <= 60
    assert len(lines[1]) - lines[1].index("retention") >= 30


@given(st.integers(20, 160), st.lists(st.lists(st.text("ab値-é", max_size=40), min_size=4, max_size=4), max_size=5))
def test_a_table_fits_every_terminal(width: int, rows: list[list[str]]) -> None:
    stream = BytesIO()
    output = Output(stream, width=width)
    write_table(output, NAMES, rows, right=("bytes",), cut=NAMES)
    output.flush()
    lines = [line for line in stream.getvalue().decode().splitlines() if not line.startswith("(no room")]
    assert max(map(cells, lines)) <= width


def test_wide_characters_take_two_places() -> None:
    assert [cells(text) for text in ("abc", "値段", "e\u0301", "한국", "ｱ")] == [3, 4, 1, 4, 1]
    columns = fitting(("key", "n"), right=("n",), rows=[["値段", "1"], ["abcd", "22"]])
    assert [row_line(columns, row) for row in (["値段", "1"], ["abcd", "22"])] == ["値段   1", "abcd  22"]


@given(st.text("abc値段é\u0301-", max_size=60), st.integers(0, 40))
def test_a_shortened_text_fits(text: str, places: int) -> None:
    short = shortened(text, places)
    assert cells(short) <= places
    if cells(text) <= places:
        assert short == text
    elif places > 4:
        assert "…" in short
        assert text.startswith(short.split("…")[0])
        assert text.endswith(short.split("…")[1])


def test_facts_stand_below_each_other_on_a_terminal() -> None:
    stream = BytesIO()
    output = Output(stream, width=40)
    write_fact(output, "log", "offsets 0 to 12000, one segment of many bytes, never compacted")
    output.flush()
    lines = stream.getvalue().decode().splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 40 for line in lines)
    assert [line[:14].strip() for line in lines] == ["log", "", ""]


def test_the_line_of_a_batch_is_that_of_its_columns() -> None:
    assert set(LEAST) < set(COLUMNS)
    narrow = Table(Output(BytesIO(), width=80), COLUMNS, cut=(), least=LEAST)
    assert len(narrow.header()) <= 80
    assert header_line(COLUMNS).split() == [*COLUMNS]


class Terminal:
    def __init__(self, *, is_terminal: bool = True) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def fileno(self) -> int:
        raise OSError


@pytest.mark.parametrize(
    ("variables", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "dumb", "FORCE_COLOR": "3"}, True, True),
    ],
)
def test_who_wants_colours(
    variables: dict[str, str], on_terminal: bool, in_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert shows_colours(Terminal()) is on_terminal
    assert shows_colours(Terminal(is_terminal=False)) is in_pipe
    assert can_redraw(Terminal()) is (os.environ["TERM"] != "dumb")
    assert can_redraw(Terminal(is_terminal=False)) is False
    assert width_of(Terminal(is_terminal=False)) is None


# The command on a terminal


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("tables") / "data")
    with Store(path) as store:
        store.create_topic("orders", 2, {"retention.ms": 86_400_000})
        store.create_topic("a-topic-with-a-name-that-is-much-too-long-for-a-narrow-terminal.v2", 1, {})
        for number in (0, 1):
            records = [Record(key="注文".encode(), value=b"v" * 50, timestamp_ms=1_700_000_000_000)] * 20
            store.partition("orders", number).append(records)
    return path


def on_terminal(columns: int, *arguments: str, **variables: str) -> tuple[str, int]:
    pid, terminal = pty.fork()
    if pid == 0:
        for name in ("NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm", "COLUMNS": str(columns), **variables})
        os.execv(sys.executable, [sys.executable, "-m", "duralog", *arguments])
    parts: list[bytes] = []
    with suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def lines_of(shown: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]|\r", "", shown).splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize(
    "command",
    [
        ["topic", "list"],
        ["topic", "describe", "-t", "orders"],
        ["verify", "--no-progress"],
        ["retain", "--dry-run", "--no-progress"],
        ["dump", "-t", "orders", "-p", "0", "--no-progress"],
    ],
    ids=lambda command: command[0],
)
def test_tables_fit_a_terminal(directory: str, command: list[str], columns: int) -> None:
    shown, code = on_terminal(columns, *command, "--data", directory)
    assert code == 0
    lines = lines_of(shown)
    # Findings, notes and the facts of a summary are sentences: the terminal wraps them.
    tables = [line for line in lines if re.search(r"\S  +\S", line) and not re.match(r"[!#]|  [a-z]", line)]
    assert tables
    assert max(map(cells, tables)) <= columns
    assert "\x1b[" in shown


@pytest.mark.slow
def test_no_colours_where_they_are_disabled(directory: str) -> None:
    assert "\x1b" not in on_terminal(80, "topic", "list", directory, NO_COLOR="1")[0]
    assert "\x1b" not in on_terminal(80, "topic", "list", directory, TERM="dumb")[0]


@pytest.mark.slow
def test_colours_never_get_into_json(directory: str) -> None:
    assert "\x1b" not in on_terminal(80, "topic", "list", directory, "--json", FORCE_COLOR="1")[0]


@pytest.mark.slow
def test_a_long_name_keeps_its_ends(directory: str) -> None:
    shown, _ = on_terminal(60, "topic", "list", "-d", directory)
    assert re.search(r"^a-top.*….*v2 ", "\n".join(lines_of(shown)), re.M)


@pytest.mark.slow
def test_paths_stay_whole_in_a_pipe(directory: str, tmp_path: Path) -> None:
    target = tmp_path / "listed"
    pid = os.fork()
    if pid == 0:
        os.environ["COLUMNS"] = "40"
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT), 1)
        os.execv(sys.executable, [sys.executable, "-m", "duralog", "topic", "list", directory])
    os.waitpid(pid, 0)
    assert "a-topic-with-a-name-that-is-much-too-long-for-a-narrow-terminal.v2" in target.read_text()


def test_one_thing_and_several() -> None:
    counted = [plural(1, "batch"), plural(2, "batch"), plural(1, "entry"), plural(0, "entry"), plural(1200, "key")]
    assert counted == ["1 batch", "2 batches", "1 entry", "0 entries", "1,200 keys"]
