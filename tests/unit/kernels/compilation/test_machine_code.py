"""The kernels' machine code as wheels have it: made, loaded, chosen and refused; the same results as numba's."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from duralog.errors import InvalidConfig
from duralog.format.record import Record
from duralog.format.record_batch import encode
from duralog.kernels import encode as encoding
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.compilation import building, machine_code
from duralog.kernels.compilation.catalog import all_kernels
from duralog.kernels.compilation.levels import levels_here
from duralog.kernels.compilation.sources import digest_of_sources
from duralog.kernels.encode import BinaryColumn
from duralog.kernels.gather import lay_out
from duralog.kernels.scan import scan_batches
from tests.support.places import ROOT

SOME = ("lay_out", "encode_headers", "scan_batches")
"""Arrays of one kind and another, a number, a bool, named tuples; results of several numbers and none."""
MODULE = "duralog.kernels.compilation._machine_code"
Functions = dict[str, Callable[..., Any]]


def can_build() -> bool:
    try:
        building.compiler()
    except building.CannotBuild:
        return False
    return True


needs_a_compiler = pytest.mark.skipif(not can_build(), reason="no C compiler, or no headers of Python")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Some kernels for the least of this machine's levels."""
    level = building.supported_here(levels_here())[-1]
    path = building.build(tmp_path_factory.mktemp("code"), [level], SOME)
    spec = importlib.util.spec_from_file_location("_machine_code", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def functions(made: ModuleType) -> Functions:
    found: Functions = made.functions(made.levels()[0])
    assert set(found) == set(SOME)
    return found


@needs_a_compiler
def test_the_same_results_as_numba(functions: Functions) -> None:
    data = np.frombuffer(encode([Record(key=b"k", value=bytes(5000))]) * 3 + b"rest", np.uint8)
    for check in (True, False):
        ours, numbas = np.zeros(5, BATCH_DTYPE), np.zeros(5, BATCH_DTYPE)
        result = functions["scan_batches"](data, 70, check, ours)
        assert result == scan_batches(data, 70, check, numbas)
        assert [type(number) for number in result] == [int] * 3
        assert ours.tobytes() == numbas.tobytes()
    lengths, offsets = np.array([3, -1, 4], np.int32), np.zeros(4, np.int32)
    same = np.zeros(4, np.int32)
    assert functions["lay_out"](lengths, offsets) == lay_out(lengths, same)
    assert offsets.tolist() == same.tolist()


@needs_a_compiler
def test_a_named_tuple_and_no_result(functions: Functions) -> None:
    offsets = np.array([0, 1, 3], np.int64)
    offsets.flags.writeable = False
    column = BinaryColumn(offsets, np.frombuffer(b"abb", np.uint8), np.frombuffer(b"", np.uint8), 0)
    first = np.array([0, 2], np.int64)
    ours, numbas = np.zeros(200, np.uint8), np.zeros(200, np.uint8)
    ends, same = np.zeros(2, np.int64), np.zeros(2, np.int64)
    assert functions["encode_headers"](first, column, column, ours, ends) is None
    encoding.encode_headers(_read_only(first), column, column, numbas, same)
    assert ends.tolist() == same.tolist()
    assert ours[: ends[1]].tobytes() == numbas[: ends[1]].tobytes() != bytes(ends[1])


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


@needs_a_compiler
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((np.zeros(1, np.int32),), TypeError),
        ((np.zeros(1, np.int64), np.zeros(2, np.int32)), TypeError),
        ((np.zeros((1, 1), np.int32), np.zeros(2, np.int32)), TypeError),
        ((np.zeros(4, np.int32)[::2], np.zeros(3, np.int32)), (BufferError, ValueError)),
        ((np.zeros(1, np.int32), _read_only(np.zeros(2, np.int32))), (BufferError, ValueError)),
        ((7, np.zeros(2, np.int32)), TypeError),
        ((np.zeros(1, np.float32), np.zeros(2, np.int32)), TypeError),
        ((np.zeros(1, np.uint32), np.zeros(2, np.int32)), TypeError),
        ((np.zeros(1, ">i4"), np.zeros(2, np.int32)), TypeError),
        ((np.zeros(1, "i1,i1,i2"), np.zeros(2, np.int32)), TypeError),
        ((np.zeros(5, np.uint8)[1:].view(np.int32), np.zeros(2, np.int32)), TypeError),
    ],
)
def test_wrong_arguments_are_refused(functions: Functions, arguments: tuple[Any, ...], error: Any) -> None:
    with pytest.raises(error):
        functions["lay_out"](*arguments)


@needs_a_compiler
def test_a_level_that_is_not_there(made: ModuleType) -> None:
    with pytest.raises(ValueError, match="no code for the level z80"):
        made.functions("z80")


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A module that says what it is asked to."""
    fake = SimpleNamespace(
        SOURCES=digest_of_sources(),
        levels=lambda: ("better", "good"),
        functions=lambda level: {"level": level},
    )
    monkeypatch.setitem(sys.modules, MODULE, fake)
    monkeypatch.delenv(machine_code.VARIABLE, raising=False)
    return fake


def test_the_best_level_is_chosen(shipped: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_code._load() == ({"level": "better"}, "better")
    monkeypatch.setenv(machine_code.VARIABLE, "good")
    assert machine_code._load() == ({"level": "good"}, "good")
    monkeypatch.setenv(machine_code.VARIABLE, "numba")
    assert machine_code._load()[0] is None


def test_a_level_that_was_asked_for_in_vain(shipped: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine_code.VARIABLE, "x86-64-v9")
    with pytest.raises(InvalidConfig, match=r"DURALOG_KERNELS=x86-64-v9 is not available here.*numba, better, good"):
        machine_code._load()


def test_code_of_other_sources_is_not_used(shipped: SimpleNamespace) -> None:
    shipped.SOURCES = "0123"
    assert machine_code._load() == (None, "the kernels were edited after their machine code was made")


def test_code_for_another_cpu_is_not_used(shipped: SimpleNamespace) -> None:
    shipped.levels = tuple
    assert machine_code._load() == (None, "the machine code of the package needs another CPU")


NEITHER = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite") or name.endswith("._machine_code"):
            raise ModuleNotFoundError("blocked", name=name)
sys.meta_path.insert(0, Blocked())
from duralog.errors import MissingExtra
try:
    import duralog.kernels.scan
except MissingExtra as error:
    print(error)
"""


def test_neither_machine_code_nor_numba_is_a_sentence() -> None:
    environment = {name: value for name, value in os.environ.items() if name != machine_code.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", NEITHER], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    assert "pip install 'duralog[numba]'" in done.stdout
    assert "this install has no machine code" in done.stdout


def test_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert building.main(["--all", str(tmp_path)]) == 1
    assert "there is no C compiler: no-such-compiler" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_tag_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / building.FILE_NAME
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    module.write_bytes(b"..GLIBC_2.14\0GLIBC_2.2.5\0")
    assert building.wheel_tag(module).startswith("cp311-abi3-manylinux_2_17_")
    module.write_bytes(b"GLIBC_2.14\0GLIBC_2.34\0")
    assert building.wheel_tag(module).startswith("cp311-abi3-manylinux_2_34_")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert building.wheel_tag(module) == f"cp311-abi3-linux_{platform.machine()}"


def levels_in_place() -> list[str]:
    """Of the code that `make env` made, if it is of these sources."""
    script = "from duralog.kernels.compilation import _machine_code as m; print(m.SOURCES, *m.levels())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    sources, *levels = done.stdout.split() or [""]
    return levels if sources == digest_of_sources() else []


WHOLE = """
import sys
from duralog.kernels.compilation import machine_code
from duralog.kernels.compilation.catalog import all_kernels
assert set(machine_code.FUNCTIONS) == set(all_kernels())
assert "numba" not in sys.modules and "llvmlite" not in sys.modules
import pytest
raise SystemExit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_all_kernels_and_the_reference_agree() -> None:
    """With the code that was made in place, if it was: the twins' tests again, for each level, without numba."""
    levels = levels_in_place()
    if not levels:
        pytest.skip("no machine code in place: python -m duralog.kernels.compilation makes it")
    assert all_kernels()
    tests = ["tests/properties/test_kernel_twins.py", "tests/properties/test_avro_twins.py"]
    for level in levels:
        subprocess.run(
            [sys.executable, "-c", WHOLE, "-q", "-p", "no:cacheprovider", *tests],
            env={**os.environ, machine_code.VARIABLE: level},
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=600,
        )
