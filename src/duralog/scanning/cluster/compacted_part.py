"""The part of a log that cleaners have been at: which copies are whole there, and what the others should have.

Cleaners of different copies have left other batches, and all are right. Two of them must not be mixed: a value that one
of them has removed, and its tombstone with it, would come back from the other. So a copy that is damaged here takes all
of the part from one copy, its donor, as far as that one reaches. Above, it keeps its own batches.

A copy can be a donor if nothing of it is damaged, and if it lacks nothing but what its cleaner has removed
(`keyed_records`). If there is no such copy, the damaged one keeps all of its batches, and gets those of the others
where it is damaged. What no copy shows to be removed never leaves a copy by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.scanning.cluster.batch_rows import CopyRows
from duralog.scanning.cluster.choice import divergence
from duralog.scanning.cluster.cluster import Copies
from duralog.scanning.cluster.healed_batches import NOWHERE, Belonging, filled_where_damaged, joined
from duralog.scanning.cluster.keyed_records import KeyedCopies, neighbours, sorted_records
from duralog.scanning.cluster.offset_sets import Ranges, merged, overlap


def belonging_of(copies: Copies) -> Belonging:
    choice, chosen = copies.choice, copies.chosen.state
    return Belonging(
        epochs=choice.epochs,
        own_epochs=tuple(copy.state.epochs for copy in copies.copies),
        dense_from=NOWHERE if copies.dense_from is None else copies.dense_from,
        limits=tuple(
            NOWHERE if number == choice.copy else divergence(copy.state, chosen)
            for number, copy in enumerate(copies.copies)
        ),
    )


@dataclass(slots=True)
class _Surveyed:
    """What a copy has of the part."""

    reach: int
    """Where it ends, at most where the part does."""
    damage: Ranges
    """The offsets that it has lost. Not those at its end."""


@dataclass(frozen=True, slots=True)
class Donor:
    copy: int
    reach: int
    doubtful: Ranges = field(default_factory=list)
    """Offsets of records that only the damaged copy has: damage may hide why the donor's cleaner has removed them."""


class CompactedPart:
    """REQUIRES: `survey` is called before what the copies should have is asked for."""

    def __init__(self, copies: Copies, rows: Sequence[CopyRows], belonging: Belonging, order: Sequence[int]) -> None:
        self._copies = copies
        self._rows = rows
        self._belonging = belonging
        self._order = order
        self._end = belonging.dense_from
        self._surveyed: dict[int, _Surveyed] = {}
        self._donors: dict[int, Donor] = {}
        self._mixed: set[int] = set()
        """Damaged copies without a donor."""
        self._keyed: KeyedCopies | None = None
        """None if no copy is damaged or ends early."""
        self._conflicts: list[tuple[int, int]] = []
        self._misplaced: dict[int, tuple[int, int]] = {}
        """By copy, the segment and the position of a last batch that is at an offset of another one."""

    @property
    def is_empty(self) -> bool:
        return min(min(rows.bases) for rows in self._rows) >= self._end

    def survey(self) -> None:
        """Read all copies, and find out what those should have that are not whole."""
        if self.is_empty:
            return
        for number in range(len(self._rows)):
            self._survey(number)
        # One that ends early may have lost more than its end; and once it is healed, it may be the copy that counts.
        is_uneven = len(set(self._copies.choice.agreed)) > 1
        if len(self._rows) > 1 and (is_uneven or any(found.damage for found in self._surveyed.values())):
            self._keyed = KeyedCopies(self._rows, self.belongs)
            self._compare(self._keyed)

    def is_whole(self, number: int) -> bool:
        """Whether nothing of a copy is damaged, as far as it shows by itself. It may end early."""
        return not self._survey(number).damage and number not in self._misplaced

    def belongs(self, number: int, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Which batches of a copy are part of the log, and at their offsets."""
        found = self._belonging.mask(number, rows)
        if number in self._misplaced:
            segment, position = self._misplaced[number]
            found &= (rows["segment"] != segment) | (rows["position"] != position)
        return found

    def reach(self, number: int) -> int:
        return self._survey(number).reach

    def whole_copy(self, number: int) -> Donor | None:
        """A copy that has all of the part, to be read instead of this one."""
        self.survey()
        farthest = max((found.reach for found in self._surveyed.values()), default=0)
        judged = [found for found in self._able_donors(number) if found.reach == farthest]
        return min(judged, key=lambda found: bool(found.doubtful), default=None)

    def donor(self, number: int) -> Donor | None:
        """What a damaged copy gets its part from; None if it keeps its own."""
        return self._donors.get(number)

    def origin(self, number: int | None) -> int | None:
        """The copy whose cleaner has made what a copy has afterwards; None if it is made of several."""
        if number is None:
            return self.origin(self._reference) if self._surveyed else None
        if number in self._mixed:
            return None
        return number if number not in self._donors else self._donors[number].copy

    def conflicts(self) -> Ranges:
        """Offsets of records that a copy would get from another one, although a cleaner has removed them here."""
        return merged(self._conflicts)

    def lost(self, start_offset: int, end_offset: int) -> Ranges:
        """The offsets between these that no copy has without damage."""
        high = min(self._end, end_offset) - 1
        if not self._surveyed or start_offset > high:
            return []
        lost: Ranges = [(start_offset, high)]
        for number, found in self._surveyed.items():
            first = self._rows[number].copy.state.start_offset
            lost = overlap(lost, merged([*found.damage, (0, first - 1), (found.reach, high + 1)]))
        return lost

    def wanted(self, number: int | None, belonging: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The batches of a window that a copy should have, from those of each copy that belong to the log."""
        reference = self._reference
        if number is None or number == reference:
            return self._own(reference, belonging)
        rest = self._own(reference, belonging)
        donor = self._donors.get(number)
        reach = max(self._surveyed[number].reach, 0 if donor is None else donor.reach)
        return joined(self._own(number, belonging), rest[rest["base_offset"] >= reach])

    @property
    def _reference(self) -> int:
        """The copy that reaches farthest: those that end before it get the rest from it."""
        return max(
            self._order,
            key=lambda number: (
                self._surveyed[number].reach,
                number not in self._mixed,
                number not in self._donors,
                -self._order.index(number),
            ),
        )

    def _own(self, number: int, belonging: Sequence[NDArray[Any]]) -> NDArray[Any]:
        own, damage = belonging[number], self._surveyed[number].damage
        if not damage:
            return own
        donor = self._donors.get(number)
        if donor is not None:
            # Both lack none of the offsets that they share: the donor's last batch may reach above those.
            own = joined(belonging[donor.copy], own[own["base_offset"] >= donor.reach])
            damage = [(max(first, donor.reach), last) for first, last in damage if last >= donor.reach]
        for other in self._order:
            own = filled_where_damaged(own, belonging[other], damage) if other != number else own
        return own

    def _survey(self, number: int) -> _Surveyed:
        if number not in self._surveyed:
            self._surveyed[number] = self._read(number)
        return self._surveyed[number]

    def _read(self, number: int) -> _Surveyed:
        rows, state = self._rows[number], self._rows[number].copy.state
        last, ends = 0, min(state.end_offset, self._belonging.limits[number])
        tail: Any = None
        suspect: list[tuple[int, int]] = []
        bases = [base for base in rows.bases if base < self._end]
        for base, following in zip(bases, [*rows.bases[1:], NOWHERE], strict=False):
            found = rows.segment(base)
            valid = found.rows[found.rows["last_offset"] < self._end]
            belongs = self._belonging.mask(number, valid)
            foreign = valid[~belongs]
            suspect += zip(foreign["base_offset"].tolist(), foreign["last_offset"].tolist(), strict=True)
            suspect += [(each.first_offset, (each.next_offset or following) - 1) for each in found.damage]
            if belongs.any():
                tail = valid[belongs][-1]
                last = int(tail["last_offset"]) + 1
        if tail is not None and self._is_misplaced(number, tail):
            self._misplaced[number] = int(tail["segment"]), int(tail["position"])
            last = ends = int(tail["expected_offset"])
        reach = min(self._end, max(last, ends))
        damage = [(first, min(end, reach - 1)) for first, end in suspect if first < reach]
        if state.log_start_offset < state.start_offset:
            damage.append((state.log_start_offset, min(state.start_offset, reach) - 1))
        return _Surveyed(reach, merged((first, end) for first, end in damage if first <= end))

    def _is_misplaced(self, number: int, row: Any) -> bool:
        """Whether another copy has the last batch of this one among the offsets that are missing before it here.

        The checksum does not cover the offset. Such a copy would seem to be the longest one.
        """
        others = (rows for other, rows in enumerate(self._rows) if other != number)
        return bool(row["expected_offset"] >= 0) and any(rows.has_contents(row) for rows in others)

    # By keys

    def _compare(self, keyed: KeyedCopies) -> None:
        seen = {number: found.damage for number, found in self._surveyed.items()}
        # What a copy has lost may be why it still has what the cleaner of another one has removed: so twice.
        for _ in range(2):
            lost = {number: self._lost(number, keyed) for number in self._surveyed}
            for number, found in self._surveyed.items():
                found.damage = merged([*seen[number], *lost[number]])
        for number, found in self._surveyed.items():
            if found.damage:
                self._find_donor(number)

    def _lost(self, number: int, keyed: KeyedCopies) -> Iterator[tuple[int, int]]:
        for records in keyed.shares():
            everything = sorted_records(*records)
            for other in self._surveyed:
                if other != number:
                    yield from self._lost_by(number, other, records, everything, keyed.first_repeats[number])

    def _lost_by(
        self, number: int, other: int, records: Sequence[NDArray[Any]], everything: NDArray[Any], first_repeat: int
    ) -> Sequence[tuple[int, int]]:
        """Where a copy lacks records that another one has, and that no cleaner of it can have removed."""
        mine, theirs = records[number], records[other]
        start, reach = self._rows[number].copy.state.log_start_offset, self._surveyed[number].reach
        candidates = theirs[(theirs["offset"] >= start) & (theirs["offset"] < reach)]
        found = neighbours(candidates, mine)
        candidates, keep = candidates[~found.is_there], ~found.is_there
        if not len(candidates):
            return []
        has_earlier, has_later = found.has_earlier[keep], found.has_later[keep]
        is_last = ~has_later & ~neighbours(candidates, everything).has_later
        is_uncleaned = candidates["offset"] >= first_repeat
        is_known = np.array([self._sees(other, offset, number) for offset in candidates["offset"].tolist()], np.bool_)
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

    def _sees(self, number: int, offset: int, cleaned: int) -> bool:
        """Whether a copy shows all that another one's cleaner has seen after an offset."""
        state, surveyed = self._rows[cleaned].copy.state, self._surveyed
        upto = surveyed[cleaned].reach if state.cleaned_to is None else state.cleaned_to
        if surveyed[number].reach < min(upto, surveyed[cleaned].reach):
            return False
        return not overlap(surveyed[number].damage, [(offset + 1, upto - 1)] if offset + 1 < upto else [])

    def _find_donor(self, number: int) -> None:
        # One that leaves no doubt counts more than one that reaches farther.
        donor = min(self._able_donors(number), key=lambda found: bool(found.doubtful), default=None)
        if donor is not None:
            self._donors[number] = donor
            return
        assert self._keyed is not None
        self._mixed.add(number)
        for records in self._keyed.shares():
            self._conflicts += self._removed_here(number, records)

    def _able_donors(self, number: int) -> list[Donor]:
        """Those that reach farthest first."""
        if self._keyed is None:
            return []
        able = [other for other in self._order if other != number and not self._surveyed[other].damage]
        able.sort(key=lambda other: -self._surveyed[other].reach)
        keyed = self._keyed
        return [found for other in able if (found := self._judged(number, other, keyed)) is not None]

    def _judged(self, number: int, other: int, keyed: KeyedCopies) -> Donor | None:
        """The other copy as the donor of a damaged one; None if records would be lost, or deleted ones come back."""
        reach = self._surveyed[other].reach
        repeats, cleaned_to = keyed.first_repeats, self._rows[other].copy.state.cleaned_to or 0
        doubtful: list[tuple[int, int]] = []
        for records in keyed.shares():
            own, donated = records[number], records[other]
            donated = donated[(donated["offset"] < reach) | (donated["offset"] >= self._end)]
            kept = own[(own["base_offset"] >= reach) | (own["offset"] >= self._end)]
            after = sorted_records(donated, kept)
            beside = neighbours(own, after)
            leaving = own[~beside.is_there]
            earlier, later = beside.has_earlier[~beside.is_there], beside.has_later[~beside.is_there]
            is_removed = later | (leaving["is_tombstone"] & ~earlier)
            may_be = leaving["offset"] < min(repeats[other], reach)
            if self._copies.is_compacted is False:
                may_be[:] = False
            open_ones = leaving["offset"][~is_removed & may_be]
            is_hidden = np.array(
                [
                    offset < cleaned_to and not earlier_one and not self._sees(number, offset, other)
                    for offset, earlier_one in zip(
                        open_ones.tolist(), earlier[~is_removed & may_be].tolist(), strict=True
                    )
                ],
                np.bool_,
            )
            if not may_be.all() or not is_hidden.all():
                return None
            doubtful += [(offset, offset) for offset in open_ones.tolist()]
            if self._come_back(number, other, own, after, repeats).any():
                return None
        return Donor(other, reach, merged(doubtful))

    def _come_back(
        self, number: int, other: int, own: NDArray[Any], after: NDArray[Any], repeats: Sequence[int]
    ) -> NDArray[np.bool_]:
        """Whether each record is one that the cleaner of a copy has removed, and that nothing would hide."""
        beside = neighbours(after, own)
        is_last = ~neighbours(after, after).has_later
        is_new: NDArray[np.bool_] = ~beside.is_there & is_last & ~after["is_tombstone"]
        is_new &= after["offset"] < min(repeats[number], self._surveyed[number].reach)
        for first, last in self._surveyed[number].damage:
            is_new &= (after["offset"] < first) | (after["offset"] > last)
        for place in np.flatnonzero(is_new).tolist():
            is_new[place] = not self._sees(other, int(after["offset"][place]), number)
        return is_new

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
