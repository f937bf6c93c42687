"""Words of memory, by their addresses, in one load or store. No bounds are checked here."""

from __future__ import annotations

from typing import Any

from duralog.kernels.compilation.numba_names import intrinsic, ir, types
from duralog.kernels.words import VECTOR_BYTES

_I64 = ir.IntType(64)
_VECTOR = ir.VectorType(ir.IntType(8), VECTOR_BYTES)


def _load(builder: Any, address: Any, kind: ir.Type) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


@intrinsic
def load_word(typingctx: Any, address: Any) -> Any:
    """Eight bytes, as an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(builder, args[0], _I64)

    return types.int64(types.int64), codegen


@intrinsic
def load_half(typingctx: Any, address: Any) -> Any:
    """Four bytes, a signed number, as an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(_load(builder, args[0], ir.IntType(32)), _I64)

    return types.int64(types.int64), codegen


@intrinsic
def store_word(typingctx: Any, address: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def store_half(typingctx: Any, address: Any, value: Any) -> Any:
    """The four lowest bytes of an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, builder.trunc(args[1], ir.IntType(32)), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def store_as_float(typingctx: Any, address: Any, value: Any) -> Any:
    """An int64 as the nearest float."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, builder.sitofp(args[1], ir.FloatType()), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def store_as_double(typingctx: Any, address: Any, value: Any) -> Any:
    """An int64 as the nearest double."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, builder.sitofp(args[1], ir.DoubleType()), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def copy_float_as_double(typingctx: Any, source: Any, target: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, builder.fpext(_load(builder, args[0], ir.FloatType()), ir.DoubleType()), args[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """How many of the lowest bits of a uint64 are 0. REQUIRES: not all of them."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@intrinsic
def copy_marked(typingctx: Any, source: Any, target: Any) -> Any:
    """Copy `VECTOR_BYTES` bytes; the result has a bit for each byte from 0x80 on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _load(builder, args[0], _VECTOR)
        _store(builder, vector, args[1])
        high = builder.icmp_signed("<", vector, ir.Constant(_VECTOR, [0] * VECTOR_BYTES))
        return builder.zext(builder.bitcast(high, ir.IntType(VECTOR_BYTES)), _I64)

    return types.int64(types.int64, types.int64), codegen
