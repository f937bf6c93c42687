"""The wheel in an environment of its own: what works without extras, and what is said where one is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import duralog
from tests.packaging.clean_install import CleanInstall

LAKE_TABLE = """
import pyarrow
from duralog.errors import DuralogError
from duralog.spark.lake.opened_table import open_table
from duralog.spark.lake.table_state import TableFormat
from duralog.spark.lake.tables import TableSpec
from duralog.spark.lake.targets import LakeTarget
target = LakeTarget.of({path!r})
spec = TableSpec(job="export", topic="t", target=target, schema=pyarrow.schema([]), partition_column="p")
try:
    open_table(TableFormat({format!r}), spec)
except DuralogError as error:
    print(error)
"""


def test_the_version(installed: CleanInstall) -> None:
    assert installed.run(str(installed.command), "--version").stdout == f"duralog {duralog.__version__}\n"
    assert installed.run(str(installed.python), "-m", "duralog", "--version").stdout.split()[1] == duralog.__version__
    told = "from importlib.metadata import version; print(version('duralog'))"
    assert installed.run(str(installed.python), "-c", told).stdout.strip() == duralog.__version__


def test_python_m_duralog(installed: CleanInstall) -> None:
    shown = installed.run(str(installed.python), "-m", "duralog", "--help").stdout
    assert "Usage: duralog" in shown
    assert all(f" {command} " in shown for command in ("serve", "topic", "verify", "compact", "doctor", "bench"))


def test_it_is_the_installed_one_and_alone(installed: CleanInstall) -> None:
    where = installed.run(str(installed.python), "-c", "import duralog; print(duralog.__file__)").stdout.strip()
    assert Path(where) == installed.site / "duralog" / "__init__.py"
    assert not Path(where).parent.is_symlink()
    assert installed.linked.isdisjoint({"pyspark", "kio", "confluent-kafka", "nicegui", "deltalake", "pandas"})
    # The wheel was built without machine code.
    assert "numba" in installed.linked


def test_importing_needs_nothing_at_all(installed: CleanInstall) -> None:
    script = "import sys, duralog; print(sorted({'numpy', 'numba', 'pyarrow', 'rich', 'typer'} & set(sys.modules)))"
    assert installed.run(str(installed.python), "-c", script).stdout == "[]\n"


def test_a_store_without_extras(installed: CleanInstall, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    command = str(installed.command)
    installed.run(command, "topic", "create", data, "--topic", "orders", "--partitions", "1")
    installed.run(command, "produce", data, "-t", "orders", "--key", "k", "--value", "v")
    assert "v" in installed.run(command, "consume", data, "-t", "orders").stdout
    installed.run(command, "verify", data)


def test_every_public_name_is_there(installed: CleanInstall) -> None:
    script = "import duralog; [getattr(duralog, name) for name in duralog.__all__]; print(len(duralog.__all__))"
    assert installed.run(str(installed.python), "-c", script).stdout == f"{len(duralog.__all__)}\n"


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("kafka", ["topic", "list", "127.0.0.1:1"]),
        ("kafka", ["bench", "127.0.0.1:1"]),
        ("broker", ["serve", "--ephemeral"]),
        ("arrow", ["stats", "."]),
        ("spark", ["job", "stats", "."]),
        ("console", ["console", "."]),
    ],
)
def test_a_missing_extra_is_a_sentence(installed: CleanInstall, extra: str, command: list[str]) -> None:
    told = installed.run(str(installed.command), *command, code=1)
    assert told.stderr.startswith("duralog: error: ")
    assert f"pip install 'duralog[{extra}]'" in told.stderr
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_missing_lakehouse_is_a_sentence(installed: CleanInstall, tmp_path: Path, table_format: str) -> None:
    installed.link("pyarrow")
    script = LAKE_TABLE.format(format=table_format, path=str(tmp_path))
    assert "pip install 'duralog[lakehouse]'" in installed.run(str(installed.python), "-c", script).stdout


def test_doctor_sees_what_is_missing(installed: CleanInstall) -> None:
    shown = installed.run(str(installed.command), "doctor").stdout
    assert "duralog[spark]      not installed" in shown
    assert "fail" not in shown
