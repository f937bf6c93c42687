"""Apache Kafka's log storage in Python: the same files on disk, byte for byte."""

from duralog.errors import CorruptRecord, DuralogError, InvalidRecord
from duralog.format.record import Record, TimestampType

__version__ = "0.1.0.dev0"

__all__ = ["CorruptRecord", "DuralogError", "InvalidRecord", "Record", "TimestampType", "__version__"]
