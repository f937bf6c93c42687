"""Keys of a piece: which records count, which batch a key is of, and batches that are corrupt or very large.

That damaged logs are refused as in any other reading: `test_kernel_twins`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from duralog.columnar.decoded import CHUNK_RECORDS
from duralog.columnar.key_reading import KeyedRecords, read_keys
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.errors import CorruptRecord, Fault
from duralog.format import message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record


def batch(base_offset: int, keys: Sequence[bytes | None], codec: Codec = Codec.NONE, magic: int = 2) -> bytes:
    records = [Record(key=key, value=b"value", timestamp_ms=0) for key in keys]
    if magic == 2:
        return record_batch.encode(
            records, base_offset=base_offset, last_offset=base_offset + max(len(keys) - 1, 0), codec=codec
        )
    return message_set.encode(records, magic=magic, base_offset=base_offset, codec=codec)


def piece_of(*batches: bytes) -> Piece:
    (piece,) = read_pieces(MemorySource(b"".join(batches)), piece_bytes=1 << 30)
    return piece


def found(chunks: Sequence[KeyedRecords]) -> dict[int, bytes]:
    return {
        offset: digest.tobytes()
        for chunk in chunks
        for offset, digest in zip(chunk.offsets.tolist(), chunk.digests, strict=True)
    }


def digested(keys: dict[int, bytes]) -> dict[int, bytes]:
    return {offset: hashlib.md5(key).digest() for offset, key in keys.items()}


@pytest.mark.parametrize(("magic", "codec"), [(2, Codec.ZSTD), *product([0, 1, 2], list(Codec)[: Codec.ZSTD])])
def test_all_formats_and_codecs(magic: int, codec: Codec) -> None:
    piece = piece_of(batch(3, [b"a", None, b""], codec, magic), batch(6, [b"a", b"long" * 40], codec, magic))
    chunks = list(read_keys(piece))
    assert found(chunks) == digested({3: b"a", 5: b"", 6: b"a", 7: b"long" * 40})
    assert sum(chunk.keyless for chunk in chunks) == 1


@pytest.mark.parametrize("magic", [1, 2])
def test_records_before_the_first_offset_do_not_count(magic: int) -> None:
    piece = piece_of(batch(0, [b"a", None], magic=magic), batch(2, [None, b"b", None, b"c"], magic=magic))
    chunks = list(read_keys(piece, first_offset=3))
    assert found(chunks) == digested({3: b"b", 5: b"c"})
    assert sum(chunk.keyless for chunk in chunks) == 1


def test_chosen_batches() -> None:
    piece = piece_of(*(batch(number, [b"%d" % number]) for number in range(5)))
    chunks = list(read_keys(piece, np.array([1, 3])))
    assert found(chunks) == digested({1: b"1", 3: b"3"})
    assert [chunk.rows.tolist() for chunk in chunks] == [[1, 3]]


def test_the_batch_of_a_key() -> None:
    piece = piece_of(batch(0, [b"a", b"b"]), batch(2, [None]), batch(3, []), batch(4, [b"c"]), batch(5, [b"d", b"e"]))
    (chunk,) = read_keys(piece)
    assert chunk.ends.tolist() == [2, 2, 2, 3, 5]
    assert [chunk.row_of(key) for key in range(len(chunk))] == [0, 0, 3, 4, 4]


def test_the_message_of_a_key() -> None:
    piece = piece_of(batch(0, [b"a", None, b"b"], magic=1), batch(3, [b"c", b"d"], Codec.GZIP, magic=1))
    rows = [chunk.row_of(key) for chunk in read_keys(piece) for key in range(len(chunk))]
    assert rows == [0, 2, 3, 3]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_batch_with_more_records_than_a_chunk(codec: Codec) -> None:
    keys = [b"%d" % number for number in range(CHUNK_RECORDS + 10)]
    piece = piece_of(batch(0, [b"before"]), batch(1, keys, codec), batch(1 + len(keys), [b"after"]))
    chunks = list(read_keys(piece))
    assert max(len(chunk) for chunk in chunks) == CHUNK_RECORDS
    expected = digested(dict(enumerate([b"before", *keys, b"after"])))
    assert found(chunks) == expected
    assert [chunk.row_of(0) for chunk in chunks] == [0, 1, 1, 2]


def test_more_batches_than_a_chunk_takes() -> None:
    size = CHUNK_RECORDS // 2 + 1
    piece = piece_of(*(batch(number * size, [b"k"] * size) for number in range(3)))
    assert [chunk.rows.tolist() for chunk in read_keys(piece)] == [[0], [1], [2]]


def test_a_batch_without_keys_still_has_a_record_count() -> None:
    (chunk,) = read_keys(piece_of(batch(0, [None, None])))
    assert (len(chunk), chunk.keyless, chunk.digests.shape) == (0, 2, (0, 2))


def test_nothing_to_read() -> None:
    assert list(read_keys(piece_of(batch(0, [b"a"])), np.empty(0, np.intp))) == []


def wrong_count(encoded: bytes) -> bytes:
    """One record more than there is. Its checksum is wrong, too, which is looked at first."""
    changed = bytearray(encoded)
    changed[BATCH_V2.size - 1] += 1
    return bytes(changed)


def test_a_corrupt_batch_is_refused_after_the_keys_before_it() -> None:
    piece = piece_of(batch(0, [b"a"]), wrong_count(batch(1, [b"b"])), batch(2, [b"c"]))
    chunks = read_keys(piece)
    assert found([next(chunks)]) == digested({0: b"a"})
    with pytest.raises(CorruptRecord, match="checksum") as error:
        next(chunks)
    assert error.value.position == piece.batches["position"][1]


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_corrupt_batch_is_reported_and_left_out(is_checked: bool) -> None:
    piece = piece_of(batch(0, [b"a"]), wrong_count(batch(1, [b"b", b"x"])), batch(3, [b"c"]))
    if not is_checked:
        piece.batches["crc_ok"] = -1
    reported: list[tuple[Fault, int]] = []
    chunks = list(read_keys(piece, on_corrupt=lambda error, row: reported.append((error.fault, row))))
    assert reported == [(Fault.CRC_MISMATCH if is_checked else Fault.VARINT, 1)]
    assert found(chunks) == digested({0: b"a", 3: b"c"})
    assert [row for chunk in chunks for row in chunk.rows.tolist()] == [0, 2]
