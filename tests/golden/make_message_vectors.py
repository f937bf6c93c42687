"""Makes `message_vectors.jsonl` new: every version of every internal record type, as Kafka's own classes encode it.

    python make_message_vectors.py JAR...

The jars are Kafka's kafka-clients, kafka-group-coordinator, kafka-transaction-coordinator, kafka-share-coordinator,
kafka-metadata and kafka-server-common with Jackson's core, databind and annotations. Needs Java 17 or newer.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct
from duralog.format.internal.metadata_records import METADATA_TYPES
from duralog.format.internal.share_records import SHARE_GROUP_STATE_TYPES
from duralog.format.internal.transaction_records import TRANSACTION_STATE_TYPES
from duralog.format.uuids import uuid_text

HERE = Path(__file__).parent
VECTORS = HERE / "message_vectors.jsonl"
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def messages() -> Iterator[tuple[Message, str]]:
    """Each message, with the name of Kafka's class."""
    for package, types in (
        ("org.apache.kafka.coordinator.group.generated", CONSUMER_OFFSETS_TYPES),
        ("org.apache.kafka.coordinator.share.generated", SHARE_GROUP_STATE_TYPES),
        ("org.apache.kafka.coordinator.transaction.generated", TRANSACTION_STATE_TYPES),
    ):
        for record_type in types.values():
            for message in (record_type.key, record_type.value):
                yield message, f"{package}.{message.name}"
    for message in METADATA_TYPES.values():
        yield message, "org.apache.kafka.common.metadata." + "".join(map(str.capitalize, message.name.split("_")))


def sample(field: Field, version: int, rng: random.Random, *, sparse: bool) -> Any:
    """A value for the field, as our decoder would return it with bytes as base64; a sparse one is null or empty."""
    if sparse and field.nullable:
        return None
    if isinstance(field.type, Struct):
        return sample_struct(field.type.fields, version, rng, sparse=sparse)
    if isinstance(field.type, ArrayOf):
        count = 0 if sparse else rng.randint(1, 3)
        return [sample(Field(field.name, field.type.element), version, rng, sparse=sparse) for _ in range(count)]
    if field.type in BITS:
        return rng.randrange(-(2 ** (BITS[field.type] - 1)), 2 ** (BITS[field.type] - 1))
    if field.type == "uint16":
        return rng.randrange(2**16)
    if field.type == "float64":
        return rng.uniform(-1e9, 1e9)
    if field.type == "boolean":
        return rng.random() < 0.5
    if field.type == "uuid":
        return uuid_text(rng.randbytes(16))
    size = 0 if sparse else rng.choice([1, 20, 200])
    if field.type == "bytes":
        return b64encode(rng.randbytes(size)).decode("ascii")
    return "".join(rng.choice("aZ0.-_ é€😀") for _ in range(size))


def sample_struct(fields: tuple[Field, ...], version: int, rng: random.Random, *, sparse: bool) -> dict[str, Any]:
    return {
        field.name: field.default if sparse and field.tag is not None else sample(field, version, rng, sparse=sparse)
        for field in fields
        if field.is_in(version)
    }


def in_camel_case(value: Any) -> Any:
    if isinstance(value, list):
        return [in_camel_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {}
    for name, item in value.items():
        first, *others = name.split("_")
        renamed[first + "".join(map(str.capitalize, others))] = in_camel_case(item)
    return renamed


def make(jars: list[str]) -> None:
    rng = random.Random(20261115)
    vectors, requests = [], []
    for message, java_class in messages():
        for version in range(message.last_version + 1):
            for sparse in (False, True):
                fields = sample_struct(message.fields, version, rng, sparse=sparse)
                vectors.append({"message": message.name, "version": version, "fields": fields})
                requests.append(json.dumps({"class": java_class, "version": version, "data": in_camel_case(fields)}))
    encoded = subprocess.run(
        ["java", "-cp", ":".join(jars), str(HERE / "EncodeMessages.java")],
        input="\n".join(requests) + "\n",
        stdout=subprocess.PIPE,
        check=True,
        encoding="utf-8",
    ).stdout.splitlines()
    with VECTORS.open("w", encoding="utf-8") as lines:
        for vector, hexadecimal in zip(vectors, encoded, strict=True):
            lines.write(json.dumps({**vector, "encoded": hexadecimal}) + "\n")
    print(f"{len(vectors)} vectors")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    make(sys.argv[1:])
