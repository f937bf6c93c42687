"""The snippets about Spark in the README and in docs/spark.md run, and docs/spark.md names every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog.spark.sink import write_options
from duralog.spark.source import read_options
from tests.support.places import ROOT

GUIDE = (ROOT / "docs" / "spark.md").read_text()
ORDER = b'{"customer": {"id": 7}, "amount": 3}'
ITEM = b'{"before": null, "after": {"id": 1, "name": "pear"}, "source": {"ts_ms": 1}, "op": "c", "ts_ms": 1}'


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """The paths that the snippets name, and the folders that they stand for here."""
    with duralog.open(tmp_path / "kafka") as store:
        for topic in ("orders", "customers"):
            store.create_topic(topic, partitions=2)
            for number in range(2):
                records = [duralog.Record(key=b"k%d" % n, value=ORDER) for n in range(10)]
                store.partition(topic, number).append(records)
        store.create_topic("shop.public.items", partitions=1)
        store.partition("shop.public.items", 0).append([duralog.Record(key=b'{"id": 1}', value=ITEM)])
    return {
        "/var/lib/kafka": str(tmp_path / "kafka"),
        "s3://backups/kafka": str(tmp_path / "kafka"),
        "/var/lib/restored": str(tmp_path / "restored"),
        "/data/snapshots": str(tmp_path / "snapshots"),
        "/data/lake": str(tmp_path / "lake"),
        '"cp"': f'"{tmp_path}/checkpoint"',
        '"out"': f'"{tmp_path}/out"',
    }


@pytest.mark.spark
@pytest.mark.parametrize("name", ["README.md", pytest.param("docs/spark.md", marks=pytest.mark.since_spark("4.1"))])
def test_the_snippets_run(name: str, spark: SparkSession, places: dict[str, str]) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    about_spark = [snippet for snippet in snippets if name.startswith("docs") or "duralog.spark" in snippet]
    assert about_spark
    names: dict[str, Any] = {
        "spark": spark,
        "frame": spark.createDataFrame([("k", ORDER.decode())], "key string, value string"),
    }
    for snippet in about_spark:
        # A backup is restored to where nothing is.
        ours = (
            snippet.replace('save("/var/lib/kafka")', 'save("/var/lib/restored")') if "backups" in snippet else snippet
        )
        for written, here in places.items():
            ours = ours.replace(written, here)
        exec(compile(ours, name, "exec"), names)
        query = names.get("query")
        if query is not None and query.isActive:
            query.processAllAvailable()
            query.stop()


def test_the_guide_names_every_option_of_a_read() -> None:
    known = {*read_options.BOTH, *read_options.ENDS, *read_options.LIMITS}
    assert known <= set(re.findall(r"`([A-Za-z.]+)`", GUIDE))


def test_the_guide_names_every_option_of_a_write() -> None:
    # The last three are accepted because Spark itself or the connector sets them.
    known = {*write_options.KNOWN} - {"includeHeaders", "checkpointLocation", "queryName"}
    assert known <= set(re.findall(r"`([A-Za-z.]+)`", GUIDE))
