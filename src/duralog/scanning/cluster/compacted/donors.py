"""Which copy of a compacted part another one can take it from, by the keys of the records (`keyed_records`).

A record may leave a copy if a cleaner has removed it from the donor: if a later one of its key is there, or anywhere
else, or if it is a tombstone. That must show in the records. A checkpoint says how far a cleaner was, and nothing of
segments that were lost since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.scanning.cluster.batch_rows import CopyRows
from duralog.scanning.cluster.compacted.keyed_records import KeyedCopies, neighbours, sorted_records
from duralog.scanning.cluster.healed_batches import NOWHERE
from duralog.scanning.cluster.offset_sets import Ranges, merged


@dataclass(slots=True)
class Surveyed:
    """What a copy has of the part."""

    reach: int
    """Where it ends, at most where the part does."""
    damage: Ranges
    """The offsets that it has lost. Not those at its end."""
    size_bytes: int
    """Of its batches."""


@dataclass(frozen=True, slots=True)
class Donor:
    copy: int
    reach: int
    doubtful: Ranges = field(default_factory=list)
    """Offsets of records that only the damaged copy has: damage may hide why the donor's cleaner has removed them."""


class Donors:
    """REQUIRES: `surveyed` has all copies. Their damage may change: what counts is what it is when this is asked."""

    def __init__(
        self,
        keyed: KeyedCopies,
        rows: Sequence[CopyRows],
        surveyed: Mapping[int, Surveyed],
        end_offset: int,
        *,
        is_compacted: bool | None,
    ) -> None:
        self._keyed = keyed
        self._rows = rows
        self._surveyed = surveyed
        self._end = end_offset
        self._is_compacted = is_compacted

    def lost(self, number: int) -> Ranges:
        """Where a copy lacks records that another one has, and that no cleaner of it can have removed."""
        found: list[tuple[int, int]] = []
        for records in self._keyed.shares():
            everything = sorted_records(*records)
            for other in self._surveyed:
                if other != number:
                    found += self._lost_by(number, other, records, everything)
        return merged(found)

    def able(self, number: int, order: Sequence[int]) -> list[Donor]:
        """Those that reach farthest first."""
        able = [other for other in order if other != number and not self._surveyed[other].damage]
        able.sort(key=lambda other: -self._surveyed[other].reach)
        return [found for other in able if (found := self._judged(number, other)) is not None]

    def would_revive(self, number: int, donor: Donor) -> bool:
        """Whether keys would be back in a copy that ends early, if it only got its end from this donor."""
        reach = self._surveyed[number].reach
        for records in self._keyed.shares():
            own, donated = records[number], records[donor.copy]
            filled = sorted_records(own, donated[donated["base_offset"] >= reach])
            is_revived = ~neighbours(own, filled).has_later & ~neighbours(own, donated).is_there
            if (is_revived & ~own["is_tombstone"]).any():
                return True
        return False

    def removed_here(self, number: int) -> Ranges:
        """Records that a copy would get where it is damaged, although it lacks later ones of their keys elsewhere."""
        found: list[tuple[int, int]] = []
        for records in self._keyed.shares():
            found += self._removed_here(number, records)
        return merged(found)

    def _lost_by(
        self, number: int, other: int, records: Sequence[NDArray[Any]], everything: NDArray[Any]
    ) -> Sequence[tuple[int, int]]:
        mine, theirs = records[number], records[other]
        start, reach = self._rows[number].copy.state.log_start_offset, self._surveyed[number].reach
        candidates = theirs[(theirs["offset"] >= start) & (theirs["offset"] < reach)]
        found = neighbours(candidates, mine)
        candidates, keep = candidates[~found.is_there], ~found.is_there
        if not len(candidates):
            return []
        has_earlier, has_later = found.has_earlier[keep], found.has_later[keep]
        is_last = ~has_later & ~neighbours(candidates, everything).has_later
        is_uncleaned = candidates["offset"] >= self._keyed.first_repeats[number]
        is_known = candidates["offset"] >= self._sees_from(other, number)
        is_lost = is_uncleaned | (is_last & np.where(candidates["is_tombstone"], has_earlier, is_known))
        offsets = np.sort(mine["offset"])
        gone = candidates["offset"][is_lost]
        places = np.searchsorted(offsets, gone)
        bases = np.sort(mine["base_offset"])
        before = np.where(places > 0, offsets[np.maximum(places - 1, 0)], start - 1) if len(offsets) else start - 1
        nexts = np.searchsorted(bases, gone, side="right")
        after = np.where(nexts < len(bases), bases[np.minimum(nexts, len(bases) - 1)], reach) if len(bases) else reach
        ranges = np.stack([np.broadcast_to(before, gone.shape) + 1, np.broadcast_to(after, gone.shape) - 1], axis=1)
        return [(first, last) for first, last in np.unique(ranges, axis=0).tolist() if first <= last]

    def _sees_from(self, number: int, cleaned: int) -> int:
        """The offset from which on a copy shows all that another one's cleaner has seen."""
        reach, cleaned_to = self._surveyed[cleaned].reach, self._rows[cleaned].copy.state.cleaned_to
        upto = reach if cleaned_to is None else cleaned_to
        if self._surveyed[number].reach < min(upto, reach):
            return NOWHERE
        damaged = [last for first, last in self._surveyed[number].damage if first < upto]
        return min(max(damaged, default=0), upto - 1)

    def _judged(self, number: int, other: int) -> Donor | None:
        """The other copy as the donor of a damaged one; None if records would be lost, or deleted ones come back."""
        reach = self._surveyed[other].reach
        cleaned_to, repeats = self._rows[other].copy.state.cleaned_to or 0, self._keyed.first_repeats[other]
        hidden_below = min(cleaned_to, self._sees_from(number, other))
        doubtful: list[tuple[int, int]] = []
        for records in self._keyed.shares():
            own, donated, everything = records[number], records[other], sorted_records(*records)
            donated = donated[(donated["offset"] < reach) | (donated["offset"] >= self._end)]
            kept = own[(own["base_offset"] >= reach) | (own["offset"] >= self._end)]
            after = sorted_records(donated, kept)
            beside = neighbours(own, after)
            leaving = own[~beside.is_there]
            earlier, later = beside.has_earlier[~beside.is_there], beside.has_later[~beside.is_there]
            is_replaced = neighbours(leaving, everything).has_later
            is_removed = later | ((leaving["is_tombstone"] | is_replaced) & ~earlier)
            may_be = leaving["offset"] < min(repeats, reach)
            if self._is_compacted is False:
                may_be[:] = False
            is_open = ~is_removed & may_be
            if not may_be.all() or (is_open & (earlier | (leaving["offset"] >= hidden_below))).any():
                return None
            doubtful += [(offset, offset) for offset in leaving["offset"][is_open].tolist()]
            if self._come_back(number, other, own, after):
                return None
        return Donor(other, reach, merged(doubtful))

    def _come_back(self, number: int, other: int, own: NDArray[Any], after: NDArray[Any]) -> bool:
        """Whether a copy would get records that its cleaner has removed, and that nothing would hide."""
        beside = neighbours(after, own)
        is_last = ~neighbours(after, after).has_later
        is_new: NDArray[np.bool_] = ~beside.is_there & is_last & ~after["is_tombstone"]
        is_new &= after["offset"] < min(self._keyed.first_repeats[number], self._surveyed[number].reach)
        for first, last in self._surveyed[number].damage:
            is_new &= (after["offset"] < first) | (after["offset"] > last)
        is_new &= after["offset"] < self._sees_from(other, number)
        return bool(is_new.any())

    def _removed_here(self, number: int, records: Sequence[NDArray[Any]]) -> list[tuple[int, int]]:
        """Records that a copy would get where it is damaged, although it lacks later ones of their keys elsewhere."""
        own, damage = records[number], self._surveyed[number].damage
        others = sorted_records(*(each for other, each in enumerate(records) if other != number))
        is_filled = np.zeros(len(others), np.bool_)
        for first, last in damage:
            is_filled |= (others["offset"] >= first) & (others["offset"] <= last)
        filled = others[is_filled]
        after = sorted_records(own, filled)
        values = filled[~filled["is_tombstone"]]
        elsewhere = others[~is_filled & (others["offset"] < self._surveyed[number].reach)]
        is_wrong = neighbours(values, elsewhere).has_later & ~neighbours(values, after).has_later
        return [(offset, offset) for offset in values["offset"][is_wrong].tolist()]
