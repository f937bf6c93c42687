"""The kernel that decodes straight into Arrow's buffers: when it stops, what it leaves alone, and what it agrees with.

That it has the records and the faults of the reference on any bytes: `test_kernel_twins`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import pytest

from duralog.errors import Fault
from duralog.format import record_batch
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.direct import NO_HEADERS, PADDING, decode_direct


def contents_of(records: list[Record]) -> bytes:
    return record_batch.encode(records)[BATCH_V2.size :]


class Direct(NamedTuple):
    fault: Fault
    batch: int
    position: int
    filled: int
    offset: list[int]
    header_offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


def fields(filled: int, offsets: np.ndarray, bits: np.ndarray, content: np.ndarray) -> list[bytes | None]:
    is_valid = np.unpackbits(bits, bitorder="little")[:filled]
    edges = pairwise(offsets[: filled + 1])
    return [content[a:b].tobytes() if valid else None for valid, (a, b) in zip(is_valid, edges, strict=True)]


def decode(
    contents: list[bytes],
    counts: list[int],
    *,
    room: int = 100,
    room_bytes: int = 5000,
    max_bytes: int = 1 << 20,
    first: int = 0,
    behind: int = PADDING,
    left_out: Collection[str] = (),
) -> Direct:
    """Decode batches whose records are `contents`. They lie one after the other, with bytes before and behind."""
    data = np.frombuffer(b"\x7f" * 3 + b"".join(contents) + b"\x01" * behind, np.uint8)
    ends = 3 + np.cumsum([len(content) for content in contents], dtype=np.int64)
    begins = ends - np.array([len(content) for content in contents], np.int64)
    batches = np.zeros(len(contents), BATCH_DTYPE)
    batches["record_count"] = counts
    batches["base_offset"] = 1000 * np.arange(len(contents))
    offset, timestamp, headers = (np.empty(room, np.int64) for _ in range(3))
    header_offsets, key_offsets, value_offsets = (np.empty(room + 1, np.int32) for _ in range(3))
    key_bits, value_bits = (np.full(-(-room // 8), 0xFF, np.uint8) for _ in range(2))
    keys, values = (np.empty(room_bytes + PADDING, np.uint8) for _ in range(2))
    if "keys" in left_out:
        key_offsets, key_bits, keys = key_offsets[:0], key_bits[:0], keys[:0]
    if "values" in left_out:
        value_offsets, value_bits, values = value_offsets[:0], value_bits[:0], values[:0]
    if "headers" in left_out:
        header_offsets, headers = header_offsets[:0], headers[:0]
    fault, batch, position, filled = decode_direct(
        *(data, begins, ends, batches, np.arange(len(contents), dtype=np.intp), max_bytes, first),
        *(offset, timestamp, headers, header_offsets),
        *(key_offsets, key_bits, keys, value_offsets, value_bits, values),
    )
    return Direct(
        Fault(fault),
        batch,
        position,
        filled,
        offset[:filled].tolist(),
        header_offsets[: filled + 1].tolist() if NO_HEADERS not in header_offsets[:1] else [NO_HEADERS],
        [] if "keys" in left_out else fields(filled, key_offsets, key_bits, keys),
        [] if "values" in left_out else fields(filled, value_offsets, value_bits, values),
    )


SIZES = (None, 0, 1, 31, 32, 33, 64, 65, 127, 300)
MANY = [
    Record(
        key=None if key is None else b"k" * key,
        value=None if value is None else b"v" * value,
        headers=[("h", None)] * (number % 3),
    )
    for number, (key, value) in enumerate((key, value) for key in SIZES for value in SIZES)
]


def test_fields_of_all_sizes() -> None:
    found = decode([contents_of(MANY[:50]), contents_of(MANY[50:])], [50, 50], room_bytes=20_000)
    assert (found.fault, found.batch, found.filled) == (Fault.NONE, 2, 100)
    assert found.offset == [*range(50), *range(1000, 1050)]
    assert found.keys == [record.key for record in MANY]
    assert found.values == [record.value for record in MANY]
    assert found.header_offsets == [0, *np.cumsum([len(record.headers) for record in MANY]).tolist()]


def test_headers_are_written_from_the_first_one_on() -> None:
    without, with_two = Record(value=b"v"), Record(headers=[("h", None), ("i", b"")])
    assert decode([contents_of([without] * 9)], [9]).header_offsets == [NO_HEADERS]
    for before in (1, 7, 8):
        contents = [contents_of([without] * before), contents_of([with_two, without, with_two])]
        assert decode(contents, [before, 3]).header_offsets == [0] * (before + 1) + [2, 2, 4]
    assert decode([contents_of([with_two, without])], [2]).header_offsets == [0, 2, 2]
    # Those of a batch with a fault do not count.
    found = decode([THREE, contents_of([with_two, without])[:-1] + b"\x02"], [3, 2])
    assert (found.fault, found.filled, found.header_offsets) == (Fault.HEADER_COUNT, 3, [0, 0, 0, 0])


THREE = contents_of([Record(key=b"k", value=b"v" * 20)] * 3)


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        ({"room": 8}, 2),
        ({"room": 9}, 3),
        ({"max_bytes": 3 * len(THREE)}, 3),
        ({"max_bytes": 3 * len(THREE) - 1}, 2),
        ({"behind": PADDING - 1}, 2),
        ({"room_bytes": len(THREE)}, 1),  # the values of one batch, and then not all of another
        ({"room_bytes": len(THREE) - 1}, 0),
        ({"room": 2}, 0),
    ],
)
def test_only_batches_for_which_there_is_room(limits: dict[str, Any], taken: int) -> None:
    found = decode([THREE] * 3, [3] * 3, **limits)
    assert (found.fault, found.batch, found.filled) == (Fault.NONE, taken, 3 * taken)
    assert found.values == [b"v" * 20] * 3 * taken


def test_what_is_left_out_is_checked_and_not_written() -> None:
    """Every choice of keys, values and headers, with the others' arrays empty."""
    contents = [contents_of(MANY[:50]), contents_of(MANY[50:])]
    whole = decode(contents, [50, 50], room_bytes=20_000)
    for keys, values, headers in product((True, False), repeat=3):
        left_out = {name for name, chosen in (("keys", keys), ("values", values), ("headers", headers)) if not chosen}
        found = decode(contents, [50, 50], room_bytes=20_000, left_out=left_out)
        assert found == whole._replace(
            keys=whole.keys if keys else [],
            values=whole.values if values else [],
            header_offsets=whole.header_offsets if headers else [],
        )
    everything = {"keys", "values", "headers"}
    found = decode([THREE, THREE[:-1] + b"\x02"], [3, 3], left_out=everything)
    assert (found.fault, found.batch, found.filled) == (Fault.HEADER_COUNT, 1, 3)
    # Nothing is copied, so there is room.
    assert decode([THREE] * 3, [3] * 3, room_bytes=0, left_out=everything).batch == 3


def test_going_on_behind_a_batch() -> None:
    assert decode([THREE] * 3, [3] * 3, first=2).offset == [2000, 2001, 2002]
    assert decode([b"", THREE], [0, 3]).offset == [1000, 1001, 1002]


def test_a_fault_leaves_the_batches_before_it() -> None:
    nulls = contents_of([Record(), Record(key=b"", headers=[("h", b"")])])
    found = decode([nulls, THREE[:-1] + b"\x02", THREE], [2, 3, 3])
    assert (found.fault, found.batch, found.filled) == (Fault.HEADER_COUNT, 1, 2)
    assert found.position == 3 + len(nulls) + len(THREE) * 2 // 3
    assert (found.keys, found.values, found.header_offsets) == ([None, b""], [None, None], [0, 0, 1])
    assert decode([THREE, THREE + b"\0"], [3, 3])[:4] == (Fault.TRAILING_BYTES, 1, 3 + 2 * len(THREE), 3)
    assert decode([THREE, THREE], [3, -1])[:4] == (Fault.RECORD_COUNT, 1, 3 + len(THREE), 3)


GUARDED = """
import ctypes, mmap
import numpy as np
from duralog.format import record_batch
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.direct import PADDING, decode_direct

def before_a_wall(count, dtype=np.uint8):
    "An array whose last byte is the last one of memory that may be touched."
    size = count * np.dtype(dtype).itemsize
    pages = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    array = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data + pages), mmap.PAGESIZE, 0) == 0
    return array[pages - size : pages].view(dtype)

batches = np.zeros(1, BATCH_DTYPE)
rows = np.zeros(1, np.intp)
taken = 0
for records in (1, 7, 8, 9):
    batches["record_count"] = records
    for size in (None, 0, 1, 31, 32, 33, 64, 700):
        field = None if size is None else b"x" * size
        for record in (Record(key=field), Record(value=field), Record(key=field, value=field)):
            content = record_batch.encode([record] * records)[BATCH_V2.size:]
            for behind in (0, 1, PADDING - 1, PADDING):
                for wrong in (None, 0, 1, 4, len(content) // 2, len(content) - 1):
                    data = before_a_wall(len(content) + behind)
                    data[: len(content)] = np.frombuffer(content, np.uint8)
                    if wrong is not None:
                        data[min(wrong, len(content) - 1)] ^= 0xFE
                    for room_bytes in (None, 0, PADDING, len(content) // 2 + PADDING, len(content) + PADDING):
                        outputs = [before_a_wall(records, np.int64) for _ in range(2)]
                        if room_bytes is None:  # Neither headers nor keys nor values are wanted.
                            outputs += [before_a_wall(0, np.int64), before_a_wall(0, np.int32)]
                            for _ in range(2):
                                outputs += [before_a_wall(0, np.int32), before_a_wall(0), before_a_wall(0)]
                        else:
                            outputs += [before_a_wall(records, np.int64), before_a_wall(records + 1, np.int32)]
                            for _ in range(2):
                                outputs += [before_a_wall(records + 1, np.int32), before_a_wall(-(-records // 8))]
                                outputs.append(before_a_wall(room_bytes))
                        begins, ends = np.zeros(1, np.int64), np.array([len(content)], np.int64)
                        found = decode_direct(data, begins, ends, batches, rows, 1 << 20, 0, *outputs)
                        taken += found[1]
assert taken > 100
print("inside")
"""


@pytest.mark.slow
def test_nothing_is_read_or_written_past_the_end() -> None:
    """In a process of its own: a wrong access ends it."""
    finished = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (0, "inside\n"), finished.stderr
