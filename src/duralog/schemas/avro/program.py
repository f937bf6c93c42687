"""From steps to a program for the kernel: instructions, tables and constants, all of them numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.kernels.avro import program as ops
from duralog.schemas.avro.resolution import (
    Default,
    Member,
    Present,
    Read,
    ReadItems,
    ReadRecord,
    ReadUnion,
    SetNull,
    Skip,
    Step,
    is_empty,
)
from duralog.schemas.avro.schema import (
    UNITS_IN_A_DAY,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    is_null,
    logical_of,
)
from duralog.schemas.avro.shapes import Shape, item_type, same_domain

_SAME = {
    "boolean": ops.BOOLEAN,
    "int": ops.INT,
    "long": ops.LONG,
    "float": ops.FLOAT,
    "double": ops.DOUBLE,
    "string": ops.STRING,
    "bytes": ops.BYTES,
}
_PROMOTED = {
    ("int", "long"): ops.INT_AS_LONG,
    ("int", "float"): ops.INT_AS_FLOAT,
    ("int", "double"): ops.INT_AS_DOUBLE,
    ("long", "float"): ops.LONG_AS_FLOAT,
    ("long", "double"): ops.LONG_AS_DOUBLE,
    ("float", "double"): ops.FLOAT_AS_DOUBLE,
    ("string", "bytes"): ops.BYTES,
    ("bytes", "string"): ops.STRING,
}
_HIGHEST = 2**63 - 1
_WORTH_A_WALK = 4
"""Skipped fields. For fewer, the two passes over a row take longer than they save."""
_READ = -1
"""Among the entries of a walk: the end of a wanted field."""


@dataclass(frozen=True, slots=True)
class Program:
    instructions: NDArray[np.int64]
    tables: NDArray[np.int64]
    constants: NDArray[np.uint8]
    domains: int
    """With those that skipped arrays count their items in."""
    marks: int
    """Positions that the walk over a row notes."""


def compile_program(step: Step, writer: AvroType, root: Shape, domains: int) -> Program:
    """The program that follows `step` for values of `writer`, with the shapes of `root`, of this many domains."""
    made = _Writer(domains)
    assert made.null_list(same_domain(root)) == ops.ROOT_NULLS
    head = made.put(ops.HEAD)
    made.emit(step)
    made.put(ops.END)
    if isinstance(step, ReadRecord) and isinstance(writer, Record):
        made.walk(step, writer, head)
    return Program(
        np.array(made.instructions, np.int64).reshape(-1),
        np.array(made.tables, np.int64),
        np.frombuffer(bytes(made.constants) or b"\x00", np.uint8),
        made.domains,
        head[ops.NULLS],
    )


class _Writer:
    def __init__(self, domains: int) -> None:
        self.instructions: list[list[int]] = []
        self.tables: list[int] = []
        self.constants = bytearray()
        self.domains = domains
        self._skipped: list[list[int]] = []
        """Values to skip by one instruction, which is not put yet."""

    def put(self, code: int, shape: Shape | None = None, first: int = 0, second: int = 0) -> list[int]:
        """Add an instruction, which may be completed later."""
        self._flush()
        one = [code, 0, 0, first, second, ops.NOT_NULLABLE, 0, 0]
        if shape is not None:
            one[ops.COLUMN] = shape.column * ops.COLUMN_BYTES
            one[ops.DOMAIN] = shape.domain * ops.DOMAIN_BYTES
        self.instructions.append(one)
        return one

    @property
    def here(self) -> int:
        """Where the next instruction will be."""
        self._flush()
        return len(self.instructions) * ops.OP_BYTES

    def _flush(self) -> None:
        skipped, self._skipped = self._skipped, []
        if skipped:
            numbers = [number for one in _merged(skipped) for number in one]
            self.put(ops.SKIP, first=self.table(numbers), second=len(numbers))

    def table(self, numbers: Sequence[int]) -> int:
        self.tables += numbers
        return len(self.tables) - len(numbers)

    def null_list(self, shapes: Iterable[Shape]) -> int:
        columns = [shape.column * ops.COLUMN_BYTES for shape in shapes]
        return self.table([len(columns), *columns])

    def emit(self, step: Step) -> None:
        _EMITTERS[type(step)](self, step)

    def walk(self, step: ReadRecord, writer: Record, head: list[int]) -> None:
        """Add a table to walk and the part that only reads, if the record has no arrays and is mostly skipped."""
        fields = list(zip((inner for _, inner in step.steps), writer.fields, strict=False))
        skipped = sum(isinstance(inner, Skip) for inner, _ in fields)
        if skipped < _WORTH_A_WALK or 2 * skipped < len(fields):
            return
        entries: list[list[int]] = []
        leaps: list[int | None] = []
        for inner, one in fields:
            if not isinstance(inner, Skip):
                # A field right after another one needs no leap, and the first one is where the row starts.
                is_apart = not entries or entries[-1][0] != _READ
                leaps.append(sum(entry[0] == ops.MARK for entry in entries) if is_apart else None)
                if is_apart:
                    entries.append([ops.MARK, leaps[-1] or 0])
            found = _entries(one.type)
            if found is None:
                return
            entries += found
            if not isinstance(inner, Skip):
                entries.append([_READ, 0])
        if not leaps:
            entries.insert(0, [ops.MARK, 0])
        entries = _merged([entry for entry in entries if entry[0] != _READ])
        head[ops.AFTER] = self.here
        head[ops.NULLS] = sum(entry[0] == ops.MARK for entry in entries)
        wanted = iter(leaps)
        for number, (_, inner) in enumerate(step.steps):
            if not isinstance(inner, Skip):
                if number < len(fields) and (mark := next(wanted)):
                    self.put(ops.LEAP, first=mark)
                self.emit(inner)
        self.put(ops.WALKED_END)
        numbers = [number for entry in entries for number in entry]
        head[ops.FIRST], head[ops.SECOND] = self.table(numbers), len(numbers)

    def read(self, step: Read) -> None:
        code, first, second = self._scalar(step)
        if code is not None:
            self.put(code, step.shape, first, second)

    def _scalar(self, step: Read) -> tuple[int | None, int, int]:
        """The code and its arguments; no code for a null."""
        writer, reader = step.writer, step.shape.type
        logical = logical_of(reader)
        if isinstance(writer, Enum):
            return ops.ENUM, self.table(step.symbols), len(step.symbols)
        if logical is not None and logical.name == "decimal":
            words = step.shape.kind // 8
            limit = 10**logical.precision
            parts = [_signed(limit >> 64 * number & (1 << 64) - 1) for number in range(words)]
            return ops.DECIMAL, self.table([writer.size if isinstance(writer, Fixed) else -1, *parts]), words
        if isinstance(writer, Fixed):
            return ops.FIXED, writer.size, 0
        assert isinstance(reader, Primitive)
        if logical is not None and (logical.name in UNITS_IN_A_DAY or step.factor > 1):
            lowest, highest = -(_HIGHEST // step.factor), _HIGHEST // step.factor
            if logical.name in UNITS_IN_A_DAY:
                lowest, highest = 0, (UNITS_IN_A_DAY[logical.name] - 1) // step.factor
            numbers = [step.factor, writer.kind == "int", lowest, highest, step.shape.kind]
            return ops.SCALED, self.table([int(number) for number in numbers]), 0
        if writer.kind == "null":
            return None, 0, 0
        code = _SAME[writer.kind] if writer.kind == reader.kind else _PROMOTED[writer.kind, reader.kind]
        return code, 0, 0

    def record(self, step: ReadRecord) -> None:
        for _, inner in step.steps:
            self.emit(inner)

    def items(self, step: ReadItems) -> None:
        shape = step.shape
        domain = shape.items_domain * ops.DOMAIN_BYTES
        head = self.put(ops.ARRAY, shape, domain, int(step.is_empty))
        body = self.here
        if shape.key is not None:
            self.put(ops.STRING, shape.key)
        self.emit(step.item)
        tail = self.put(ops.ITEM_END, shape, domain, int(step.is_empty))
        tail[ops.NULLS] = body
        head[ops.AFTER] = tail[ops.AFTER] = self.here

    def union(self, step: ReadUnion) -> None:
        if self._fused(step):
            return
        self._branches([None if one is None else partial(self.emit, one) for one in step.branches])

    def _fused(self, step: ReadUnion) -> bool:
        """The usual union: a null or a value, decided by the value's own instruction."""
        if len(step.branches) != 2:
            return False
        for number, null in enumerate(step.branches):
            value = step.branches[1 - number]
            if isinstance(null, SetNull) and isinstance(value, Present) and null.shape is value.shape:
                self._present(value, number)
                return True
        return False

    def present(self, step: Present) -> None:
        self._present(step, ops.PRESENT)

    def _present(self, step: Present, null_branch: int) -> None:
        """The first instruction carries the null, if it writes to this very shape; else one is put before it."""
        number = self.here // ops.OP_BYTES
        inner = step.step
        if not (isinstance(inner, Read | ReadItems) and inner.shape is step.shape):
            self.put(ops.GROUP, step.shape)
        self.emit(inner)
        head = self.instructions[number]
        head[ops.NULL_BRANCH] = null_branch
        head[ops.NULLS] = self.null_list(same_domain(step.shape)) if null_branch >= 0 else 0
        head[ops.AFTER] = self.here

    def set_null(self, step: SetNull) -> None:
        self.put(ops.NULL, step.shape)[ops.NULLS] = self.null_list(same_domain(step.shape))

    def member(self, step: Member) -> None:
        others = [child for name, child in step.shape.fields.items() if name != step.name]
        if others:
            absent = [shape for child in others for shape in same_domain(child)]
            self.put(ops.NULL, step.shape)[ops.NULLS] = self.null_list(absent)
        self.emit(step.step)

    def default(self, step: Default) -> None:
        start = len(self.constants)
        self.constants += step.data
        self.put(ops.CONSTANT, first=start, second=len(self.constants))
        self.emit(step.step)
        self.put(ops.CONSTANT_END)

    def skip(self, step: Skip) -> None:
        self._skip(step.writer)

    def _skip(self, one: AvroType) -> None:
        if isinstance(one, Record):
            for inner in one.fields:
                self._skip(inner.type)
        elif (found := _entries(one)) is not None:
            self._skipped += found
        elif isinstance(one, Union):
            self._branches([partial(self._skip, branch) for branch in one.branches])
        elif isinstance(one, Array | Map):
            self._skip_items(one)

    def _skip_items(self, one: Array | Map) -> None:
        domain = self.domains * ops.DOMAIN_BYTES
        self.domains += 1
        empty = int(isinstance(one, Array) and is_empty(item_type(one)))
        head = self.put(ops.SKIP_ARRAY, first=domain, second=empty)
        body = self.here
        if isinstance(one, Map):
            self._skip(Primitive("string"))
        self._skip(item_type(one))
        tail = self.put(ops.SKIP_ITEM_END, first=domain, second=empty)
        tail[ops.NULLS] = body
        head[ops.AFTER] = tail[ops.AFTER] = self.here

    def _branches(self, branches: Sequence[Callable[[], None] | None]) -> None:
        table = self.table([-1] * len(branches))
        self.put(ops.UNION, first=table, second=len(branches))
        jumps = []
        for number, branch in enumerate(branches):
            if branch is not None:
                self.tables[table + number] = self.here
                branch()
                jumps.append(self.put(ops.JUMP))
        for jump in jumps:
            jump[ops.AFTER] = self.here


def _entries(one: AvroType) -> list[list[int]] | None:
    """How to skip a value whose first bytes give its size: a list of kinds and amounts. None for other types."""
    if isinstance(one, Record):
        parts = [_entries(inner.type) for inner in one.fields]
        return None if None in parts else [entry for part in parts for entry in part or ()]
    if isinstance(one, Enum):
        return [[ops.VARINT, 0]]
    if isinstance(one, Fixed):
        return [[ops.FIXED_SIZE, one.size]]
    if isinstance(one, Union):
        found = _entries(one.values[0]) if len(one.branches) == 2 and one.has_null else None
        if found is None or len(found) != 1 or found[0][0] >= ops.NULL_FIRST:
            return None
        return [[found[0][0] + (ops.NULL_FIRST if is_null(one.branches[0]) else ops.NULL_SECOND), found[0][1]]]
    if not isinstance(one, Primitive):
        return None
    return {
        "null": [],
        "boolean": [[ops.FIXED_SIZE, 1]],
        "int": [[ops.VARINT, 0]],
        "long": [[ops.VARINT, 0]],
        "float": [[ops.FIXED_SIZE, 4]],
        "double": [[ops.FIXED_SIZE, 8]],
        "bytes": [[ops.LENGTH_FIRST, 0]],
        "string": [[ops.LENGTH_FIRST, 0]],
    }[one.kind]


def _merged(entries: list[list[int]]) -> list[list[int]]:
    """What the kernel takes: fixed sizes together with the value before them."""
    merged: list[list[int]] = []
    for kind, amount in entries:
        if kind == ops.FIXED_SIZE and merged and merged[-1][0] != ops.MARK:
            merged[-1][2] += amount
        else:
            merged.append([kind, amount, 0])
    return merged


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_EMITTERS: dict[Any, Callable[[_Writer, Any], None]] = {
    Read: _Writer.read,
    ReadRecord: _Writer.record,
    ReadItems: _Writer.items,
    ReadUnion: _Writer.union,
    Present: _Writer.present,
    SetNull: _Writer.set_null,
    Member: _Writer.member,
    Default: _Writer.default,
    Skip: _Writer.skip,
}
