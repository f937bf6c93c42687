"""Avro values straight into the buffers of Arrow arrays: an interpreter of the programs of `program`.

One kernel runs every schema, so nothing is compiled when a new schema comes along. Nothing in the bytes is trusted: a
value never reads outside its row, and a column is written only where there is room. If a column or a domain is full,
the kernel takes back the row and stops; the caller makes room and starts it again at that row. So the memory needed
follows from the values, not from what they claim.

The program and the tables are trusted: `duralog.schemas.avro` makes them.
"""

from __future__ import annotations

import numpy as np

from duralog.kernels.avro import program as ops
from duralog.kernels.avro.program import AvroFault
from duralog.kernels.avro.reading import copy_decimal, copy_text, read_block, read_int, read_length, read_long
from duralog.kernels.avro.skipping import skip_values, walk_four_rows
from duralog.kernels.avro.words import (
    copy_float_as_double,
    load_half,
    load_word,
    store_as_double,
    store_as_float,
    store_half,
    store_word,
)
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, inlined, kernel
from duralog.kernels.words import BYTES
from duralog.kernels.writing import address_of, copy_bytes, load_byte, store_byte

_NONE = int(AvroFault.NONE)
_CUT = int(AvroFault.CUT)
_UNION_INDEX = int(AvroFault.UNION_INDEX)
_ENUM_INDEX = int(AvroFault.ENUM_INDEX)
_LEFT_OVER = int(AvroFault.LEFT_OVER)
_TOO_MANY_ITEMS = int(AvroFault.TOO_MANY_ITEMS)
_UTF8 = int(AvroFault.UTF8)
_DECIMAL = int(AvroFault.DECIMAL)
_BOOLEAN = int(AvroFault.BOOLEAN)
_UNKNOWN_BRANCH = int(AvroFault.UNKNOWN_BRANCH)
_UNKNOWN_SYMBOL = int(AvroFault.UNKNOWN_SYMBOL)
_OUT_OF_RANGE = int(AvroFault.OUT_OF_RANGE)

_IN_INT64S = types.Array(types.int64, 1, "C", readonly=True)
_INT64S = types.Array(types.int64, 1, "C")


@inlined
def _put_bit(bits, index, value):
    place = bits + (index >> 3)
    shift = index & 7
    store_byte(place, load_byte(place) & ~(np.int64(1) << shift) | value << shift)


@device
def _put_nulls(tables, first, columns, index):
    """Set row `index` of the columns of a list to null. Values under a null are 0, strings and lists are empty."""
    at = tables + 8 * first
    stop = at + 8 * load_word(at)
    while at < stop:
        at += 8
        column = columns + load_word(at)
        validity = load_word(column + 8 * ops.VALIDITY)
        if validity != 0:
            _put_bit(validity, index, np.int64(0))
        values = load_word(column + 8 * ops.VALUES)
        kind = load_word(column + 8 * ops.KIND)
        if kind == 8:
            store_word(values + 8 * index, np.int64(0))
        elif kind == 4:
            store_half(values + 4 * index, np.int64(0))
        elif kind == ops.OFFSETS:
            store_half(values + 4 * index + 4, load_half(values + 4 * index))
        elif kind == ops.BITS:
            _put_bit(values, index, np.int64(0))
        elif kind != ops.NOTHING:
            for place in range(kind):
                store_byte(values + kind * index + place, np.int64(0))


@inlined
def _run(op, program, tables, columns, domains, constants, marks, position, end, data_end):
    """Decode the row from `position` to `end`, from instruction `op` on: (fault, its position, rows or bytes needed).

    With `NEEDS_BYTES` or `NEEDS_ITEMS` for a fault, the position is that of the column or domain in its table.
    """
    empty_items = np.int64(0)
    row_position, row_end, row_data_end = position, end, data_end
    while True:
        code = load_word(op)
        column = columns + load_word(op + 8 * ops.COLUMN)
        index = load_word(domains + load_word(op + 8 * ops.DOMAIN))
        null_branch = load_word(op + 8 * ops.NULL_BRANCH)
        at = position
        if null_branch != ops.NOT_NULLABLE:
            if null_branch >= 0:
                branch, position = read_long(position, end, data_end)
                if position < 0:
                    return -position, at, np.int64(0)
                if branch == null_branch:
                    _put_nulls(tables, load_word(op + 8 * ops.NULLS), columns, index)
                    op = program + load_word(op + 8 * ops.AFTER)
                    continue
                if branch != 1 - null_branch:
                    return np.int64(_UNION_INDEX), at, np.int64(0)
                at = position
            _put_bit(load_word(column + 8 * ops.VALIDITY), index, np.int64(1))
        values = load_word(column + 8 * ops.VALUES)

        if code in (ops.STRING, ops.BYTES):
            length, position = read_length(position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
            used = load_half(values + 4 * index)
            if length > load_word(column + 8 * ops.CONTENT_ROOM) - used:
                return np.int64(ops.NEEDS_BYTES), column - columns, used + length
            target = load_word(column + 8 * ops.CONTENT) + used
            if code == ops.STRING:
                if not copy_text(position, length, data_end, target):
                    return np.int64(_UTF8), at, np.int64(0)
            else:
                copy_bytes(position, length, data_end, target)
            store_half(values + 4 * index + 4, used + length)
            position += length
        elif code == ops.LONG:
            number, position = read_long(position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
            store_word(values + 8 * index, number)
        elif code == ops.INT:
            number, position = read_int(position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
            store_half(values + 4 * index, number)
        elif code == ops.DOUBLE:
            if end - position < 8:
                return np.int64(_CUT), at, np.int64(0)
            store_word(values + 8 * index, load_word(position))
            position += 8
        elif code == ops.FLOAT:
            if end - position < 4:
                return np.int64(_CUT), at, np.int64(0)
            store_half(values + 4 * index, load_half(position))
            position += 4
        elif code == ops.BOOLEAN:
            if position >= end:
                return np.int64(_CUT), at, np.int64(0)
            number = load_byte(position)
            if number > 1:
                return np.int64(_BOOLEAN), at, np.int64(0)
            _put_bit(values, index, number)
            position += 1
        elif code == ops.GROUP:
            pass
        elif code == ops.SKIP:
            entry = tables + 8 * load_word(op + 8 * ops.FIRST)
            position, at = skip_values(entry, entry + 8 * load_word(op + 8 * ops.SECOND), position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
        elif code == ops.ENUM:
            number, position = read_int(position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
            if number < 0 or number >= load_word(op + 8 * ops.SECOND):
                return np.int64(_ENUM_INDEX), at, np.int64(0)
            number = load_word(tables + 8 * (load_word(op + 8 * ops.FIRST) + number))
            if number < 0:
                return np.int64(_UNKNOWN_SYMBOL), at, np.int64(0)
            store_half(values + 4 * index, number)
        elif code in (ops.ARRAY, ops.ITEM_END):
            items_domain = load_word(op + 8 * ops.FIRST)
            items = domains + items_domain
            body = op + ops.OP_BYTES
            if code == ops.ITEM_END:
                body = program + load_word(op + 8 * ops.NULLS)
                store_word(items, load_word(items) + 1)
                remaining = load_word(items + 8 * ops.REMAINING) - 1
                if remaining > 0:
                    store_word(items + 8 * ops.REMAINING, remaining)
                    op = body
                    continue
            is_empty = load_word(op + 8 * ops.SECOND) != 0
            number, position, _, at = read_block(position, end, data_end, not is_empty)
            if position < 0:
                return -position, at, np.int64(0)
            count = load_word(items)
            if number == 0:
                store_half(values + 4 * index + 4, count)
                op = program + load_word(op + 8 * ops.AFTER)
                continue
            if is_empty:
                if number > ops.MAX_EMPTY_ITEMS - empty_items:
                    return np.int64(_TOO_MANY_ITEMS), at, np.int64(0)
                empty_items += number
            if number > load_word(items + 8 * ops.ROOM) - count:
                return np.int64(ops.NEEDS_ITEMS), items_domain, count + number
            store_word(items + 8 * ops.REMAINING, number)
            op = body
            continue
        elif code == ops.SCALED:
            table = tables + 8 * load_word(op + 8 * ops.FIRST)
            if load_word(table + 8) != 0:
                number, position = read_int(position, end, data_end)
            else:
                number, position = read_long(position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
            if number < load_word(table + 16) or number > load_word(table + 24):
                return np.int64(_OUT_OF_RANGE), at, np.int64(0)
            number *= load_word(table)
            if load_word(table + 32) == 8:
                store_word(values + 8 * index, number)
            else:
                store_half(values + 4 * index, number)
        elif code == ops.FIXED:
            length = load_word(op + 8 * ops.FIRST)
            if length > end - position:
                return np.int64(_CUT), at, np.int64(0)
            copy_bytes(position, length, data_end, values + length * index)
            position += length
        elif code == ops.DECIMAL:
            table = tables + 8 * load_word(op + 8 * ops.FIRST)
            length = load_word(table)
            if length < 0:
                length, position = read_length(position, end, data_end)
                if position < 0:
                    return -position, at, np.int64(0)
            elif length > end - position:
                return np.int64(_CUT), at, np.int64(0)
            words = load_word(op + 8 * ops.SECOND)
            if not copy_decimal(position, length, values + 8 * words * index, words, table + 8):
                return np.int64(_DECIMAL), at, np.int64(0)
            position += length
        elif code == ops.UNION:
            branch, position = read_long(position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
            if branch < 0 or branch >= load_word(op + 8 * ops.SECOND):
                return np.int64(_UNION_INDEX), at, np.int64(0)
            target = load_word(tables + 8 * (load_word(op + 8 * ops.FIRST) + branch))
            if target < 0:
                return np.int64(_UNKNOWN_BRANCH), at, np.int64(0)
            op = program + target
            continue
        elif code == ops.JUMP:
            op = program + load_word(op + 8 * ops.AFTER)
            continue
        elif code == ops.NULL:
            _put_nulls(tables, load_word(op + 8 * ops.NULLS), columns, index)
        elif code in (ops.SKIP_ARRAY, ops.SKIP_ITEM_END):
            items = domains + load_word(op + 8 * ops.FIRST)
            body = op + ops.OP_BYTES
            if code == ops.SKIP_ITEM_END:
                body = program + load_word(op + 8 * ops.NULLS)
                remaining = load_word(items + 8 * ops.REMAINING) - 1
                if remaining > 0:
                    store_word(items + 8 * ops.REMAINING, remaining)
                    op = body
                    continue
            is_empty = load_word(op + 8 * ops.SECOND) != 0
            number = np.int64(1)
            size = np.int64(0)
            while number != 0 and (size >= 0 or is_empty):
                number, position, size, at = read_block(position, end, data_end, not is_empty)
                if position < 0:
                    return -position, at, np.int64(0)
                position += max(size, 0)
            if number == 0:
                op = program + load_word(op + 8 * ops.AFTER)
                continue
            store_word(items + 8 * ops.REMAINING, number)
            op = body
            continue
        elif code == ops.CONSTANT:
            row_position, row_end, row_data_end = position, end, data_end
            position = constants + load_word(op + 8 * ops.FIRST)
            end = constants + load_word(op + 8 * ops.SECOND)
            data_end = end
        elif code == ops.CONSTANT_END:
            position, end, data_end = row_position, row_end, row_data_end
        elif code in (ops.INT_AS_LONG, ops.INT_AS_FLOAT, ops.INT_AS_DOUBLE):
            number, position = read_int(position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
            if code == ops.INT_AS_LONG:
                store_word(values + 8 * index, number)
            elif code == ops.INT_AS_FLOAT:
                store_as_float(values + 4 * index, number)
            else:
                store_as_double(values + 8 * index, number)
        elif code in (ops.LONG_AS_FLOAT, ops.LONG_AS_DOUBLE):
            number, position = read_long(position, end, data_end)
            if position < 0:
                return -position, at, np.int64(0)
            if code == ops.LONG_AS_FLOAT:
                store_as_float(values + 4 * index, number)
            else:
                store_as_double(values + 8 * index, number)
        elif code == ops.FLOAT_AS_DOUBLE:
            if end - position < 4:
                return np.int64(_CUT), at, np.int64(0)
            copy_float_as_double(position, values + 8 * index)
            position += 4
        elif code == ops.LEAP:
            position = load_word(marks + 8 * load_word(op + 8 * ops.FIRST))
        elif code == ops.WALKED_END:
            return np.int64(_NONE), at, np.int64(0)
        elif code == ops.END:
            if position != end:
                return np.int64(_LEFT_OVER), at, np.int64(0)
            return np.int64(_NONE), at, np.int64(0)
        op += ops.OP_BYTES


@kernel(
    types.UniTuple(types.int64, 4)(
        *(BYTES, _IN_INT64S, _IN_INT64S),
        *(_IN_INT64S, _IN_INT64S, BYTES, _IN_INT64S, _INT64S, _INT64S, _INT64S, types.int64),
    )
)
def decode_avro(data, starts, ends, program, tables, constants, columns, domains, marks, faults, row):
    """Decode from row `row` on: (0, rows, 0, 0), or why it stopped, at which row, for which column or domain, and how
    much room that needs.

    A row that starts before 0 has no value: it is null, and its fault is `NO_VALUE`. One that does not lie within the
    data is cut. `marks` has room for `LANES` times the marks of the program.
    """
    base = address_of(data)
    size = len(data)
    head = address_of(program)
    table = address_of(tables)
    column = address_of(columns)
    domain = address_of(domains)
    constant = address_of(constants)
    mark = address_of(marks)
    walk = table + 8 * program[ops.FIRST]
    walk_end = walk + 8 * program[ops.SECOND]
    lane_bytes = 8 * program[ops.NULLS]
    walked = row
    while row < len(starts):
        domains[ops.COUNT] = row
        begin = starts[row]
        end = ends[row]
        if walk < walk_end and row >= walked and row + ops.LANES <= len(starts):
            is_roomy = True
            for lane in range(row, row + ops.LANES):
                is_roomy &= starts[lane] >= 0 and starts[lane] <= ends[lane] and ends[lane] <= size - 16
            if is_roomy:
                places = 8 * row
                walk_four_rows(
                    walk, walk_end, base, address_of(starts) + places, address_of(ends) + places, mark, lane_bytes
                )
                walked = row + ops.LANES
        fault = np.int64(ops.NO_VALUE)
        at = np.int64(0)
        if begin >= 0:
            fault = np.int64(_CUT)
            if begin <= end and end <= size:
                for one in range(ops.DOMAIN_FIELDS, len(domains), ops.DOMAIN_FIELDS):
                    domains[one + ops.COMMITTED] = domains[one + ops.COUNT]
                op = head + ops.OP_BYTES
                position = base + begin
                row_marks = mark
                if row < walked:
                    row_marks += (row + ops.LANES - walked) * lane_bytes
                    if load_word(row_marks) != 0:
                        op = head + program[ops.AFTER]
                        position = load_word(row_marks)
                fault, at, need = _run(
                    op, head, table, column, domain, constant, row_marks, position, base + end, base + size
                )
                if fault != 0:
                    for one in range(ops.DOMAIN_FIELDS, len(domains), ops.DOMAIN_FIELDS):
                        domains[one + ops.COUNT] = domains[one + ops.COMMITTED]
                    if fault < 0:
                        return fault, row, at, need
                    at -= base + begin
        if fault != 0:
            _put_nulls(table, ops.ROOT_NULLS, column, row)
            domains[ops.REMAINING] += 1
            if fault > 0:
                fault |= at << ops.POSITION_SHIFT
        faults[row] = fault
        row += 1
    domains[ops.COUNT] = row
    return np.int64(0), row, np.int64(0), np.int64(0)
