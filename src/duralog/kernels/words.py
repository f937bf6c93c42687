"""Words at any byte of an array, in one load or store: big-endian integers, and plain vectors for copying.

No bounds are checked here. REQUIRES, of every function: the bytes of the word lie within the array. The kernels
check lengths before they call.
"""

from __future__ import annotations

from typing import Any

from duralog.kernels.compilation.numba_names import intrinsic, ir, types

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""What kernels read from. A writable array is taken too."""
OUT_BYTES = types.Array(types.uint8, 1, "C")
"""What kernels write to."""

VECTOR_BYTES = 32
"""What `copy_vector` moves at once: one AVX register, or two of a CPU without."""


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any, word: ir.Type) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), word.as_pointer())


def _load(result: Any, *, swap: bool = True) -> Any:
    word = ir.IntType(result.bitwidth)

    def typing(typingctx: Any, data: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1], word)
            value = builder.load(pointer, align=1)
            return builder.bswap(value) if swap else value

        return result(data, types.int64), codegen

    typing.__name__ = f"load_{result.name}" if swap else f"load_native_{result.name}"
    return intrinsic(typing)


def _store(operand: Any) -> Any:
    word = ir.IntType(operand.bitwidth)

    def typing(typingctx: Any, data: Any, position: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1], word)
            builder.store(builder.bswap(args[2]), pointer, align=1)
            return context.get_dummy_value()

        return types.void(data, types.int64, operand), codegen

    typing.__name__ = f"store_{operand.name}"
    return intrinsic(typing)


load_uint8 = _load(types.uint8, swap=False)
"""Faster than indexing: numba asks of every index whether it is negative."""
load_int16 = _load(types.int16)
load_int32 = _load(types.int32)
load_uint32 = _load(types.uint32)
load_int64 = _load(types.int64)
load_native_uint16 = _load(types.uint16, swap=False)
load_native_uint32 = _load(types.uint32, swap=False)
load_native_uint64 = _load(types.uint64, swap=False)

store_int16 = _store(types.int16)
store_int32 = _store(types.int32)
store_uint32 = _store(types.uint32)
store_int64 = _store(types.int64)


@intrinsic
def copy_vector(typingctx: Any, source: Any, source_position: Any, target: Any, target_position: Any) -> Any:
    """Copy `VECTOR_BYTES` bytes. REQUIRES: that many are there on both sides."""
    vector = ir.VectorType(ir.IntType(8), VECTOR_BYTES)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        origin = _pointer(context, builder, signature.args[0], args[0], args[1], vector)
        goal = _pointer(context, builder, signature.args[2], args[2], args[3], vector)
        builder.store(builder.load(origin, align=1), goal, align=1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), codegen
