"""Answers without what two servers may rightly answer differently.

Only this is replaced, everything else is compared as it came:

- Host and port, if they are the server's own: two servers on one machine.
- The cluster id: made when a directory is formatted.
- Ids of topics, members, producers and fetch sessions, and UUIDs inside texts: made at random or counted by each
  server. They are numbered as first seen, so which answers carry the *same* id is still compared.
- The epoch of the features: an offset in the metadata log.
- Log directories, and the bytes that their disk has.
- Times within an hour of now, in texts within two days: clocks. The records of the scenarios are dated 2023, and stay.
- The order of members of groups, of features, and of what Produce and AddPartitionsToTxn answer: in Kafka, that of a
  hash table. Scenarios sort a few other lists themselves, for the same reason.
- Records are shown as the fields of each batch and its records, so that a difference can be read.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import Any
from uuid import UUID

from duralog.format.batches import decode_records, scan

Address = tuple[str, int]

_ONE_HOUR_MS = 3_600_000
_TWO_DAYS_MS = 48 * _ONE_HOUR_MS
_HEX_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHORT_UUID = re.compile(
    r"(?<![A-Za-z0-9_-])(?=[a-z0-9_-]*[A-Z])(?=[A-Z0-9_-]*[a-z])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])"
)
_LONG_NUMBER = re.compile(r"-?\b\d{13,}\b")
_LONG_AGO = -(1 << 62)
_UNORDERED = (
    "members",
    "partition_responses",
    "results_by_partition",
    "results_by_topic_v3_and_below",
    "topic_results",
    "supported_features",
    "finalized_features",
)
_IDS = {"producer_id": "producer", "v3_and_below_producer_id": "producer", "session_id": "session"}


class NormalForm:
    """The normal form of one server's answers in one scenario."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._seen: dict[str, dict[object, str]] = defaultdict(dict)

    def of(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.of(each, name) for name, each in value.items()}
        if isinstance(value, list):
            normal = [self.of(each, field) for each in value]
            return sorted(normal, key=repr) if field in _UNORDERED else normal
        if isinstance(value, bytes):
            return self._records(value) if field == "records" and value else value
        if isinstance(value, UUID):
            return self._alias("topic", value) if value.int else "no id"
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return self._number(value, field)
        if isinstance(value, str):
            return self._text(value, field)
        return value

    def _number(self, value: int, field: str) -> int | str:
        if field == "port" and value == self._address[1]:
            return "<port>"
        if field in _IDS and (value > 0 or (value == 0 and field != "session_id")):
            return self._alias(_IDS[field], value)
        if field == "finalized_features_epoch":
            return "<metadata offset>"
        if field in ("total_bytes", "usable_bytes") and value > 0:
            return "<bytes>"
        if abs(value - time.time() * 1000) < _ONE_HOUR_MS:
            return "<now>"
        return value

    def _text(self, value: str, field: str) -> str:
        if field == "host" and value == self._address[0]:
            return "<host>"
        if field == "cluster_id":
            return "<cluster>"
        if field == "log_dir":
            return "<directory>"
        value = _LONG_NUMBER.sub(_without_times, value)
        value = _HEX_UUID.sub(lambda found: self._alias("uuid", found[0]), value)
        return _SHORT_UUID.sub(lambda found: self._alias("uuid", found[0]), value)

    def _records(self, data: bytes) -> list[dict[str, Any]]:
        batches = []
        for batch in scan(data):
            fields = {
                name: getattr(batch, name) for name in batch.__dataclass_fields__ if name not in ("position", "crc")
            }
            records = [
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp_ms,
                    "key": record.key,
                    "value": record.value,
                    "headers": [list(header) for header in record.headers],
                }
                for record in decode_records(data, batch)
            ]
            batches.append(self.of(fields | {"of": records}))
        return batches

    def _alias(self, kind: str, value: object) -> str:
        seen = self._seen[kind]
        return seen.setdefault(value, f"<{kind} {len(seen) + 1}>")


def _without_times(found: re.Match[str]) -> str:
    number = int(found[0])
    if number < _LONG_AGO:
        return "<long ago>"
    return "<now>" if abs(number - time.time() * 1000) < _TWO_DAYS_MS else found[0]
