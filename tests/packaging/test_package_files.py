"""What is in the wheel and the source distribution, and that both are the same whenever and wherever they are built."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest

import duralog
from tests.packaging.clean_install import PROJECT, Builder, copy_of_sources
from tests.support.places import ROOT

VERSION = duralog.__version__


def names_in_wheel(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def names_in_sdist(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path, sources: Path) -> None:
    names = names_in_wheel(wheel)
    info = f"duralog-{VERSION}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"duralog", "pyspark_duralog", info}
    in_tree = {
        str(path.relative_to(sources / "src"))
        for package in ("duralog", "pyspark_duralog")
        for path in (sources / "src" / package).rglob("*")
        if path.is_file()
    }
    assert {name for name in names if not name.startswith(info)} == in_tree
    assert {"duralog/py.typed", "duralog/__main__.py", "duralog/spark/log4j2.properties"} <= in_tree
    assert f"{info}/licenses/LICENSE" in names


def test_the_source_distribution(sdist: Path) -> None:
    names = set(names_in_sdist(sdist))
    top = {name.partition("/")[0] for name in names}
    assert top == {
        *("src", "packaging", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO"),
        *("requirements.txt", "Dockerfile", ".dockerignore", ".gitignore"),
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert "packaging/duralog.service" in names


def test_builds_are_the_same_anywhere(
    builder: Builder, sources: Path, wheel: Path, sdist: Path, tmp_path: Path
) -> None:
    copied = copy_of_sources(tmp_path / "another place", sources)
    for file in (path for path in copied.rglob("*") if path.is_file()):
        # As another user with another umask has them, checked out at another time.
        file.chmod(0o600)
        os.utime(file, (1_500_000_000, 1_500_000_000))
    wheel_again, sdist_again = builder.build(copied, tmp_path / "built", "wheel", "sdist")
    assert names_in_wheel(wheel_again) == names_in_wheel(wheel)
    assert wheel_again.read_bytes() == wheel.read_bytes()
    assert names_in_sdist(sdist_again) == names_in_sdist(sdist)
    assert sdist_again.read_bytes() == sdist.read_bytes()


def test_the_wheel_from_the_source_distribution(builder: Builder, wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (again,) = builder.build(tmp_path / f"duralog-{VERSION}", tmp_path / "built", "wheel")
    assert again.read_bytes() == wheel.read_bytes()


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"duralog-{VERSION}.dist-info/METADATA").decode()
        entry_points = archive.read(f"duralog-{VERSION}.dist-info/entry_points.txt").decode()
    headers = HeaderParser().parsestr(text)
    assert (headers["Name"], headers["Version"]) == ("duralog", VERSION)
    assert headers["License-Expression"] == "Apache-2.0"
    assert headers["Requires-Python"] == ">=3.11"
    assert set(headers.get_all("Provides-Extra") or ()) == set(PROJECT["project"]["optional-dependencies"])
    needed = [each.partition(";")[0] for each in headers.get_all("Requires-Dist") or () if "extra ==" not in each]
    # This wheel has no machine code.
    assert any(each.startswith("numba>=") for each in needed)
    assert "Typing :: Typed" in (headers.get_all("Classifier") or ())
    assert "duralog = duralog.__main__:main" in entry_points


def test_links_of_the_project_page(builder: Builder, wheel: Path, sources: Path, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    plain = project_page(wheel)
    assert plain.get_payload() == readme
    assert plain["Project-URL"] is None

    home = "https://example.org/someone/duralog"
    (released,) = builder.build(sources, tmp_path / "released", "wheel", DURALOG_REPOSITORY=f"{home}/")
    page = project_page(released)
    addresses = dict(each.split(", ") for each in page.get_all("Project-URL") or ())
    assert addresses["Changelog"] == f"{home}/blob/HEAD/CHANGELOG.md"
    assert {"Homepage", "Documentation", "Issues", "Source"} < addresses.keys()
    targets = re.findall(r"\]\(([^)]*)\)", str(page.get_payload()))
    assert len(targets) == len(re.findall(r"\]\(", readme))
    assert all(target.startswith("https://") for target in targets)
    for kind, path in (re.fullmatch(f"{home}/(raw|blob)/HEAD/([^#]*)(?:#.*)?", each).groups() for each in targets):  # type: ignore[union-attr]
        assert (ROOT / path).is_file(), path
        assert kind == ("raw" if "/images/" in path else "blob")


def test_an_address_that_is_none(builder: Builder, sources: Path, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        builder.build(sources, tmp_path, "wheel", DURALOG_REPOSITORY="github.com/someone/duralog")


def project_page(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return HeaderParser().parsestr(archive.read(f"duralog-{VERSION}.dist-info/METADATA").decode())


def test_the_version_is_in_one_place() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/duralog/__init__.py"
    told = [path for path in _texts() if VERSION in path.read_text(encoding="utf-8")]
    assert told == [ROOT / "src" / "duralog" / "__init__.py"]


def _texts() -> list[Path]:
    places = [*(ROOT / "src").rglob("*.py"), *(ROOT / "packaging").iterdir(), ROOT / "Dockerfile", ROOT / "README.md"]
    return [path for path in places if "__pycache__" not in path.parts]


def test_front_ends_make_the_wheel_to_know_what_it_needs(builder: Builder, sources: Path) -> None:
    """Whether it needs numba is not known before."""
    program = "import build_backend as b; print(b.get_requires_for_build_editable(), *dir(b))"
    shown = builder.backend(sources, program).stdout
    assert "build_wheel" in shown
    assert "prepare_metadata" not in shown
    assert "numba" not in shown


def test_variables_of_the_build(builder: Builder, sources: Path) -> None:
    program = "import build_backend as b; print(b.get_requires_for_build_wheel())"
    done = builder.backend(sources, program, DURALOG_WHEEL="pure", DURALOG_KERNELS="x86-64-v9")
    assert done.stdout == "[]\n", done.stderr
    done = builder.backend(sources, program, DURALOG_WHEEL="", DURALOG_KERNELS="x86-64-v9")
    assert done.returncode == 0, done.stderr
    done = builder.backend(sources, program, DURALOG_WHEEL="machine")
    assert "DURALOG_WHEEL=machine is not known: set machine-code or pure, or unset it" in done.stderr
