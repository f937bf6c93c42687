"""`duralog job` without Spark: what it lists, what it refuses, and what it says where PySpark is missing."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext, java_gateway

import duralog
from duralog.cli.job.lake_options import note_columns
from duralog.cli.stats import view as stats_view
from duralog.cli.voice import engine
from duralog.cli.voice.options import standard_output
from duralog.cli.voice.output import Output
from duralog.spark.jobs.export_report import ExportedTable
from duralog.spark.session import _java_ended_if_interrupted
from tests.support import commands

JOBS = {"verify", "repair", "reindex", "retain", "upgrade", "compact", "stats", "export", "snapshot"}
TABLE_JOBS = {"export", "snapshot"}


run = partial(commands.run, "job")


@pytest.mark.slow
def test_help_lists_the_jobs_and_loads_no_spark() -> None:
    program = "import sys, duralog.command_line; print(*(name for name in sys.modules if name.startswith('pyspark')))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
    listed = run("--help").stdout
    assert all(f" {job} " in listed for job in JOBS)


@pytest.mark.parametrize("job", sorted(JOBS))
def test_every_job_says_what_its_exit_code_means(job: str) -> None:
    told = run(job, "--help").stdout
    assert "Exit code: 0" in told
    assert "--master" in told
    assert "--json" in told


@pytest.mark.parametrize("job", sorted(JOBS))
def test_settings_must_have_a_name_and_a_value(job: str, tmp_path: Path) -> None:
    places = [tmp_path, tmp_path / "lake"] if job in TABLE_JOBS else [tmp_path]
    assert "--conf: 'x' is not of the form NAME=VALUE" in run(job, *places, "--conf", "x", code=2).stderr


@pytest.mark.parametrize(
    "master", ["", "bogus", "local[0]", "local[x]", "spark://", "mesos://host:1", "local-cluster[2]"]
)
def test_masters_that_spark_does_not_know_are_refused_before_it_is_started(master: str, tmp_path: Path) -> None:
    told = run("stats", tmp_path, "--master", master, code=2).stderr
    assert f"--master: {master!r} is none of local[N]," in told


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[4,2]", "local-cluster[2,1,1024]", "k8s://https://h", "yarn"]
)
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("org.apache.spark.SparkException: no cores\n\tat org.apache.spark", "SparkException: no cores\n"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "Java did not start. Install Java 17 or newer"),
        ("Cannot call methods on a stopped SparkContext.", "the session ended before it began"),
    ],
)
def test_spark_that_does_not_start(
    master: str, said: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def job_session(*_: object) -> None:
        raise RuntimeError(said)

    session = SimpleNamespace(active_session=lambda: None, job_session=job_session)
    monkeypatch.setitem(sys.modules, "duralog.spark.session", session)
    with duralog.open(str(tmp_path)) as store:
        store.create_topic("t")
    found = run("stats", tmp_path, "--master", master, code=1).stderr
    assert f"duralog: error: Spark cannot be started with --master {master}: " in found
    assert told in found
    assert len(found.splitlines()) == 1


@pytest.mark.parametrize("is_known", [False, True])
def test_an_interrupt_while_spark_starts_leaves_no_java(is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that PySpark knows ends with this process."""
    monkeypatch.setattr(SparkContext, "_gateway", object() if is_known else None)
    with suppress(KeyboardInterrupt), _java_ended_if_interrupted():
        java = vars(java_gateway)["Popen"](["sleep", "600"])
        raise KeyboardInterrupt
    if is_known:
        assert java.poll() is None
        java.kill()
    java.wait(60)
    assert vars(java_gateway)["Popen"] is subprocess.Popen


def test_an_interrupt_is_reported_without_the_stacks_of_py4j(caplog: pytest.LogCaptureFixture) -> None:
    with engine._without_stacks_of_interrupts():
        logging.error("KeyboardInterrupt while sending command.")
        logging.error("something else")
    logging.error("Exception while sending command.")
    assert caplog.messages == ["something else", "Exception while sending command."]


@pytest.mark.parametrize("job", sorted(TABLE_JOBS))
@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--format", "csv", "--format: 'csv' is none of parquet, delta, iceberg"),
        ("--isolation", "dirty", "--isolation: 'dirty' is none of read_committed, read_uncommitted"),
        ("--max-split", "0", "--max-split: "),
    ],
)
def test_wrong_values_are_refused_before_spark_is_started(
    job: str, option: str, value: str, told: str, tmp_path: Path
) -> None:
    assert told in run(job, tmp_path, tmp_path / "lake", option, value, code=2).stderr


@pytest.mark.parametrize("job", ["compact", "snapshot"])
def test_a_map_has_room_for_some_keys(job: str, tmp_path: Path) -> None:
    places = [tmp_path, tmp_path / "lake"] if job in TABLE_JOBS else [tmp_path]
    told = run(job, *places, "--map-bytes", "23", code=2).stderr
    assert "--map-bytes: a map has at least 1024 bytes" in told


@pytest.mark.slow
def test_without_pyspark_the_error_says_what_to_install(tmp_path: Path) -> None:
    # In a process of its own, where an import of what is None fails as if it were not installed.
    program = "import sys; sys.modules['pyspark'] = None; from duralog.command_line import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "job", "verify", str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert (
        done.stderr.strip() == "duralog: error: to work with Spark, duralog needs PySpark: pip install 'duralog[spark]'"
    )


def test_every_codec_of_a_topic_has_its_own_figures(capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"none": (3, 300, 300), "zstd": (1, 50, 200)}
    names = ("batches", "disk_bytes", "unpacked_bytes")
    topic = SimpleNamespace(
        topic="orders",
        codecs={codec: dict(zip(names, numbers, strict=True)) for codec, numbers in counts.items()},
        smallest_batch_bytes=50,
        largest_batch_bytes=120,
        most_records_of_a_batch=7,
    )
    output = standard_output(as_json=False, quiet=False)
    stats_view._write_batches(output, [topic])  # type: ignore[list-item]
    output.flush()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(row[1], row[2], row[-3:]) for row in rows] == [
        ("all", "4", ["at", "most", "7"]),
        ("none", "3", ["-", "-", "-"]),
        ("zstd", "1", ["-", "-", "-"]),
    ]


def test_what_is_said_of_columns() -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        ("records", "undated_records", "files", "read_bytes", "written_bytes", "leftover_files"), 0
    )
    fields = {f"value.f{number:02}": number for number in range(1, 13)}
    table = ExportedTable(
        topic="t",
        path="p",
        format="delta",
        start_offsets={},
        end_offsets={},
        bad_records=1,
        left_out_fields=fields,
        findings=("t: values are json",),
        column_changes=("new column value.a",),
        **nothing,
    )
    stream = io.BytesIO()
    output = Output(stream)
    note_columns(output, table)
    output.flush()
    said = stream.getvalue().decode()
    assert "1 record with a key or value that does not decode" in said
    assert "no record of the sample has them: value.f01 (1 time), value.f02 (2 times)," in said
    assert "value.f10 (10 times), and 2 more. To have them" in said
