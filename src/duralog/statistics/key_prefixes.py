"""Prefixes of keys: the first bytes, or the part before a separator. Computed for whole chunks of records."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.schema import KEY
from duralog.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRule:
    """How long the prefix of a key is. One of the two is given."""

    length: int | None = None
    separator: int | None = None
    """A byte. A key without it is its own prefix."""

    @classmethod
    def of(cls, length: int | None, separator: str | bytes | None) -> PrefixRule | None:
        """The rule for the options of a user; None for no prefixes."""
        if length is None and separator is None:
            return None
        if length is not None and separator is not None:
            raise InvalidConfig("a prefix has a length or ends at a separator: give only one of them")
        if length is not None:
            if length < 1:
                raise InvalidConfig(f"a prefix has 1 byte at least, not {length}")
            return cls(length=length)
        data = separator.encode() if isinstance(separator, str) else separator
        assert data is not None
        if len(data) != 1:
            raise InvalidConfig(f"the separator of prefixes is one byte, not {separator!r}")
        return cls(separator=data[0])


@dataclass(frozen=True, slots=True)
class Prefixes:
    values: list[bytes | None]
    """The prefixes of some records, each once; None for records without a key."""
    codes: NDArray[np.int64]
    """For each record, which of them it has."""


def prefixes_of(records: DecodedRecords, rule: PrefixRule) -> Prefixes:
    columns = records.columns
    lengths = _lengths(records, rule).astype(np.int32)
    cut = DecodedRecords(records.data, replace(columns, key_length=lengths), records.batch_row, records.batches)
    found = cut.to_arrow(columns=[KEY]).column(KEY).dictionary_encode(null_encoding="encode")
    codes: NDArray[np.int64] = found.indices.cast(pa.int64()).to_numpy()
    return Prefixes(found.dictionary.to_pylist(), codes)


def _lengths(records: DecodedRecords, rule: PrefixRule) -> NDArray[np.int64]:
    """Of the prefix of each key, -1 where there is no key."""
    lengths = records.columns.key_length.astype(np.int64)
    if rule.length is not None:
        return np.minimum(lengths, rule.length)
    places = np.flatnonzero(records.data == rule.separator)
    if not len(places):
        return lengths
    begins = records.columns.key_position
    following = np.searchsorted(places, begins)
    has_one = following < len(places)
    distance = places[np.minimum(following, len(places) - 1)] - begins
    return np.where(has_one & (distance < lengths), distance, lengths)
