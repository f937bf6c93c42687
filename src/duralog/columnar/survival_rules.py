"""The rules by which records outlive a compaction."""

from __future__ import annotations

from dataclasses import dataclass

from duralog.format.varint import as_int64
from duralog.kernels.offset_map import OffsetMap

_NEVER_MS = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalRules:
    """What decides about a record of a filtered batch.

    It stays if it lies behind all that the map knows. Otherwise it needs a key that no later record has, and a value,
    unless it is a tombstone that is still to be seen.
    """

    offset_map: OffsetMap
    round_ms: int
    """When the round began: delete horizons up to it have passed, new ones are counted from it."""
    delete_retention_ms: int
    keep_legacy_tombstones: bool
    """Formats v0 and v1 have no delete horizon: whether the file is too young to lose its tombstones."""
    keep_tombstones: bool = False
    """Whatever their time: there may be values of their keys that nobody could look at."""

    @property
    def expired_ms(self) -> int:
        """Tombstones with a delete horizon up to this time go."""
        return _NEVER_MS if self.keep_tombstones else self.round_ms

    @property
    def new_horizon_ms(self) -> int:
        """The horizon of a batch that gets one. Negative, and so none, where the sum wraps, as in Kafka."""
        return as_int64(self.round_ms + self.delete_retention_ms)
