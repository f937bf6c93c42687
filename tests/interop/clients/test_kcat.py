"""kcat against `duralog serve`: producing, consuming, groups, metadata, offsets by time.

As root where there is apt-get, kcat is installed from Debian. With `CI=true` it must be there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop

WAIT_SECONDS = 60
Kcat = Callable[..., str]


def _what_is_missing() -> str | None:
    if shutil.which("kcat"):
        return None
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return "there is no kcat on the path (on Debian: apt-get install kcat)"
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    for step in (["update"], ["install", "--no-install-recommends", "kcat"]):
        done = subprocess.run([*quiet, *step], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            return f"apt-get {step[0]} failed: {done.stdout[-500:]}"
    return None


@pytest.fixture(scope="module")
def kcat(serving: ServedDirectory) -> Kcat:
    missing = _what_is_missing()
    if missing is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"kcat must run in CI: {missing}")
        pytest.skip(missing)

    def run(*arguments: str, stdin: str = "") -> str:
        command = ["kcat", "-b", serving.bootstrap, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
        assert done.returncode == 0, f"{arguments}: exit code {done.returncode}\n{done.stderr}"
        return done.stdout

    return run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_producing_and_consuming(kcat: Kcat, codec: str) -> None:
    topic = f"kcat-{codec}"
    lines = [f"key {number}|{'value ' * 10}{number}" for number in range(100)]
    kcat("-P", "-t", topic, "-K", "|", "-z", codec, "-H", "source=kcat", stdin="\n".join(lines) + "\n")
    found = kcat("-C", "-t", topic, "-e", "-q", "-f", "%k|%s %h\n").splitlines()
    assert found == [f"{line} source=kcat" for line in lines]
    assert kcat("-C", "-t", topic, "-o", "-3", "-e", "-q", "-f", "%o ") == "97 98 99 "


def test_metadata(kcat: Kcat, serving: ServedDirectory) -> None:
    kcat("-P", "-t", "kcat-metadata", stdin="a\n")
    listed = json.loads(kcat("-L", "-J"))
    assert [broker["name"] for broker in listed["brokers"]] == [serving.bootstrap]
    (topic,) = [each for each in listed["topics"] if each["topic"] == "kcat-metadata"]
    assert [partition["partition"] for partition in topic["partitions"]] == [0]


def test_offsets_by_time(kcat: Kcat) -> None:
    kcat("-P", "-t", "kcat-times", stdin="a\nb\n")
    assert kcat("-Q", "-t", "kcat-times:0:-1").split()[-1] == "2"
    assert kcat("-Q", "-t", "kcat-times:0:-2").split()[-1] == "0"
    assert kcat("-Q", "-t", "kcat-times:0:1").split()[-1] == "0"


def test_a_group(kcat: Kcat) -> None:
    kcat("-P", "-t", "kcat-group", stdin="".join(f"{number}\n" for number in range(20)))
    settings = ("-X", "auto.offset.reset=earliest", "-q", "-e", "-G", "kcat-group", "kcat-group")
    assert len(kcat(*settings).splitlines()) == 20
    kcat("-P", "-t", "kcat-group", stdin="more\n")
    assert kcat(*settings).splitlines() == ["more"]


def test_a_transaction(kcat: Kcat) -> None:
    kcat("-P", "-t", "kcat-transaction", "-X", "transactional.id=kcat", stdin="a\nb\nc\n")
    committed = kcat("-C", "-t", "kcat-transaction", "-X", "isolation.level=read_committed", "-e", "-q")
    assert committed.splitlines() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("start", "record_format"),
    [
        ("beginning", r"%t %p %o %k %s %T\n"),
        ("2", r"%h;%K;%S;%R\n"),
        ("-2", r"%%|\t\x41\x7c\101\65\r\\|%s%k\n"),
        ("-100", "%s"),
        ("end", "%s"),
    ],
)
def test_duralog_consume_writes_what_kcat_writes(
    kcat: Kcat, serving: ServedDirectory, record_format: str, start: str
) -> None:
    topic = "kcat-formats"
    if topic not in kcat("-L"):
        kcat("-P", "-t", topic, "-K", "|", "-H", "a=1", "-H", "b=", stdin="k|v\n|empty key\nk2|\n")
        kcat("-P", "-t", topic, "-K", "|", "-Z", stdin="gone|\n|keyless\n")
        kcat("-P", "-t", topic, stdin="plain\n")
    options = ("-t", topic, "-o", start, "-f", record_format)
    done = CliRunner().invoke(app, ["consume", serving.bootstrap, *options])
    assert (done.exit_code, done.stderr) == (0, "")
    asked = ["kcat", "-b", serving.bootstrap, "-C", "-e", "-q", *options]
    expected = subprocess.run(asked, capture_output=True, timeout=WAIT_SECONDS, check=True).stdout
    assert done.stdout_bytes == expected
    assert bool(expected) == (start != "end")
