"""What the writing kernels share: copies, constant text and variable-length integers, at any byte of memory.

All of it works on addresses instead of arrays: numba counts a reference whenever an array goes into a function, and in
the loops of these kernels that took as long as the work. A kernel takes the addresses of its arguments with
`address_of`; the arrays are the caller's and outlive the call.

No bounds are checked here. REQUIRES, of every function that writes: what it writes, and `SLACK` bytes after it, lie
within the output. The fast ways move whole vectors and touch up to that many bytes past what they were asked to write;
the surplus is overwritten by what comes next, or never read. Nothing is read past the end of a source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duralog.kernels.compilation.numba_names import intrinsic, ir, types
from duralog.kernels.compile import device
from duralog.kernels.words import VECTOR_BYTES

SLACK = VECTOR_BYTES

_LONG_COPY = 512
"""From here on the C library's copy is faster than vectors."""

_VECTOR = ir.VectorType(ir.IntType(8), VECTOR_BYTES)
_ADDRESS = ir.IntType(64)


def _load(builder: Any, address: Any, kind: ir.Type) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


@intrinsic
def address_of(typingctx: Any, array: Any) -> Any:
    """The address of an array's first element."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, _ADDRESS)

    return types.int64(array), codegen


@intrinsic
def load_byte(typingctx: Any, address: Any) -> Any:
    """The byte at an address, as an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(_load(builder, args[0], ir.IntType(8)), ir.IntType(64))

    return types.int64(types.int64), codegen


def _store_word(bits: int) -> Callable[..., Any]:
    def typing(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
            _store(builder, value, args[0])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    typing.__name__ = f"store_{bits}_bits"
    made: Callable[..., Any] = intrinsic(typing)
    return made


store_byte = _store_word(8)
"""Write the lowest byte of an int64."""
store_two_bytes = _store_word(16)
"""Write the two lowest bytes of an int64, the lowest first."""


@intrinsic
def _copy_vector(typingctx: Any, source: Any, target: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, _load(builder, args[0], _VECTOR), args[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def copy_exactly(typingctx: Any, source: Any, size: Any, target: Any) -> Any:
    """`size` bytes, not one more, by the C library."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [byte_pointer, byte_pointer, _ADDRESS])
        source, size, target = args
        builder.call(
            memcpy,
            [
                builder.inttoptr(target, byte_pointer),
                builder.inttoptr(source, byte_pointer),
                size,
                ir.Constant(ir.IntType(1), 0),
            ],
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@device
def copy_bytes(source, size, source_end, target):
    """Copy `size` bytes; the result is the address after them. REQUIRES: the source has them before `source_end`."""
    if size > _LONG_COPY or source + ((size + (VECTOR_BYTES - 1)) & -VECTOR_BYTES) > source_end:
        copy_exactly(source, size, target)
    else:
        done = 0
        while done < size:
            _copy_vector(source + done, target + done)
            done += VECTOR_BYTES
    return target + size


@intrinsic
def copy_plain(typingctx: Any, source: Any, target: Any) -> Any:
    """Copy `VECTOR_BYTES` bytes; the result is how many of the first ones are plain, up to all of them.

    Plain is printable ASCII but for the quote and the backslash. REQUIRES: the bytes are there to read.
    """

    def splat(byte: int) -> ir.Constant:
        return ir.Constant(_VECTOR, [byte] * VECTOR_BYTES)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _load(builder, args[0], _VECTOR)
        _store(builder, vector, args[1])
        # Bytes from 0x80 on are negative numbers here, so that one comparison finds them and the control characters.
        special = builder.icmp_signed("<", vector, splat(0x20))
        for byte in (ord('"'), ord("\\"), 0x7F):
            special = builder.or_(special, builder.icmp_unsigned("==", vector, splat(byte)))
        first = builder.cttz(builder.bitcast(special, ir.IntType(VECTOR_BYTES)), ir.Constant(ir.IntType(1), 0))
        return builder.zext(first, ir.IntType(64))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def leading_zeros(typingctx: Any, word: Any) -> Any:
    """How many of the highest bits of a uint64 are 0. REQUIRES: not all of them."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@intrinsic(prefer_literal=True)
def put(typingctx: Any, target: Any, text: Any) -> Any:
    """Write a constant string as UTF-8; the result is the address after it."""
    if not isinstance(text, types.StringLiteral):
        return None
    data = text.literal_value.encode()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        done = 0
        while done < len(data):
            size = next(size for size in (8, 4, 2, 1) if size <= len(data) - done)
            word = ir.Constant(ir.IntType(8 * size), int.from_bytes(data[done : done + size], "little"))
            _store(builder, word, builder.add(args[0], ir.Constant(_ADDRESS, done)))
            done += size
        return builder.add(args[0], ir.Constant(_ADDRESS, len(data)))

    return types.int64(types.int64, text), codegen


@device
def _zigzag(value):
    """An int64 as the unsigned number that varints store: small for small numbers of either sign."""
    return types.uint64((value << 1) ^ (value >> 63))


@device
def varint_size(value):
    """How many bytes `put_varint` writes."""
    rest = _zigzag(value)
    size = 1
    while rest >= types.uint64(0x80):
        rest >>= types.uint64(7)
        size += 1
    return size


@device
def put_varint(target, value):
    """Write a zigzag varint or varlong, at most 10 bytes; the result is the address after it."""
    rest = _zigzag(value)
    while rest >= types.uint64(0x80):
        store_byte(target, types.int64(rest | types.uint64(0x80)))
        rest >>= types.uint64(7)
        target += 1
    store_byte(target, types.int64(rest))
    return target + 1
