"""The package is built once, and installed once, for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.clean_install import Builder, CleanInstall, copy_of_sources


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("builder"))


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What everything here is built from."""
    return copy_of_sources(tmp_path_factory.mktemp("sources") / "project")


@pytest.fixture(scope="session")
def built(builder: Builder, sources: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution of the project as it is."""
    wheel, sdist = builder.build(sources, tmp_path_factory.mktemp("built"), "wheel", "sdist")
    return wheel, sdist


@pytest.fixture(scope="session")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[0]


@pytest.fixture(scope="session")
def sdist(built: tuple[Path, Path]) -> Path:
    return built[1]


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanInstall:
    return CleanInstall(tmp_path_factory.mktemp("installed"), wheel)
