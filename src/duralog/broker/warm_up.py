"""Loads the kernels that appends need, before the port opens: no client waits for a compiler.

They come with the package and take no time. Where numba has to compile them, they come from the disk cache in tens of
milliseconds, or, on a machine's first run, are compiled in seconds: the broker is not ready before that.
"""

from __future__ import annotations

from duralog.config import TopicConfig
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.record import Record
from duralog.storage.append.batch_admission import Stamp
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.validation import validate


def warm_up() -> None:
    """Validate batches of every kind that clients and coordinators append. Nothing is written."""
    records = [Record(key=b"k", value=b"v", timestamp_ms=0)]
    for codec, origin in (
        (Codec.NONE, AppendOrigin.COORDINATOR),
        (Codec.NONE, AppendOrigin.CLIENT),
        (Codec.GZIP, AppendOrigin.CLIENT),
        (Codec.NONE, AppendOrigin.AS_IS),
    ):
        batch = record_batch.encode(records, codec=codec)
        validate(batch, config=TopicConfig(), stamp=Stamp(0, 0, 0), origin=origin)
