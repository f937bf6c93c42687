"""Two copies record by record, at the offsets where their batches differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.columnar.schema import OFFSET, record_schema
from duralog.config.plurals import plural
from duralog.scanning.cluster.choice import epoch_at
from duralog.scanning.cluster.offset_sets import Ranges
from duralog.scanning.cluster.windows import Finding, FindingKind, Window, compared_rows
from duralog.scanning.slice_reading import read_slice_pieces, read_slices
from duralog.scanning.slices import Slice

_COMPARED = ("offset", "timestamp", "key", "value", "headers")


class RecordComparison:
    """`findings` has what differs."""

    def __init__(self, window: Window, reference: int, number: int, differing: Ranges) -> None:
        self._window = window
        self._numbers = reference, number
        self.findings: list[Finding] = []
        self.decoded = 0
        for first, last in differing:
            self._compare(first, last)

    def _compare(self, first: int, last: int) -> None:
        left, right = (self._records(number, first, last) for number in self._numbers)
        self.decoded += left.num_rows + right.num_rows
        offsets_left, offsets_right = (table[OFFSET].to_numpy() for table in (left, right))
        common, of_left, of_right = np.intersect1d(offsets_left, offsets_right, return_indices=True)
        mine, others = left.take(of_left), right.take(of_right)
        unequal = np.zeros(len(common), np.bool_)
        for name in _COMPARED[1:]:
            if not mine[name].equals(others[name]):
                unequal |= _unequal(mine[name], others[name])
        reference, number = self._numbers
        if unequal.any():
            at = common[unequal]
            text = f"{plural(len(at), 'record')} with other contents"
            self.findings.append(
                Finding(FindingKind.DIVERGENCE, number, int(at[0]), int(at[-1]), text, other=reference)
            )
        elif len(common) == len(offsets_left) == len(offsets_right) and len(common):
            self._compare_epochs(first, last)
        if self._window.dense_from is None:
            return
        for copy, other, having in ((number, reference, offsets_left), (reference, number, offsets_right)):
            missing = np.setdiff1d(having, common)
            missing = missing[missing >= self._window.dense_from]
            if len(missing):
                text = f"{plural(len(missing), 'record')} missing"
                self.findings.append(
                    Finding(FindingKind.HOLE, copy, int(missing[0]), int(missing[-1]), text, other=other)
                )

    def _compare_epochs(self, first: int, last: int) -> None:
        """Records are the same: their batches may have other epochs, or only be built otherwise by a cleaner."""
        mine, others = (dict(self._epochs(number, first, last)) for number in self._numbers)
        for offset, epoch in others.items():
            if offset not in mine or mine[offset] == epoch:
                continue
            reference, number = self._numbers
            here, there = epoch, mine[offset]
            if here == epoch_at(self._window.epochs, offset):
                # The other one has a wrong epoch: it is not covered by the checksum.
                reference, number, here, there = number, reference, there, here
            text = f"the leader epoch is {here} here and {there} there"
            self.findings.append(Finding(FindingKind.DIVERGENCE, number, offset, last, text, other=reference))
            return

    def _epochs(self, number: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        for found in self._slices(number, first, last):
            for rows in read_slice_pieces(found, compared_rows, on_corrupt=_ignore, on_data_loss=_ignore):
                yield from zip(rows["base_offset"].tolist(), rows["leader_epoch"].tolist(), strict=True)

    def _records(self, number: int, first: int, last: int) -> pa.Table:
        batches = list(
            read_slices(
                self._slices(number, first, last), columns=list(_COMPARED), on_corrupt=_ignore, on_data_loss=_ignore
            )
        )
        table = pa.Table.from_batches(batches, record_schema(_COMPARED))
        offsets = table[OFFSET]
        return table.filter(pc.and_(pc.greater_equal(offsets, first), pc.less_equal(offsets, last)))

    def _slices(self, number: int, first: int, last: int) -> list[Slice]:
        slices = self._window.copies[number].slices
        return [found for found in slices if found.start_offset <= last and found.end_offset > first]


def _unequal(mine: pa.ChunkedArray, others: pa.ChunkedArray) -> NDArray[np.bool_]:
    if pa.types.is_nested(mine.type):
        pairs = zip(mine.to_pylist(), others.to_pylist(), strict=True)
        return np.fromiter((left != right for left, right in pairs), np.bool_, len(mine))
    is_equal = pc.fill_null(pc.equal(mine, others), False)
    both_null = pc.and_(pc.is_null(mine), pc.is_null(others))
    found: NDArray[np.bool_] = pc.invert(pc.or_(is_equal, both_null)).to_numpy(zero_copy_only=False)
    return found


def _ignore(_: object) -> None:
    """It was reported when the window was read."""
