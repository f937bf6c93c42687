"""Arrow's types as Spark has them, for frames and for the tables that jobs write; no PySpark here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow.compute import CastOptions

from duralog.schemas.payloads import Decoded

_MAX_PRECISION = 38
"""Of Spark's decimals."""


def spark_fitting(type_: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark takes for another: times of day as numbers, unsigned numbers with room for all of them.

    Decimals with more digits than Spark has are text.
    """
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(spark_fitting(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(spark_fitting(type_.key_type), spark_fitting(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(spark_fitting(type_.value_type))
    if pa.types.is_dictionary(type_):
        return spark_fitting(type_.value_type)
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_time32(type_):
        return pa.int32()
    if pa.types.is_time64(type_) or pa.types.is_uint32(type_):
        return pa.int64()
    if pa.types.is_uint8(type_) or pa.types.is_uint16(type_):
        return pa.int32()
    if pa.types.is_uint64(type_):
        return pa.decimal128(20, 0)
    if pa.types.is_decimal(type_):
        return pa.string() if type_.precision > _MAX_PRECISION else pa.decimal128(type_.precision, type_.scale)
    if pa.types.is_fixed_size_binary(type_) or pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_duration(type_):
        return pa.duration("us")
    return type_


Cast = Callable[[pa.Array, pa.DataType], pa.Array]


def fitted(decoded: Decoded, type_: pa.DataType, cast: Cast | None = None, *, holder: str = "Spark") -> Decoded:
    """A decoded column with the type that its holder has for it. A value that this type cannot hold does not decode."""
    if decoded.values.type == type_:
        return decoded
    cast = cast or fitting_cast
    try:
        return replace(decoded, values=cast(decoded.values, type_))
    except pa.ArrowInvalid:
        fitting = _Fitting(type_, cast, holder, [], decoded.reasons.to_pylist())
        fitting.add(decoded.values, 0)
        reasons = pa.array(fitting.reasons, pa.string())
        return replace(decoded, values=pa.concat_arrays(fitting.parts), reasons=reasons)


def fitting_cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Times are cut to microseconds. One that does not fit raises `ArrowInvalid`: a plain cast would change it."""
    for target in (spark_fitting(array.type), type_):
        if array.type != target:
            array = array.cast(options=CastOptions(target_type=target, allow_time_truncate=True))
    return array


@dataclass(frozen=True, slots=True)
class _Fitting:
    type_: pa.DataType
    cast: Cast
    holder: str
    parts: list[pa.Array]
    reasons: list[str | None]

    def add(self, array: pa.Array, first: int) -> None:
        """The rows from `first` on, without those that do not fit: these become null, with a reason."""
        try:
            self.parts.append(self.cast(array, self.type_))
        except pa.ArrowInvalid as error:
            if len(array) == 1:
                self.parts.append(pa.nulls(1, self.type_))
                self.reasons[first] = self.reasons[first] or f"{self.holder} cannot hold it: {error}"
                return
            middle = len(array) // 2
            for start, end in ((0, middle), (middle, len(array))):
                # A slice would keep the values of all rows, and Arrow casts those of a list that are not in it, too.
                self.add(array.take(pa.array(range(start, end), pa.int64())), first + start)
