"""The kernels for one level of CPU: one object file, and what C has to know to call them.

A process of its own for each level, since numba reads the CPU's name at import:

    NUMBA_CPU_NAME=... NUMBA_CPU_FEATURES=... python -m duralog.kernels.compilation.objects LEVEL FOLDER [KERNEL ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core import compiler, sigutils

from duralog.kernels.compilation.catalog import all_kernels
from duralog.kernels.compilation.levels import Level, level_named
from duralog.kernels.compilation.sources import OPTIONS
from duralog.kernels.compile import Kernel


def symbol(level: Level, name: str) -> str:
    return f"duralog_{level.c_name}_{name}"


def compile_object(level: Level, kernels: dict[str, Kernel]) -> bytes:
    """An object file with one hidden symbol for each kernel."""
    whole = llvm.parse_assembly("")
    whole.triple = llvm.get_process_triple()
    for name, kernel in kernels.items():
        whole.link_in(_module(kernel, symbol(level, name)))
    exported = {symbol(level, name) for name in kernels}
    for function in whole.functions:
        if function.is_declaration:
            continue
        if function.name in exported:
            function.visibility = "hidden"
        else:
            function.linkage = "internal"
    for variable in whole.global_variables:
        variable.linkage = "internal"
    whole.verify()
    target = llvm.Target.from_triple(whole.triple)
    machine = target.create_target_machine(
        cpu=level.name, features=level.features, opt=3, reloc="pic", codemodel="default"
    )
    code: bytes = machine.emit_object(whole)
    return code


def _module(kernel: Kernel, name: str) -> Any:
    """The kernel and all that it calls, optimised by numba as for a call."""
    options = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(**options)(kernel.function)
    described = dispatcher.targetdescr
    flags = compiler.Flags()
    described.options.parse_as_flags(flags, dispatcher.targetoptions)
    arguments, result = sigutils.normalize_signature(kernel.signature)
    compiled = compiler.compile_extra(
        described.typing_context, described.target_context, kernel.function, arguments, result, flags, locals={}
    )
    module = llvm.parse_assembly(compiled.library.get_llvm_str())
    module.get_function(compiled.fndesc.llvm_func_name).name = name
    return module


def describe(kind: Any) -> Any:
    """A type of a signature, for `wrappers`."""
    names: Any = types
    if isinstance(kind, names.Array):
        assert kind.layout == "C"
        letters = _letters(kind.dtype)
        return {"items": _size(kind.dtype), "letters": letters, "dimensions": kind.ndim, "writable": kind.mutable}
    if isinstance(kind, names.BaseTuple):
        assert not any(isinstance(member, names.BaseTuple) for member in kind), f"{kind}: a tuple in a tuple"
        return [describe(member) for member in kind]
    if kind == names.none:
        return None
    if kind == names.boolean:
        return "bool"
    assert isinstance(kind, names.Integer), f"{kind} is not known to the wrappers"
    return f"{'' if kind.signed else 'u'}int{kind.bitwidth}_t"


def _letters(item: Any) -> str:
    """What the format of a buffer may be; empty if the size of the items says enough, as for bytes and records."""
    if isinstance(item, types.Record) or _size(item) == 1:
        return ""
    if isinstance(item, types.Integer):
        return "hilqn" if item.signed else "HILQN"  # type: ignore[attr-defined]
    assert isinstance(item, types.Float), f"{item} is not known to the wrappers"
    return "fd"


def _size(item: Any) -> int:
    return int(item.size if isinstance(item, types.Record) else item.bitwidth // 8)


def main(level_name: str, folder: str, *names: str) -> None:
    level = level_named(level_name)
    kernels = all_kernels()
    if names:
        kernels = {name: kernels[name] for name in names}
    Path(folder, f"{level.c_name}.o").write_bytes(compile_object(level, kernels))
    signatures = {}
    for name, kernel in kernels.items():
        arguments, result = sigutils.normalize_signature(kernel.signature)
        signatures[name] = {"arguments": [describe(one) for one in arguments], "result": describe(result)}
    Path(folder, "signatures.json").write_text(json.dumps(signatures), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
