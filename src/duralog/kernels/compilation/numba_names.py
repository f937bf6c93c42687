"""What the kernels take from numba and llvmlite: the real thing, or names without meaning.

Kernels, their signatures and their intrinsics are evaluated at import. With the machine code of the package none of it
is used, and loading numba would take longer than all else that a first append does.
"""

from __future__ import annotations

from typing import Any

from duralog.errors import MissingExtra
from duralog.kernels.compilation import machine_code

__all__ = ["cgutils", "from_dtype", "intrinsic", "ir", "registry", "types"]


class _Unused:
    """Takes any use and gives itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __getitem__(self, _: Any) -> Any:
        return self


if machine_code.FUNCTIONS is None:
    try:
        from llvmlite import ir
        from numba import from_dtype, types
        from numba.core import cgutils, registry
        from numba.extending import intrinsic
    except ModuleNotFoundError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        raise MissingExtra(f"{machine_code.WHY_NOT}: to compile the kernels", "numba", extra="numba") from error
else:
    nothing: Any = _Unused()
    cgutils = from_dtype = intrinsic = ir = registry = types = nothing
