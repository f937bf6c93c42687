"""A digest of batches as they lie in a log file, byte for byte: proof that a copy has the same ones.

The batches are taken in chunks of at most 4 KiB, each batch for itself. The digest is the SHA-256 of the MD5s of all
chunks, one after the other. MD5 is computed of many chunks side by side, so it costs about as much as reading them.

It covers what checksums do not: offsets and leader epochs. It does not depend on the pieces in which a file is read. It
guards against mistakes and failing hardware, not against an attacker who searches for a collision.
"""

from __future__ import annotations

import hashlib

import numpy as np

from duralog.columnar.pieces import Piece
from duralog.columnar.runs import Rows
from duralog.kernels.key_digests import digests_of

_CHUNK_BYTES = 4096


class ByteDigest:
    def __init__(self) -> None:
        self._chunks = hashlib.sha256()

    def add(self, piece: Piece, rows: Rows) -> None:
        """Some batches of a piece, in order."""
        batches = piece.batches[rows]
        sizes = batches["size"].astype(np.int64)
        counts = -(-sizes // _CHUNK_BYTES)
        ends = np.cumsum(counts)
        batch = np.repeat(np.arange(len(sizes)), counts)
        begins = (np.arange(len(batch)) - (ends - counts)[batch]) * _CHUNK_BYTES
        positions = batches["position"][batch] - piece.position + begins
        lengths = np.minimum(sizes[batch] - begins, _CHUNK_BYTES).astype(np.int32)
        self._chunks.update(digests_of(piece.data, positions, lengths).tobytes())

    def hexdigest(self) -> str:
        return self._chunks.hexdigest()
