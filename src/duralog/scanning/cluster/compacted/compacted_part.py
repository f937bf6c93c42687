"""The part of a log that cleaners have been at: which copies are whole there, and what the others should have.

Cleaners of different copies have left other batches, and all are right. Two of them must not be mixed: a value that one
of them has removed, and its tombstone with it, would come back from the other. So a copy that is damaged here takes all
of the part from one copy, its donor, as far as that one reaches. Above, it keeps its own batches.

A copy can be a donor if nothing of it is damaged, and if it lacks nothing but what its cleaner has removed
(`keyed_records`). If there is no such copy, the damaged one keeps all of its batches, and gets those of the others
where it is damaged. What no copy shows to be removed never leaves a copy by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.scanning.cluster.batch_rows import CopyRows
from duralog.scanning.cluster.choice import divergence
from duralog.scanning.cluster.cluster import Copies
from duralog.scanning.cluster.compacted.donors import Donor, Donors, Surveyed
from duralog.scanning.cluster.compacted.keyed_records import KeyedCopies
from duralog.scanning.cluster.healed_batches import NOWHERE, Belonging, filled_where_damaged, joined
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


class CompactedPart:
    """REQUIRES: `survey` is called before what the copies should have is asked for."""

    def __init__(self, copies: Copies, rows: Sequence[CopyRows], belonging: Belonging, order: Sequence[int]) -> None:
        self._copies = copies
        self._rows = rows
        self._belonging = belonging
        self._order = order
        self._end = belonging.dense_from
        self._surveyed: dict[int, Surveyed] = {}
        self._taken_from: dict[int, Donor] = {}
        self._mixed: set[int] = set()
        """Damaged copies without a donor."""
        self._donors: Donors | None = None
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
            self._donors = self._compare()

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
        able = [] if self._donors is None else self._donors.able(number, self._order)
        judged = [found for found in able if found.reach == self._farthest]
        return min(judged, key=lambda found: bool(found.doubtful), default=None)

    def donor(self, number: int) -> Donor | None:
        """What a damaged copy gets its part from; None if it keeps its own."""
        return self._taken_from.get(number)

    def origin(self, number: int | None) -> int | None:
        """The copy whose cleaner has made what a copy has afterwards; None if it is made of several."""
        if number is None:
            return self.origin(self._reference) if self._surveyed else None
        if number in self._mixed:
            return None
        return number if number not in self._taken_from else self._taken_from[number].copy

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
        donor = self._taken_from.get(number)
        reach = max(self._surveyed[number].reach, 0 if donor is None else donor.reach)
        return joined(self._own(number, belonging), rest[rest["base_offset"] >= reach])

    @property
    def _farthest(self) -> int:
        return max((found.reach for found in self._surveyed.values()), default=0)

    @property
    def _reference(self) -> int:
        """The copy that reaches farthest: those that end before it get the rest from it.

        Of several, that with the most: its tombstones may not be removed yet.
        """

        def rank(number: int) -> tuple[int, int, int]:
            donor = self._taken_from.get(number)
            of = number if donor is None else donor.copy
            return self._surveyed[number].reach, self._surveyed[of].size_bytes, -self._order.index(number)

        return max(self._order, key=rank)

    def _own(self, number: int, belonging: Sequence[NDArray[Any]]) -> NDArray[Any]:
        own, damage = belonging[number], self._surveyed[number].damage
        donor = self._taken_from.get(number)
        if donor is not None:
            # Both lack none of the offsets that they share: the donor's last batch may reach above those.
            own = joined(belonging[donor.copy], own[own["base_offset"] >= donor.reach])
            damage = [(max(first, donor.reach), last) for first, last in damage if last >= donor.reach]
        for other in self._order:
            own = filled_where_damaged(own, belonging[other], damage) if other != number else own
        return own

    def _survey(self, number: int) -> Surveyed:
        if number not in self._surveyed:
            self._surveyed[number] = self._read(number)
        return self._surveyed[number]

    def _read(self, number: int) -> Surveyed:
        rows, state = self._rows[number], self._rows[number].copy.state
        size_bytes, last, ends = 0, 0, min(state.end_offset, self._belonging.limits[number])
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
            size_bytes += int(valid["size"][belongs].sum())
            if belongs.any():
                tail = valid[belongs][-1]
                last = int(tail["last_offset"]) + 1
        if tail is not None and self._is_misplaced(number, tail):
            self._misplaced[number] = int(tail["segment"]), int(tail["position"])
            last = ends = int(tail["expected_offset"])
        reach = min(self._end, max(last, ends))
        damage = [(first, min(end, reach - 1)) for first, end in suspect if first < reach]
        # What no copy has is lost, and no reason to change one.
        start = max(state.log_start_offset, min(each.copy.state.start_offset for each in self._rows))
        if start < state.start_offset:
            damage.append((start, min(state.start_offset, reach) - 1))
        return Surveyed(reach, merged((first, end) for first, end in damage if first <= end), size_bytes)

    def _is_misplaced(self, number: int, row: Any) -> bool:
        """Whether another copy has the last batch of this one among the offsets that are missing before it here.

        The checksum does not cover the offset. Such a copy would seem to be the longest one.
        """
        others = (rows for other, rows in enumerate(self._rows) if other != number)
        return bool(row["expected_offset"] >= 0) and any(rows.has_contents(row) for rows in others)

    # By keys

    def _compare(self) -> Donors:
        keyed = KeyedCopies(self._rows, self.belongs)
        donors = Donors(keyed, self._rows, self._surveyed, self._end, is_compacted=self._copies.is_compacted)
        seen = {number: found.damage for number, found in self._surveyed.items()}
        # What a copy has lost may be why it still has what the cleaner of another one has removed: so twice.
        for _ in range(2):
            lost = {number: donors.lost(number) for number in self._surveyed}
            for number, found in self._surveyed.items():
                found.damage = merged([*seen[number], *lost[number]])
        for number, found in self._surveyed.items():
            if found.damage:
                self._find_donor(number, donors)
            elif found.reach < self._farthest:
                self._find_fresher(number, donors)
        return donors

    def _find_donor(self, number: int, donors: Donors) -> None:
        # One that leaves no doubt counts more than one that reaches farther.
        donor = min(donors.able(number, self._order), key=lambda found: bool(found.doubtful), default=None)
        if donor is not None:
            self._taken_from[number] = donor
        else:
            self._mixed.add(number)
            self._conflicts += donors.removed_here(number)

    def _find_fresher(self, number: int, donors: Donors) -> None:
        """A donor for a copy that ends early, if keys that were deleted since would come back in it.

        It would be filled with what a cleaner has left, tombstones excluded. Kafka's followers are, too, if they fetch
        later than `delete.retention.ms` allows. Here, other copies can show that the keys were deleted.
        """
        for donor in donors.able(number, self._order):
            reaches_on = donor.reach > self._surveyed[number].reach
            if reaches_on and not donor.doubtful and donors.would_revive(number, donor):
                self._taken_from[number] = donor
                return
