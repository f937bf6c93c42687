"""`duralog verify`: table, findings, JSON and exit codes. What is found is the business of test_verification."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import commands
from tests.support.cluster.made import flip, logs, three_nodes
from tests.support.places import GOLDEN

verify = partial(commands.run, "verify")


objects = partial(commands.objects, "verify")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    return path


@pytest.fixture
def damaged(store: Path) -> Path:
    log = store / "codecs-2" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[1000] ^= 1
    log.write_bytes(data)
    return store


def test_the_table(store: Path) -> None:
    lines = verify(store).stdout.splitlines()
    assert lines[0].split() == [
        *("partition", "segments", "batches", "records", "bytes", "first_offset", "end_offset", "findings"),
    ]
    plain = next(line for line in lines if line.startswith("plain-0"))
    assert plain.split() == ["plain-0", "3", "247", "6,001", "2,245,084", "0", "6001", "-"]
    assert lines[-1].startswith("20 partitions, 1,072 batches, 5.65 MiB in ")
    assert lines[-1].endswith(": no findings")


def test_findings(damaged: Path) -> None:
    lines = verify(damaged, code=1).stdout.splitlines()
    assert next(line for line in lines if line.startswith("codecs-2")).split()[-1] == "1"
    (finding,) = [line for line in lines if line.startswith("!")]
    assert "codecs-2/00000000000000000000.log: position 0: wrong checksum" in finding
    assert lines.index(finding) > max(at for at, line in enumerate(lines) if line.startswith("txn-0"))
    assert "1 finding; duralog repair --dry-run" in lines[-1]


def test_json(damaged: Path) -> None:
    rows = objects(damaged, code=1)
    partitions = {row["folder"].rpartition("/")[2]: row for row in rows if row.get("kind") == "partition"}
    assert len(partitions) == 20
    assert (partitions["codecs-2"]["findings"], partitions["codecs-2"]["records"]) == (1, 527)
    assert partitions["plain-0"]["topic_id"] == "kbHEQbtORkGagHr8-qLv1w"
    (error,) = [row for row in rows if "error" in row]
    assert (error["fault"], error["position"]) == ("CRC_MISMATCH", 0)
    assert rows[-1]["kind"] == "summary"
    assert (rows[-1]["findings"], rows[-1]["partitions"], rows[-1]["segments"]) == (1, 20, 24)


def test_quiet_shows_findings_only(damaged: Path, store: Path) -> None:
    (line,) = verify("--quiet", damaged, code=1).stdout.splitlines()
    assert line.startswith("! ")
    assert verify("-q", "--topic", "plain", store).stdout == ""


@pytest.mark.parametrize("command", [("verify",), ("job", "verify")])
def test_some_options_are_for_one_directory(store: Path, command: tuple[str, ...]) -> None:
    shown = " ".join(commands.run(*command, store, store, "--deep", code=2).stderr.replace("│", " ").split())
    assert "--deep and --index-interval are for one directory: of several, the copies are compared" in shown


def test_several_directories_are_those_of_a_cluster(tmp_path: Path) -> None:
    nodes = three_nodes(tmp_path)
    flip(logs(nodes[1])[1], 300)

    def found(*words: object) -> list[Any]:
        rows = [json.loads(line) for line in commands.run(*words, "--json", code=1).stdout.splitlines()]
        del rows[-1]["seconds"]
        return rows

    expected = found("cluster", "verify", *nodes)
    assert [row["kind"] for row in expected] == ["partition", "finding", "summary"]
    assert found("verify", *nodes) == found("verify", nodes[0], "--topic", "orders", *nodes[1:]) == expected
    assert "no findings" in commands.run("verify", nodes[0], nodes[2]).stdout
    twice = commands.run("verify", *nodes, "--data", nodes[0], code=2).stderr.replace("│", " ")
    assert "give one of them" in " ".join(twice.split())


def test_some_partitions(damaged: Path) -> None:
    assert [row["folder"][-8:] for row in objects("-t", "codecs", "-p", 2, damaged, code=1) if "folder" in row] == [
        "codecs-2"
    ]
    verify("--topic", "codecs", "--partition", 1, damaged)
    assert "there is no topic orders" in verify("--topic", "orders", damaged, code=1).stderr


def test_many_notes_that_say_the_same(store: Path) -> None:
    for number in range(5):
        (store / f"codecs-{number}" / "README").write_text("?")
    lines = [line for line in verify(store).stdout.splitlines() if line.startswith("#")]
    assert len(lines) == 4
    assert lines[-1] == "# and 2 more: its name is not that of a log file"
    assert sum("note" in row for row in objects(store)) == 5


def test_exact_indexes(store: Path) -> None:
    """The topic was written with index.interval.bytes=1024, as the metadata says."""
    assert not [row for row in objects(store) if "note" in row]
    verify("--topic", "txn", "--index-interval", "1024", store)
    rows = objects("--topic", "txn", "--index-interval", "4096", store, code=1)
    assert sum("error" in row for row in rows) == 4


def test_deep(store: Path) -> None:
    assert objects("--deep", store)[-1]["findings"] == 0


def test_wrong_usage(tmp_path: Path, store: Path) -> None:
    assert "check the path" in verify(tmp_path / "missing", code=1).stderr
    assert "no log files" in verify(tmp_path, code=1).stderr
    verify("--threads", 0, store, code=2)
    verify("--index-interval", "much", store, code=2)
    verify(code=2)
