"""Answers without what two servers may rightly answer differently.

Only this is replaced, everything else is compared as it came:

| what | by | because |
|---|---|---|
| host and port | `<host>`, `<port>`, if they are the server's own | two servers on one machine |
| cluster id | `<cluster>` | made when a directory is formatted |
| topic ids, member ids, producer ids, fetch session ids | `<topic 1>` and so on, numbered as first seen | made at random or counted per server: which answers carry the *same* id is still compared |
| UUIDs inside texts | the same numbers | member ids are a client id and a UUID, messages name ids |
| epoch of the features | `<metadata offset>` | an offset in the metadata log |
| log directories, their total and free bytes | `<directory>`, `<bytes>` | two directories |
| times within an hour of now | `<now>` | clocks; the records that scenarios write are dated 2023, and stay |
| records | the fields of each batch and its records | so that a difference can be read, and times and ids in them be replaced |
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
_HEX_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHORT_UUID = re.compile(r"(?<![A-Za-z0-9_-])(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])")
_IDS = {"producer_id": "producer", "session_id": "session", "proposed_producer_id": "producer"}


class NormalForm:
    """The normal form of one server's answers in one scenario."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._seen: dict[str, dict[object, str]] = defaultdict(dict)

    def of(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self.of(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.of(each, field) for each in value]
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
        if field in _IDS and value > 0 or (field == "producer_id" and value == 0):
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
        value = _HEX_UUID.sub(lambda found: self._alias("uuid", found[0]), value)
        return _SHORT_UUID.sub(lambda found: self._alias("uuid", found[0]), value)

    def _records(self, data: bytes) -> list[dict[str, Any]]:
        batches = []
        for batch in scan(data):
            fields = {name: getattr(batch, name) for name in batch.__dataclass_fields__ if name not in ("position", "crc")}
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
