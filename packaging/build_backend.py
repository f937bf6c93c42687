"""What front ends (pip, uv, build) call to make a wheel: hatchling, without its shortcut to a wheel's metadata.

Whether a wheel depends on numba is known when it is made (`build_hook`). A front end that asked for the metadata before
would install a wheel without machine code, and no numba. It makes the wheel if the backend has no such function.
"""

from __future__ import annotations

from typing import Any

from hatchling.build import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)
from hatchling.builders.constants import EDITABLES_REQUIREMENT

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:  # noqa: ARG001
    """Not numba: an editable install has no machine code."""
    return [EDITABLES_REQUIREMENT]
