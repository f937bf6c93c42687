"""Reading through damage: what is corrupt, cut or missing in one copy is read from another.

The slices of a task are read as those of one directory, and their records are passed on as they come. Where a batch is
corrupt, or offsets are missing that no cleaner has removed, reading stops. What is left of the slice is checked
(`sound_slices`), and the damaged offsets are read from the first copy that has them without damage. Reading fails only
where no copy is good.

Memory is that of reading one directory, since records are never collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar.schema import OFFSET
from duralog.errors import CorruptRecord, OffsetOutOfRange, StorageError
from duralog.scanning.cluster.problems import LOST_ADVICE
from duralog.scanning.cluster.sound_slices import OnHealed, OnMissing, missing_offsets, sound_parts
from duralog.scanning.offset_ranges import OnDataLoss
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import CorruptBytes, DataLoss, Slice

OnCorrupt = Callable[[CorruptBytes], None]

T = TypeVar("T")


def read_through_damage(
    slices: Sequence[Slice],
    *,
    columns: Sequence[str],
    on_healed: OnHealed,
    on_corrupt: OnCorrupt | None = None,
    on_data_loss: OnDataLoss | None = None,
    on_missing: OnMissing | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a task, in order. `on_healed` is called with what was read from another copy.

    `on_missing` is called with offsets that no copy has, although no cleaner has removed them. Slices of one directory
    have no other copies: damage in them is an error.

    Without `on_corrupt` and `on_data_loss`, raises `CorruptRecord`, `OffsetOutOfRange` or `StorageError` where no copy
    is good, after the records before it.
    """
    if not any(found.copies for found in slices):
        return read_slices(slices, columns=columns, on_corrupt=on_corrupt, on_data_loss=on_data_loss)
    found = read_copies(
        slices,
        columns=columns,
        on_healed=on_healed,
        on_corrupt=on_corrupt,
        on_data_loss=on_data_loss,
        on_missing=on_missing,
    )
    return (batch for _, batch in found)


def read_copies(
    slices: Sequence[Slice],
    *,
    columns: Sequence[str],
    on_healed: OnHealed,
    on_corrupt: OnCorrupt | None = None,
    on_data_loss: OnDataLoss | None = None,
    on_missing: OnMissing | None = None,
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    """As `read_through_damage`, with the slice that the records come from: its location is the copy."""
    names = list(dict.fromkeys(columns))
    wanted = names if OFFSET in names else [*names, OFFSET]

    def read(some: Sequence[Slice], events: ReadingEvents) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in read_slices(
            some,
            columns=wanted,
            on_corrupt=events.on_corrupt,
            on_data_loss=events.on_data_loss,
            on_batches=events.watch,
        ):
            if batch.num_rows:
                yield batch.column(OFFSET)[-1].as_py() + 1, batch.select(names)

    events = ReadingEvents(
        on_corrupt or partial(_refuse, slices), on_data_loss or partial(_refuse_loss, slices), None, on_missing
    )
    return through_damage(slices, read, on_healed, events)


@dataclass(frozen=True, slots=True)
class ReadingEvents:
    """What a reader of slices calls."""

    on_corrupt: OnCorrupt
    on_data_loss: OnDataLoss
    watch: Watch | None = None
    """Called with the batches of each piece before what is in them is passed on; None if they were checked."""
    on_missing: OnMissing | None = None
    """Called with offsets that should exist, and that no copy has."""


Read = Callable[[Sequence[Slice], ReadingEvents], Iterator[tuple[int, T]]]
"""Reads slices one after the other; gives what it reads, with the offset after it."""


def through_damage(
    slices: Sequence[Slice], read: Read[T], on_healed: OnHealed, events: ReadingEvents
) -> Iterator[tuple[Slice, T]]:
    """What `read` gives for these slices, with damaged ones replaced. `events` are called where no copy is good."""
    left = list(slices)
    while left:
        place, next_offset = 0, left[0].start_offset
        watch = Watch(left)
        try:
            for reached, found in read(left, ReadingEvents(watch.damaged, watch.damaged, watch)):
                if watch.is_damaged:
                    break
                place, next_offset = watch.place, reached
                yield left[place], found
            else:
                watch.end()
        except StorageError:
            watch.is_damaged = True
        if not watch.is_damaged:
            return
        damaged = left[place]
        if next_offset < damaged.end_offset:
            for part in sound_parts(replace(damaged, start_offset=next_offset), on_healed, events.on_missing):
                for _, found in read([part], events):
                    yield part, found
        left = left[place + 1 :]


class Watch:
    """Follows the batches of slices that are read one after the other, to notice damage and missing offsets."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._slices = slices
        self.place = 0
        """The slice that is being read."""
        self._reached = slices[0].start_offset - 1
        self.is_damaged = False

    def damaged(self, _: CorruptBytes | DataLoss) -> None:
        self.is_damaged = True

    def __call__(self, found: Slice, batches: NDArray[Any]) -> None:
        while self._slices[self.place] is not found:
            self._leave()
        is_good = batches["crc_ok"] == 1
        if not is_good.all():
            batches = batches[is_good]  # Corrupt ones are reported.
        if not len(batches):
            return
        missing = missing_offsets(batches, self._reached)
        self._reached = max(self._reached, int(batches["last_offset"].max()))
        if any(self._is_damage(*gap) for gap in missing):
            self.is_damaged = True

    def end(self) -> None:
        """All slices were read."""
        while self.place < len(self._slices):
            self._leave()

    def _leave(self) -> None:
        if self._is_damage(self._reached + 1, self._slices[self.place].end_offset - 1):
            self.is_damaged = True
        self.place += 1
        if self.place < len(self._slices):
            self._reached = self._slices[self.place].start_offset - 1

    def _is_damage(self, first: int, last: int) -> bool:
        found = self._slices[self.place]
        dense_from = None if found.copies is None else found.copies.dense_from
        if dense_from is None:
            return False
        return max(first, found.start_offset, dense_from) <= min(last, found.end_offset - 1)


def _refuse(slices: Sequence[Slice], found: CorruptBytes) -> NoReturn:
    raise CorruptRecord(
        f"{found.reason}; offsets {found.first_offset} to {found.last_offset} of {found.topic}-{found.partition}"
        f" cannot be read from any copy{_copies(slices, found)}. {LOST_ADVICE}. Spark reads around them with"
        " mode=PERMISSIVE",
        file=found.path,
        position=found.position,
    )


def _refuse_loss(slices: Sequence[Slice], found: DataLoss) -> NoReturn:
    raise OffsetOutOfRange(
        f"{found}; no copy has them{_copies(slices, found)}. {LOST_ADVICE}. Spark reads around them with"
        " failOnDataLoss=false"
    )


def _copies(slices: Sequence[Slice], found: CorruptBytes | DataLoss) -> str:
    """The directories that could have had it."""
    urls = {
        source.location.url: None
        for each in slices
        if each.copies is not None and (each.topic, each.partition) == (found.topic, found.partition)
        for source in each.copies.sources
    }
    return f": {', '.join(urls)}; duralog cluster verify shows what each of them lacks" if urls else ""
