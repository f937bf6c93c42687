"""`duralog group` on a directory that Kafka wrote; tests/broker has it on a broker, and on what brokers leave."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from duralog.storage.store import Store
from tests.support import commands
from tests.support.places import GOLDEN

GOLDEN_STORE = GOLDEN / "store"


run = partial(commands.run, "group")


objects = partial(commands.objects, "group")


def test_groups_of_kafka() -> None:
    (group,) = objects("list", GOLDEN_STORE)
    assert group == {
        "kind": "group",
        "group": "readers",
        "state": None,
        "type": "classic",
        "members": 0,
        "partitions": 2,
        "lag": 5481,
    }
    assert "readers" in run("list", GOLDEN_STORE).stdout


def test_offsets_of_a_group() -> None:
    _, *offsets = objects("describe", GOLDEN_STORE, "-g", "readers")
    assert [(row["topic"], row["partition"], row["committed"], row["end_offset"], row["lag"]) for row in offsets] == [
        ("plain", 0, 3000, 6001, 3001),
        ("txn", 0, 0, 2480, 2480),
    ]
    assert "3001" in run("describe", GOLDEN_STORE).stdout
    assert "there is no group nobody" in run("describe", GOLDEN_STORE, "-g", "nobody", code=1).stderr


def test_a_directory_without_groups(tmp_path: Path) -> None:
    Store(str(tmp_path)).close()
    assert objects("list", tmp_path) == []
    assert "no groups" in run("list", tmp_path).stdout
    assert "no groups" in run("describe", tmp_path).stdout


def test_wrong_usage() -> None:
    run("delete", GOLDEN_STORE, "-g", "readers", code=2)
    run("delete", "127.0.0.1:1", "-g", "readers", code=2)
    run("delete", "127.0.0.1:1", "-g", "readers", "--yes", "--evict", code=2)
    for name in ("", "x" * 32_768, "\udcff"):
        assert "1 to 32,767 bytes" in run("delete", GOLDEN_STORE, "-g", name, "--yes", code=2).stderr
        run("reset", GOLDEN_STORE, "-g", name, "-t", "plain", "--latest", code=2)
    run("reset", GOLDEN_STORE, "-g", "readers", "-t", "plain", code=2)
    run("reset", GOLDEN_STORE, "-g", "readers", "-t", "plain", "--earliest", "--latest", code=2)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What Kafka wrote, to be changed."""
    copy = tmp_path / "data"
    shutil.copytree(GOLDEN_STORE, copy)
    return copy


def committed(directory: Path) -> dict[tuple[str, int], int]:
    _, *offsets = objects("describe", directory, "-g", "readers")
    return {(offset["topic"], offset["partition"]): offset["committed"] for offset in offsets}


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (("--earliest",), 0),
        (("--latest",), 6001),
        (("--offset", 17), 17),
        (("--offset", 10**9), 6001),
        (("--time", "2100-01-01"), 6001),
        (("--time", "1970-01-02"), 0),
        (("--to-earliest",), 0),
        (("--to-latest",), 6001),
        (("--to-current",), 3000),
        (("--to-offset", 17), 17),
        (("--shift-by", 10), 3010),
        (("--shift-by", -4000), 0),
        (("--to-datetime", "2100-01-01T00:00:00.000"), 6001),
        (("--by-duration", "P20000DT1H"), 0),
        (("--by-duration", "PT0S"), 6001),
        (("--by-duration", "1h"), 6001),
    ],
)
def test_resetting_a_group_of_kafka(directory: Path, to: tuple[object, ...], expected: int) -> None:
    asked = ("reset", directory, "-g", "readers", "-t", "plain", *to)
    told = {"kind": "reset", "group": "readers", "topic": "plain", "partition": 0, "from": 3000, "to": expected}
    limited: dict[tuple[object, ...], dict[str, object]] = {
        ("--offset", 10**9): {"wanted": 10**9},
        ("--shift-by", -4000): {"wanted": -1000},
    }
    told |= limited.get(to, {})
    assert objects(*asked) == objects(*asked, "--dry-run") == [{**told, "dry_run": True}]
    assert committed(directory) == {("plain", 0): 3000, ("txn", 0): 0}
    assert objects(*asked, "--execute") == [{**told, "dry_run": False}]
    assert committed(directory) == {("plain", 0): expected, ("txn", 0): 0}


def test_deleting_a_group_of_kafka(directory: Path) -> None:
    assert "would delete group readers with 2 offsets" in run("delete", directory, "-g", "readers", "--dry-run").stdout
    assert len(objects("list", directory)) == 1
    told = {"kind": "deleted", "group": "readers", "offsets": 2, "dry_run": False}
    assert objects("delete", directory, "-g", "readers", "--yes") == [told]
    assert objects("list", directory) == []
    assert "there is no group readers" in run("delete", directory, "-g", "readers", "--yes", code=1).stderr


def test_what_cannot_be_reset(directory: Path) -> None:
    def refused(*arguments: object) -> str:
        return run("reset", directory, "-g", "readers", *arguments, "--latest", "--execute", code=1).stderr

    assert "did you mean plain?" in refused("-t", "plane")
    assert "there is no partition 7 of plain" in refused("-t", "plain", "-p", 7)
    with Store(str(directory)):
        assert "is in use by" in refused("-t", "plain")
        asked = ("reset", directory, "-g", "readers", "-t", "plain", "--latest", "--dry-run")
        assert objects(*asked)[0]["to"] == 6001
    assert committed(directory) == {("plain", 0): 3000, ("txn", 0): 0}


def test_a_group_in_a_directory_that_never_had_any(tmp_path: Path) -> None:
    with Store(str(tmp_path)) as store:
        store.create_topic("t", 2)
    asked = ("reset", tmp_path, "-g", "readers", "-t", "t", "--earliest")
    assert [told["from"] for told in objects(*asked, "--dry-run")] == [None, None]
    assert objects("list", tmp_path) == []
    run(*asked, "--execute")
    assert committed(tmp_path) == {("t", 0): 0, ("t", 1): 0}
    with Store(str(tmp_path), read_only=True) as store:
        assert store.partition_count("__consumer_offsets") == 50
        assert store.topic_overrides("__consumer_offsets")["cleanup.policy"] == "compact"


@pytest.mark.slow
def test_a_directory_needs_nothing_that_only_brokers_need() -> None:
    """The packages of the extras `broker` and `kafka` may not be there."""
    missing = "import sys; sys.modules.update(dict.fromkeys(('kio', 're2', 'xxhash', 'confluent_kafka')))"
    subprocess.run([sys.executable, "-c", f"{missing}; import duralog.operations.groups.stored_groups"], check=True)


def test_a_plan_is_shown_and_nothing_is_changed(directory: Path) -> None:
    asked = ("reset", directory, "-g", "readers", "-t", "plain", "--to-offset", 9_999)
    shown = run(*asked).stdout.splitlines()
    assert shown == [
        "plain-0: would be reset from 3000 to 6001",
        "# plain-0: offset 9999 is not in the partition: 6001 is the nearest",
        "# nothing was changed: this is the plan; --execute applies it",
    ]
    assert run(*asked, "--dry-run").stdout.splitlines() == shown[:2]
    assert run(*asked, "--execute").stdout.splitlines()[0] == "plain-0: reset from 3000 to 6001"


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (("t:0", "t:1"), [0, 1]),
        (("t:2,0", "t:0"), [0, 2]),
        (("t", "t:1"), [0, 1, 2]),
        (("t:1", "t"), [0, 1, 2]),
        (("t", "t"), [0, 1, 2]),
    ],
)
def test_partitions_of_a_topic_that_is_given_again(
    tmp_path: Path, topics: tuple[str, ...], expected: list[int]
) -> None:
    with Store(str(tmp_path)) as store:
        store.create_topic("t", 3)
    chosen = [word for topic in topics for word in ("-t", topic)]
    assert [each["partition"] for each in objects("reset", tmp_path, "-g", "g", *chosen, "--latest")] == expected


def test_plans_go_to_a_file_and_back(directory: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    one = ("reset", directory, "-g", "readers")
    plan.write_text(run(*one, "--all-topics", "--shift-by", "1", "--export").stdout)
    assert plan.read_text() == "plain,0,3001\ntxn,0,1\n"
    run(*one, "--from-file", plan, "--execute")
    assert committed(directory) == {("plain", 0): 3001, ("txn", 0): 1}
    everything = ("reset", directory, "--all-groups")
    plan.write_text(run(*everything, "--all-topics", "--to-current", "--export").stdout)
    assert plan.read_text() == "readers,plain,0,3001\nreaders,txn,0,1\n"
    plan.write_text('"readers", plain ,0,7\n\nothers,plain,0,8\n')
    assert [told["to"] for told in objects(*one, "--from-file", plan)] == [7]
    told = run(*everything, "--from-file", plan, "--execute").stdout.splitlines()
    assert told == ["readers: plain-0: reset from 3001 to 7", "others: plain-0: reset from nothing to 8"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("plain,0\n", "line 1: expected topic,partition,offset or group,topic,partition,offset"),
        ("plain,0,5\nplain,0,-1\n", "line 2: offset -1 is negative"),
        ("plain,-1,5\n", "line 1: partition -1 is negative"),
        ("plain,0,x\n", "line 1: expected topic,partition,offset"),
        ("plain,0,9223372036854775808\n", "line 1: offset 9223372036854775808 is larger than"),
        ("a,readers,plain,0,5\n", "line 1: expected at most four fields, found 5 fields"),
        ('"plain,0,5\n', "line 1: not CSV in UTF-8"),
        ("others,plain,0,5\n", "the plan has no offset of group readers"),
        ("plane,0,5\n", "did you mean plain?"),
        ("plain,7,5\n", "there is no partition 7 of plain"),
    ],
)
def test_plans_that_are_wrong(directory: Path, tmp_path: Path, text: str, told: str) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(text)
    assert told in run("reset", directory, "-g", "readers", "--from-file", plan, "--execute", code=1).stderr
    assert committed(directory) == {("plain", 0): 3000, ("txn", 0): 0}


def test_a_plan_of_windows(directory: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_bytes(b"\xef\xbb\xbfplain,0,7\r\n")
    assert [told["to"] for told in objects("reset", directory, "-g", "readers", "--from-file", plan)] == [7]


def test_a_plan_without_lines(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("\n")
    for group in (("--all-groups",), ("-g", "readers")):
        refused = run("reset", GOLDEN_STORE, *group, "--from-file", plan, code=1).stderr
        assert "the plan has no offset" in refused


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-t", "plain", "--latest"), "which group? Give --group NAME, or --all-groups"),
        (("-g", "g", "--latest"), "which topic? Give --topic NAME, or --all-topics"),
        (("-g", "g", "-t", "plain"), "give one of --to-earliest, --to-latest, --to-current"),
        (("-g", "g", "-t", "plain:x", "--latest"), "'plain:x' is not NAME, or NAME:0,1"),
        (("-g", "g", "-t", "plain:0", "-p", 0, "--latest"), "both choose partitions"),
        (("-g", "g", "-t", "plain", "--latest", "--execute", "--dry-run"), "give one of them"),
        (("-g", "g", "-t", "plain", "--from-file", "x"), "the plan names the topics and partitions"),
        (("-g", "g", "-t", "plain", "--by-duration", "P"), "it has no days, hours, minutes or seconds"),
        (("-g", "g", "-t", "plain", "--by-duration", "soon"), "'soon' is not a duration"),
    ],
)
def test_what_a_reset_asks_for(options: tuple[object, ...], told: str) -> None:
    result = run("reset", GOLDEN_STORE, *options, code=2)
    assert told in " ".join(result.stderr.replace("│", " ").split())


def test_a_partition_without_an_offset_cannot_be_shifted(directory: Path) -> None:
    asked = ("reset", directory, "-g", "readers", "-t", "codecs:1", "--shift-by", 1)
    assert "group readers has no committed offset of codecs-1 to shift" in run(*asked, code=1).stderr
