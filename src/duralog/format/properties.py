"""The small descriptive files of a log directory: `meta.properties`, `partition.metadata`, `.kafka_cleanshutdown`
and `quorum-state`.

Each is written whole, under another name, and renamed into place. What is read can be written again byte for
byte; of `meta.properties`, through `java_properties`, which keeps comments, order and unknown keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duralog.errors import CorruptRecord
from duralog.format.java_properties import Properties, decode_properties, encode_properties
from duralog.format.uuids import ZERO_UUID, uuid_bytes, uuid_text
from duralog.format.varint import Bytes

PARTITION_METADATA_VERSION = 0
META_PROPERTIES_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Whose directory this is. Kafka refuses to start on a directory of another node or another cluster."""

    version: int
    """0 for directories from before KRaft, which know the node as `broker.id`."""
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


def decode_meta_properties(data: Bytes) -> MetaProperties:
    values = decode_properties(data).values
    version = _integer(values, "version") or 0
    if version not in (0, META_PROPERTIES_VERSION):
        raise _wrong_property("version", f"0 or {META_PROPERTIES_VERSION}", version)
    directory_id = values.get("directory.id")
    if directory_id is not None:
        try:
            uuid_bytes(directory_id)
        except ValueError as error:
            raise _wrong_property("directory.id", "22 characters of URL-safe base64", directory_id) from error
    return MetaProperties(
        version=version,
        cluster_id=values.get("cluster.id"),
        node_id=_integer(values, "node.id" if version > 0 else "broker.id"),
        directory_id=directory_id,
    )


def encode_meta_properties(meta: MetaProperties, *, written: str) -> bytes:
    """The file's bytes. `written` is the time that Java puts into the second line, which is never read."""
    node_key = "node.id" if meta.version > 0 else "broker.id"
    known = {
        "cluster.id": meta.cluster_id,
        "directory.id": meta.directory_id,
        node_key: meta.node_id,
        "version": meta.version,
    }
    values = {key: str(known[key]) for key in sorted(known) if known[key] is not None}
    return encode_properties(Properties(values, ("#", f"#{written}")))


def _integer(values: Mapping[str, str], key: str) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text) or not -(2**31) <= int(text) < 2**31:
        raise _wrong_property(key, "a 32-bit number", text)
    return int(text)


def _wrong_property(key: str, expected: str, found: object) -> CorruptRecord:
    return CorruptRecord(f"meta.properties has a wrong {key}", expected=expected, found=repr(found))


def decode_partition_metadata(data: Bytes) -> str:
    """The id of the topic that the partition belongs to, as text. The zero id is refused, as Kafka does."""
    lines = bytes(data).decode("utf-8", "replace").splitlines()
    version = _labelled(lines, 1, "version")
    if version != str(PARTITION_METADATA_VERSION):
        raise _wrong_line(1, f"version: {PARTITION_METADATA_VERSION}", lines[0])
    topic_id = _labelled(lines, 2, "topic_id")
    try:
        topic_id = uuid_text(uuid_bytes(topic_id))
    except ValueError as error:
        raise _wrong_line(2, "topic_id: and 22 characters of URL-safe base64", lines[1]) from error
    if topic_id == ZERO_UUID:
        raise _wrong_line(2, "an id other than zero", lines[1])
    return topic_id


def encode_partition_metadata(topic_id: str) -> bytes:
    """The file's bytes, with no line end at their end. Raises ValueError when the id is none."""
    return f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {uuid_text(uuid_bytes(topic_id))}".encode("ascii")


def _labelled(lines: list[str], number: int, label: str) -> str:
    line = lines[number - 1] if len(lines) >= number else ""
    match = re.fullmatch(rf"{label}:\s+(\S+)", line)
    if match is None:
        raise _wrong_line(number, f"'{label}: ...'", line)
    return match[1]


def _wrong_line(number: int, expected: str, found: str) -> CorruptRecord:
    return CorruptRecord(f"line {number} of partition.metadata is wrong", expected=expected, found=repr(found[:200]))


def decode_json_object(data: Bytes) -> dict[str, Any]:
    """The content of `.kafka_cleanshutdown` and of `quorum-state`: one JSON object."""
    try:
        value = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise CorruptRecord("a file is not JSON", expected="an object", found=str(error)) from error
    if not isinstance(value, dict):
        raise CorruptRecord("a file is not a JSON object", expected="an object", found=type(value).__name__)
    return value


def encode_json_object(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("utf-8")


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """What Kafka writes last in a clean shutdown. That the file is there is what counts."""
    return encode_json_object({"version": 0, "brokerEpoch": broker_epoch})
