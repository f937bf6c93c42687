"""Which part of a key identifies a row.

Kafka compares the bytes. But a row of a database keeps its key when the key's schema is registered again under another
id, or when Connect's JSON converter writes another schema next to it. So keys of change events are compared without the
schema: without the prefix that holds its id, or by the payload of `{"schema": ..., "payload": ...}` alone.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.errors import SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.frames import Frames
from duralog.schemas.payload_decoder import FORMATS, DecoderPlan, PayloadDecoder
from duralog.schemas.payloads import binary_column
from duralog.schemas.wire_formats import Framing, split_frames

_SCHEMA = b'{"schema":'
_PAYLOAD = b',"payload":'


class KeyIdentity(StrEnum):
    BYTES = "bytes"
    CONFLUENT = "confluent"
    APICURIO = "apicurio"
    APICURIO3 = "apicurio3"
    GLUE = "glue"
    CONNECT_JSON = "connect-json"

    def narrowed(
        self, data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The position of the identifying part of each key. REQUIRES: every key lies within the data."""
        if self is KeyIdentity.BYTES or not len(positions):
            return positions, lengths
        if self is KeyIdentity.CONNECT_JSON:
            return _payloads_of(data, positions, lengths)
        size, magic = _PREFIXES[self]
        is_framed = lengths >= size
        is_framed[is_framed] = data[positions[is_framed]] == magic
        skipped = np.where(is_framed, size, 0)
        return positions + skipped, (lengths - skipped).astype(np.int32)


_PREFIXES = {
    KeyIdentity.CONFLUENT: (5, 0),
    KeyIdentity.APICURIO3: (5, 0),
    KeyIdentity.APICURIO: (9, 0),
    KeyIdentity.GLUE: (18, 3),
}
"""How long the prefix is, and its first byte."""


def identity_of(keys: pa.Array, catalogue: SchemaCatalogue) -> KeyIdentity:
    """The rule for a sample of keys: the bytes, unless all keys of the sample have a schema that is known, and decode.

    The schema's id alone is not enough: a long from 2**24 on begins as a key of the schema with the id 1 does. Cut off,
    different keys would be the same.
    """
    keys = keys.drop_null()
    if not len(keys):
        return KeyIdentity.BYTES
    if all(key.startswith(_SCHEMA) and _PAYLOAD in key and key.endswith(b"}") for key in keys.to_pylist()):
        return KeyIdentity.CONNECT_JSON
    for framing in (Framing.CONFLUENT, Framing.APICURIO3, Framing.APICURIO, Framing.GLUE):
        frames = split_frames(keys, framing)
        if frames.faults.any() or (frames.schemas < 0).any():
            continue
        if any(_decode(keys, framing, frames, catalogue, context) for context in catalogue.contexts() or ["."]):
            return KeyIdentity(framing)
    return KeyIdentity.BYTES


def _decode(keys: pa.Array, framing: Framing, frames: Frames, catalogue: SchemaCatalogue, context: str) -> bool:
    """Whether all keys have schemas of this context, and decode by them."""
    for number, id_ in enumerate(frames.ids):
        schema = catalogue.by_guid(id_) if isinstance(id_, UUID) else catalogue.by_id(id_, context)
        if schema is None:
            return False
        plan = DecoderPlan(format=FORMATS[schema.type], framing=framing, part="key", reader=schema, catalogue=catalogue)
        try:
            reasons = PayloadDecoder(plan).decode(keys.filter(pa.array(frames.schemas == number))).reasons
        except SchemaError:
            return False
        if reasons.null_count < len(reasons):
            return False
    return True


def _payloads_of(
    data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    keys = binary_column(data, positions, positions + lengths)
    starts = np.asarray(pc.find_substring(keys, _PAYLOAD.decode())).astype(np.int64)
    has_payload = np.asarray(pc.starts_with(keys, _SCHEMA.decode())) & (starts >= 0)
    skipped = np.where(has_payload, starts + len(_PAYLOAD), 0)
    # The brace at the end, too.
    return positions + skipped, (lengths - skipped - has_payload).astype(np.int32)
