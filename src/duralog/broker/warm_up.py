"""Has the kernels ready that appends need, before the first client does.

They are loaded from the disk cache in tens of milliseconds, or, on a machine's first run, compiled in seconds. That
happens beside the loop, right after the port has opened: clients are answered meanwhile, and whoever appends first
waits for what is left of it.
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
    """Check batches of every kind that clients and coordinators append; nothing is written."""
    records = [Record(key=b"k", value=b"v", timestamp_ms=0)]
    for codec, origin in (
        (Codec.NONE, AppendOrigin.COORDINATOR),
        (Codec.NONE, AppendOrigin.CLIENT),
        (Codec.GZIP, AppendOrigin.CLIENT),
        (Codec.NONE, AppendOrigin.AS_IS),
    ):
        batch = record_batch.encode(records, codec=codec)
        validate(batch, config=TopicConfig(), stamp=Stamp(0, 0, 0), origin=origin)
