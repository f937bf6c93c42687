"""A wheel with machine code, as a release has it: it installs without numba, compiles nothing, and stays small.

To build it takes a minute of CPU, so there is one for all tests of this file.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from duralog.kernels.compilation import building
from tests.packaging.clean_install import Builder, CleanInstall

BROKER_MAX_BYTES = 300_000_000
SERVE_ONE = """
import socket
from duralog.testing import running_broker

with running_broker() as broker:
    broker.store.create_topic("orders", 1)
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    socket.create_connection((host, int(port))).close()
    print("served", broker.store.topics())
"""


@pytest.fixture(scope="module")
def machine_code_wheel(builder: Builder, sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        building.compiler()
    except building.CannotBuild as error:
        pytest.skip(str(error))
    (wheel,) = builder.build(sources, tmp_path_factory.mktemp("machine_code"), "wheel", DURALOG_WHEEL="machine-code")
    return wheel


@pytest.fixture(scope="module")
def without_numba(machine_code_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanInstall:
    return CleanInstall(tmp_path_factory.mktemp("installed"), machine_code_wheel)


def test_the_wheel_has_machine_code(machine_code_wheel: Path) -> None:
    assert "-abi3-" in machine_code_wheel.name
    with zipfile.ZipFile(machine_code_wheel) as archive:
        assert f"duralog/kernels/compilation/{building.FILE_NAME}" in archive.namelist()


def test_numba_is_not_installed(without_numba: CleanInstall) -> None:
    assert without_numba.linked.isdisjoint({"numba", "llvmlite", "pyarrow"})
    told = without_numba.run(str(without_numba.python), "-c", "import numba", code=1)
    assert "No module named 'numba'" in told.stderr


def test_a_store_works_with_the_machine_code(without_numba: CleanInstall, tmp_path: Path) -> None:
    data, command = str(tmp_path / "data"), str(without_numba.command)
    without_numba.run(command, "topic", "create", data, "--topic", "prices", "--config", "cleanup.policy=compact")
    lines = tmp_path / "prices.txt"
    lines.write_text("".join(f"k{number % 5}:{number}\n" for number in range(500)), encoding="utf-8")
    given = ("--file", str(lines), "--key-separator", ":", "--codec", "zstd")
    without_numba.run(command, "produce", data, "-t", "prices", *given)
    without_numba.run(command, "compact", data, "--topic", "prices", "--roll")
    left = without_numba.run(command, "consume", data, "-t", "prices", "--values").stdout.split()
    assert left == ["495", "496", "497", "498", "499"]
    without_numba.run(command, "verify", data, "--deep")
    assert "came compiled with the package" in without_numba.run(command, "doctor").stdout


def test_a_broker_is_small_and_serves(without_numba: CleanInstall) -> None:
    without_numba.link_extra("broker")
    assert {"kio", "prometheus-client", "xxhash"} < without_numba.linked
    assert without_numba.linked.isdisjoint({"numba", "llvmlite", "pyarrow"})
    served = without_numba.run(str(without_numba.python), "-c", SERVE_ONE).stdout
    assert served == "served ['orders']\n"
    assert without_numba.size_bytes < BROKER_MAX_BYTES
