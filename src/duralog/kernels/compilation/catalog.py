"""All kernels of the package."""

from __future__ import annotations

import importlib
import pkgutil

import duralog.kernels
from duralog.kernels.compile import Kernel


def all_kernels() -> dict[str, Kernel]:
    """By name: no two have the same. Imports every module of kernels, and compiles nothing."""
    found: dict[str, Kernel] = {}
    for module in pkgutil.iter_modules(duralog.kernels.__path__, f"{duralog.kernels.__name__}."):
        if module.ispkg:
            continue
        for one in vars(importlib.import_module(module.name)).values():
            if isinstance(one, Kernel) and one.function.__module__ == module.name:
                assert one.__name__ not in found, f"two kernels are named {one.__name__}"
                found[one.__name__] = one
    return found
