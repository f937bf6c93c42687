"""Settings for all tests: how many examples the randomised ones try, and which.

The examples are the same in every run of the same code, so that a change fails by its own fault alone. `--randomised N`
multiplies their number and makes them new ones, for a long run at night: `pytest tests/properties --randomised 50`.
`--image` adds the test that builds the Docker image.
"""

from __future__ import annotations

import os
from functools import cache

import pytest
import typer
import typer.testing
from hypothesis import HealthCheck, settings

from duralog.kernels.compilation import machine_code
from duralog.kernels.compilation.catalog import all_kernels
from tests.support.spark import class_archive

# Typer builds all commands again for each call of a CliRunner: 70 ms, a hundred times what most commands take.
typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]

os.environ.setdefault("SPARK_SUBMIT_OPTS", class_archive.java_options())


def _use_shipped_kernels() -> None:
    """Run the machine code of the package, as users do. What kernels are made of is compiled: tests call it."""
    shipped = machine_code.FUNCTIONS
    if shipped is not None:
        machine_code.FUNCTIONS = None
        for name, kernel in all_kernels().items():
            kernel.run = shipped[name]
        machine_code.FUNCTIONS = shipped


_use_shipped_kernels()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--randomised", type=int, default=1, metavar="N", help="try N times as many random examples")
    parser.addoption("--image", action="store_true", help="build and run the Docker image, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--image"):
        unwanted = [item for item in items if item.get_closest_marker("image") is not None]
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item in items if item not in unwanted]


def pytest_configure(config: pytest.Config) -> None:
    # No deadline: the first example of a kernel may compile it.
    times = config.getoption("--randomised")
    settings.register_profile(
        "duralog",
        deadline=None,
        derandomize=times == 1,
        max_examples=100 * times,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
    settings.load_profile("duralog")


@pytest.fixture(scope="session")
def randomised(request: pytest.FixtureRequest) -> int:
    """How many times more random examples were asked for than usual."""
    times: int = request.config.getoption("--randomised")
    return times
