"""What an Avro program is: the numbers that `duralog.schemas.avro` writes and `interpreter` runs.

A program is an array of instructions, `OP_FIELDS` numbers each. The first one is `HEAD`; the kernel runs the others
once for each row, up to `END`. Every instruction writes one value into one column, steers, or skips.

A program that skips more than it reads, of a record without arrays, has a second part that only reads. For it, the
kernel first walks over all fields, as the table of `HEAD` lists them, and notes the position of each that is wanted.

| field | meaning |
|---|---|
| `CODE` | one of the codes below |
| `COLUMN` | the position of its column in the table of columns, in bytes |
| `DOMAIN` | the position of its domain in the table of domains, in bytes |
| `FIRST`, `SECOND` | arguments; see the code |
| `NULL_BRANCH` | `NOT_NULLABLE`; `PRESENT`: set the value's bit; else which branch of a union of two is null |
| `NULLS` | the list, in the tables, of the columns to set to null |
| `AFTER` | the instruction after this value, in bytes: where a null continues |

A *domain* counts rows: domain 0 those of the result, and each array or map has one for its items. All columns of a
domain have the same length. A bad row leaves no trace: its domains go back to the counts they had before.
"""

from __future__ import annotations

from enum import IntEnum

OP_FIELDS = 8
OP_BYTES = 8 * OP_FIELDS
CODE, COLUMN, DOMAIN, FIRST, SECOND, NULL_BRANCH, NULLS, AFTER = range(OP_FIELDS)

NOT_NULLABLE = -1
PRESENT = -2

COLUMN_FIELDS = 8
COLUMN_BYTES = 8 * COLUMN_FIELDS
KIND, VALUES, VALIDITY, CONTENT, CONTENT_ROOM = range(5)
"""Of a column: what its values are, the addresses of its buffers, and how many bytes its content has room for.

`KIND` is the size of a value in bytes, or one of the three that follow. `VALIDITY` is 0 for a column without nulls.
"""
OFFSETS = -1
"""`VALUES` are Arrow offsets: into `CONTENT`, or into the rows of a domain."""
BITS = -2
NOTHING = -3
"""There is nothing but validity, or not even that."""

DOMAIN_FIELDS = 4
DOMAIN_BYTES = 8 * DOMAIN_FIELDS
COUNT, ROOM, REMAINING, COMMITTED = range(DOMAIN_FIELDS)
"""Of a domain: its rows, how many it has room for, items left in the current block, its rows before this value.

`REMAINING` of domain 0 is how many of its rows are null, bad ones or without a value.
"""

END = 0
INT = 1
INT_AS_LONG = 2
INT_AS_FLOAT = 3
INT_AS_DOUBLE = 4
LONG = 5
LONG_AS_FLOAT = 6
LONG_AS_DOUBLE = 7
FLOAT = 8
FLOAT_AS_DOUBLE = 9
DOUBLE = 10
BOOLEAN = 11
STRING = 12
BYTES = 13
FIXED = 14
"""FIRST: its size."""
DECIMAL = 15
"""FIRST: its table (the size, -1 if a length comes first; then the words of 10^precision). SECOND: 64-bit words."""
ENUM = 16
"""FIRST: its table (for each symbol, the reader's number of it, or -1). SECOND: how many symbols."""
SCALED = 17
"""FIRST: its table (factor; 1 if written as an int; lowest and highest value before it is multiplied; stored bytes)."""
GROUP = 18
"""Nothing of its own: the validity of a struct, or a null."""
ARRAY = 19
"""An array or map: the items come next, up to `ITEM_END`. FIRST: their domain. SECOND: 1 if items have no bytes."""
ITEM_END = 20
"""As `ARRAY`. NULLS: the first instruction of an item."""
UNION = 21
"""FIRST: its table (for each branch, its instruction, or -1 if the reader has none). SECOND: how many branches."""
JUMP = 22
"""AFTER: where to."""
NULL = 23
"""Set the columns of NULLS to null."""
CONSTANT = 24
"""Read on from the constants, from FIRST to SECOND: the default of a field that the writer does not have."""
CONSTANT_END = 25
SKIP = 26
"""FIRST: its table, `SKIP_FIELDS` numbers for each value. SECOND: how many of these numbers."""
SKIP_ARRAY = 27
SKIP_ITEM_END = 28
LEAP = 29
"""Go on at mark FIRST of the row."""
WALKED_END = 30
"""As `END`, of a row that was walked to its end."""
HEAD = 31
"""FIRST, SECOND: the table to walk, as that of `SKIP`, if any. NULLS: its marks. AFTER: the part that only reads."""

SKIP_FIELDS = 3
"""Of a skipped value: one of the kinds below; of `FIXED_SIZE` its bytes; how many bytes of fixed size come after it."""
LENGTH_FIRST, VARINT, FIXED_SIZE = range(3)
MARK = 3
"""Not a value: note the position as the mark of this number."""
NULL_FIRST, NULL_SECOND = 4, 8
"""Added to the kind of a value in a union with null: which branch is the null."""

MAX_EMPTY_ITEMS = 1024
"""How many items without bytes (nulls, empty records) a row may have. Others are bounded by the bytes of the row."""
MAX_ROWS = 2**31 - 1
"""Of a domain, and the bytes of a column: Arrow's offsets have 32 bits."""

LANES = 4
"""How many rows are walked at a time."""

ROOT_NULLS = 0
"""The list, in the tables, of all columns of domain 0."""

NO_VALUE = -1
"""In place of a fault: the row has no value at all."""
NEEDS_BYTES = -1
NEEDS_ITEMS = -2
"""Why the kernel stopped: a column's content, or a domain, has no room for the next row."""
POSITION_SHIFT = 8
"""A fault is a code in the lowest bits, and above it the position in the row of what was refused."""


class AvroFault(IntEnum):
    """Why a row was refused. The kernel and the plain twin check in the same order."""

    NONE = 0
    CUT = 1
    VARINT = 2
    UNION_INDEX = 3
    ENUM_INDEX = 4
    NEGATIVE_LENGTH = 5
    LEFT_OVER = 6
    TOO_MANY_ITEMS = 7
    UTF8 = 8
    DECIMAL = 9
    BOOLEAN = 10
    UNKNOWN_BRANCH = 11
    UNKNOWN_SYMBOL = 12
    OUT_OF_RANGE = 13
