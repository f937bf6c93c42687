"""The APIs that this broker serves. Each is a module with an `API`; what is not in this table is not advertised."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from duralog.broker.request import Api

HANDLERS = ("api_versions",)
"""The modules, by the keys of their APIs."""


def load_apis() -> Mapping[int, Api]:
    """The APIs by key."""
    modules = [importlib.import_module(f"{__name__}.{name}") for name in HANDLERS]
    return {module.API.key: module.API for module in modules}
