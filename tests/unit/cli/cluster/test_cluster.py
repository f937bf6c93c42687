"""`duralog cluster`: the log directories of several nodes together."""

from __future__ import annotations

import json
import os
import re

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from tests.support.cluster.made import flip, logs, three_nodes, write_meta


def run(*words):
    return CliRunner().invoke(app, ["cluster", *map(str, words)], env={"COLUMNS": "200"})


@pytest.fixture
def nodes(tmp_path):
    return three_nodes(tmp_path)


def objects(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_explain_names_the_copy_and_the_reason(nodes):
    result = run("explain", *nodes)
    assert result.exit_code == 0
    assert "read from node 1: it has the latest leader epoch" in result.stdout
    assert "offsets 0 to 59, high watermark 60 (replication-offset-checkpoint)" in result.stdout
    assert "1 partition in 3 directories of 3 nodes" in result.stdout


def test_explain_as_json(nodes, tmp_path):
    result = run("explain", f"{tmp_path}/broker-*", "--json")
    assert result.exit_code == 0
    partition, summary = objects(result)
    assert partition["kind"] == "partition"
    assert (partition["topic"], partition["partition"], partition["node_id"]) == ("orders", 0, 1)
    assert [copy["same_to"] for copy in partition["copies"]] == [60, 60, 60]
    assert [copy["is_chosen"] for copy in partition["copies"]] == [True, False, False]
    assert summary == {"kind": "summary", "directories": 3, "nodes": 3, "partitions": 1, "unreadable": 0}


def test_verify_finds_nothing_in_equal_copies(nodes):
    result = run("verify", *nodes)
    assert result.exit_code == 0
    assert "3 copies in 3 directories of 3 nodes" in result.stdout
    assert "no findings" in result.stdout


def test_verify_ends_with_1_if_there_are_findings(nodes):
    flip(logs(nodes[1])[1], 300)
    result = run("verify", *nodes)
    assert result.exit_code == 1
    assert f"! {logs(nodes[1])[1]}: position 232: orders-0: offsets 18 to 20: damage: wrong checksum" in result.stdout
    found = objects(run("verify", *nodes, "--json"))
    assert [each["kind"] for each in found] == ["partition", "finding", "summary"]
    assert found[1]["finding"] == "damage"
    assert found[1]["node_id"] == 2
    assert (found[1]["first_offset"], found[1]["last_offset"]) == (18, 20)
    assert found[2]["findings"] == 1


def test_the_page_has_a_mark_for_every_copy(nodes, tmp_path):
    flip(logs(nodes[1])[1], 300)
    logs(nodes[2])[3].unlink()
    page = tmp_path / "copies.html"
    result = run("verify", *nodes, "--html", str(page))
    assert result.exit_code == 1
    assert f"# {page}: the same as a page" in result.stdout
    text = page.read_text()
    marks = re.findall(r'<rect class="(\w+)"[^>]*><title>([^<]*)</title>', text)
    assert [kind for kind, _ in marks] == ["clean", "dirty", "kept"]
    assert marks[0][1] == f"orders-0, node 1: {nodes[0]}: the copy that counts, offsets 0 to 60: equal"
    assert "damage (1)" in marks[1][1]
    assert text.count("<circle") == 1
    assert "wrong checksum" in text
    assert "http" not in text
    assert run("verify", *nodes, "--html", str(tmp_path / "no" / "page.html")).exit_code == 1


def test_verify_takes_storage_options_with_both_engines(nodes):
    assert run("verify", *nodes, "--storage-option", "region=x").exit_code != 2
    result = run("verify", *nodes, "--master", "local[2]")
    assert result.exit_code == 2
    assert "--master needs --engine spark" in result.stderr


def test_a_manifest_names_the_directories(nodes, tmp_path):
    manifest = tmp_path / "backup.json"
    manifest.write_text(json.dumps({"directories": ["broker-1", f"{tmp_path}/broker-[23]"]}))
    assert "3 nodes" in run("explain", manifest).stdout
    manifest.write_text("[]")
    assert "a manifest is an object with a list of paths" in run("explain", manifest).stderr
    manifest.write_text("nothing")
    assert "not JSON" in run("explain", manifest).stderr


def test_directories_of_two_clusters_are_refused(nodes):
    write_meta(nodes[2], 3, cluster_id="another-cluster-abcdeQ")
    result = run("verify", *nodes)
    assert result.exit_code == 1
    assert "the directories belong to 2 clusters: give those of one" in result.stderr
    assert f"cluster another-cluster-abcdeQ: {nodes[2]}" in result.stderr


def test_a_directory_that_is_given_twice_counts_once(nodes, tmp_path):
    link = tmp_path / "link"
    os.symlink(nodes[0], link)
    result = run("explain", *nodes, link)
    assert "1 partition in 3 directories" in result.stdout
    assert f"# {link}: this is {nodes[0]}, which was given before: it counts once" in result.stdout


def test_two_copies_of_one_directory_are_reported(nodes):
    write_meta(nodes[0], 1, directory_id="AAAAAAAAAAAAAAAAAAAAAA")
    write_meta(nodes[1], 1, directory_id="AAAAAAAAAAAAAAAAAAAAAA")
    result = run("verify", *nodes)
    assert result.exit_code == 1
    assert "are copies of the same directory of node 1" in result.stdout
    assert "give only the newer one" in result.stdout
    write_meta(nodes[1], 1, directory_id="AAAAAAAAAAAAAAAAAAAAAQ")
    assert "belong to node 1, and both have 1 partition" in run("verify", *nodes).stdout


def test_a_directory_that_cannot_be_opened_does_not_stop_the_others(nodes, tmp_path):
    (tmp_path / "broker-4").mkdir()
    result = run("verify", f"{tmp_path}/broker-*")
    assert result.exit_code == 1
    assert f"{tmp_path}/broker-4: unreadable-directory: cannot open this directory" in result.stdout
    assert "orders-0" in result.stdout
    alone = run("verify", tmp_path / "broker-4")
    assert alone.exit_code == 1
    assert "no log files in here" in alone.stderr


def test_a_pattern_without_matches_is_an_error(tmp_path):
    result = run("explain", f"{tmp_path}/nothing-*")
    assert result.exit_code == 1
    assert "no directory matches" in result.stderr


def test_an_unknown_topic_is_an_error(nodes):
    result = run("explain", *nodes, "--topic", "missing")
    assert result.exit_code == 1
    assert "there is no topic missing" in result.stderr
    result = run("verify", *nodes, "--partition", "7")
    assert result.exit_code == 1
    assert "there is no partition 7 of any topic" in result.stderr


def test_a_directory_may_have_the_name_of_a_partition(nodes):
    result = CliRunner().invoke(app, ["verify", str(nodes[0])], env={"COLUMNS": "200"})
    assert "orders-0" in result.stdout
    result = CliRunner().invoke(app, ["lookup", str(nodes[0]), "--topic", "orders", "--offset", "7"])
    assert result.exit_code == 0


def test_heal_shows_what_is_wrong_and_where_the_bytes_come_from(nodes):
    flip(logs(nodes[1])[1], 300)
    damaged = logs(nodes[1])[1].read_bytes()
    result = run("heal", *nodes, "--dry-run")
    assert result.exit_code == 0
    assert f"orders-0, node 2: {nodes[1]}" in result.stdout
    assert "wrong       00000000000000000015.log: position 232: wrong checksum" in result.stdout
    assert f"fill        offsets 18 to 20, 232 bytes from {nodes[0]}" in result.stdout
    assert "quarantine  232 bytes of 00000000000000000015.log from position 232 on: wrong checksum" in result.stdout
    assert "1 copy would be healed, 2 sound" in result.stdout
    assert logs(nodes[1])[1].read_bytes() == damaged
    result = run("heal", *nodes, "--json")
    assert result.exit_code == 0
    copy, summary = objects(result)
    assert copy["filled"] == [{"first_offset": 18, "last_offset": 20, "bytes": 232, "from": str(nodes[0])}]
    assert (summary["healed"], summary["sound"], summary["left"]) == (1, 2, 0)
    assert "0 copies healed, 3 sound, nothing left to do" in run("heal", *nodes).stdout


def test_heal_ends_with_1_if_offsets_are_lost(nodes):
    for node in nodes:
        flip(logs(node)[1], 300)
    result = run("heal", *nodes)
    assert result.exit_code == 1
    assert "! orders-0: offsets 18 to 20: lost: no copy has them without damage" in result.stdout
    assert "1 problem left" in result.stdout


def test_restore_makes_no_folder_of_a_url(nodes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    result = run("restore", *nodes, "--to", "s3://bucket/restored")
    assert result.exit_code == 2
    assert "is a URL" in result.stderr
    assert sorted(tmp_path.iterdir()) == before
