"""All kernels of the package."""

from __future__ import annotations

import importlib
import pkgutil

import duralog.kernels
from duralog.kernels.compile import Kernel


def kernel_modules() -> list[str]:
    """Full names, those of sub-packages too, without what compiles."""
    prefix = f"{duralog.kernels.__name__}."
    found = [module.name for module in pkgutil.walk_packages(duralog.kernels.__path__, prefix) if not module.ispkg]
    return [name for name in found if not name.startswith(f"{prefix}compilation.")]


def all_kernels() -> dict[str, Kernel]:
    """By name: no two have the same. Imports every module of kernels, and compiles nothing."""
    found: dict[str, Kernel] = {}
    for name in kernel_modules():
        for one in vars(importlib.import_module(name)).values():
            if isinstance(one, Kernel) and one.function.__module__ == name:
                assert one.__name__ not in found, f"two kernels are named {one.__name__}"
                found[one.__name__] = one
    return found
