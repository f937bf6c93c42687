"""Random Avro schemas, values of them as bytes, and later versions of them. All of it from one `Random`.

The bytes are written here and not by a library: blocks are split at random, with and without their sizes.
"""

from __future__ import annotations

import copy
import struct
from random import Random
from typing import Any

Schema = Any
"""As JSON has it."""

PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL: tuple[Schema, ...] = (
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 0},
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
)
WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
INTS = (0, 1, -1, 63, 64, -65, 8191, 8192, 2**31 - 1, -(2**31))
LONGS = (*INTS, 2**31, 2**55, -(2**62), 2**63 - 1, -(2**63))
TEXTS = ("", "a", "abc", "naïve", "x" * 31, "y" * 32, "z" * 33, "日本語 text", "🙂" * 9, "long " * 30)


class RandomAvro:
    def __init__(self, random: Random, *, logical: bool = False) -> None:
        self.random = random
        self._logical = logical
        self._names = 0

    def schema(self, depth: int = 3) -> Schema:
        kind = self.random.choice(("plain", "plain", "plain", "record", "array", "map", "union", "enum", "fixed"))
        if depth == 0 or kind == "plain":
            if self._logical and self.random.random() < 0.3:
                return dict(self.random.choice(LOGICAL))
            return self.random.choice(PLAIN)
        if kind == "record":
            return self.record(depth)
        if kind == "array":
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth - 1)}
        if kind == "enum":
            return {"type": "enum", "name": self._name("E"), "symbols": ["A", "BB", "CCC", "DDDD"]}
        if kind == "fixed":
            return self._fixed()
        return self._union(depth)

    def record(self, depth: int = 3) -> Schema:
        fields = [
            {"name": f"f{number}", "type": self.schema(depth - 1)} for number in range(self.random.choice((0, 1, 3, 5)))
        ]
        return {"type": "record", "name": self._name("R"), "fields": fields}

    def _fixed(self) -> Schema:
        made: Schema = {"type": "fixed", "name": self._name("F"), "size": self.random.choice((0, 1, 7, 16, 40))}
        if self._logical:
            extra = self.random.choice(
                (
                    {"logicalType": "uuid", "size": 16},
                    {"logicalType": "duration", "size": 12},
                    {"logicalType": "decimal", "size": 7, "precision": 12, "scale": 3},
                    {"logicalType": "decimal", "size": 20, "precision": 40, "scale": 40},
                )
            )
            made |= extra
        return made

    def _union(self, depth: int) -> Schema:
        found: dict[str, Schema] = {}
        for _ in range(self.random.choice((1, 2, 2, 3, 4))):
            one: Schema = self.random.choice((*PLAIN, "null", None))
            one = self.schema(depth - 1) if one is None else one
            if not isinstance(one, list):
                found[_kind(one) if _kind(one) not in ("record", "enum", "fixed") else one["name"]] = one
        branches = list(found.values()) or ["null"]
        self.random.shuffle(branches)
        return branches

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def value(self, schema: Schema) -> bytes:
        """The bytes of a random value."""
        if isinstance(schema, list):
            branch = self.random.randrange(len(schema))
            return varint(branch) + self.value(schema[branch])
        kind = _kind(schema)
        if kind == "record":
            return b"".join(self.value(one["type"]) for one in schema["fields"])
        if kind in ("array", "map"):
            return self._blocks(schema, kind)
        if kind == "enum":
            return varint(self.random.randrange(len(schema["symbols"])))
        if kind == "fixed":
            size = schema["size"]
            if schema.get("logicalType") == "decimal":
                return self._number(schema["precision"]).to_bytes(size, "big", signed=True)
            return self.random.randbytes(size)
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if logical == "decimal":
            number = self._number(schema["precision"])
            data = number.to_bytes(number.bit_length() // 8 + self.random.choice((1, 1, 2, 20)), "big", signed=True)
            return varint(len(data)) + data
        if logical in ("time-millis", "time-micros"):
            return varint(self.random.randrange(86_400_000))
        return self._plain(kind)

    def _number(self, precision: int) -> int:
        digits = self.random.randrange(precision + 1)
        return self.random.choice((1, -1)) * self.random.choice((10**digits - 1, self.random.randrange(10**digits)))

    def _plain(self, kind: str) -> bytes:
        random = self.random
        if kind == "null":
            return b""
        if kind == "boolean":
            return bytes([random.randrange(2)])
        if kind == "int":
            return varint(random.choice((*INTS, random.randrange(-(2**31), 2**31))))
        if kind == "long":
            return varint(random.choice((*LONGS, random.randrange(-(2**63), 2**63))))
        if kind == "float":
            return struct.pack("<f", random.choice((0.0, 1.5, -2.25, 3e38, random.random())))
        if kind == "double":
            return struct.pack("<d", random.choice((0.0, 1.5, -2.25, 1e300, random.random())))
        data = random.choice(TEXTS).encode()
        return varint(len(data)) + data

    def _blocks(self, schema: Schema, kind: str) -> bytes:
        done = b""
        for _ in range(self.random.choice((0, 1, 1, 2))):
            count = self.random.choice((1, 2, 5))
            items = b""
            for _ in range(count):
                if kind == "map":
                    items += self._plain("string")
                items += self.value(schema["items" if kind == "array" else "values"])
            done += varint(-count) + varint(len(items)) if self.random.random() < 0.3 else varint(count)
            done += items
        return done + b"\x00"

    def later(self, schema: Schema) -> Schema:
        """A later version of the schema, which can read most values of it."""
        return self._later(copy.deepcopy(schema))

    def _later(self, schema: Schema) -> Schema:
        random = self.random
        if isinstance(schema, list):
            branches = [self._later(one) for one in schema]
            branches = [one for one in branches if not isinstance(one, list)]
            if random.random() < 0.3:
                random.shuffle(branches)
            if random.random() < 0.3 and len(branches) > 1:
                branches.pop()
            kinds = [_kind(one) for one in branches]
            unique = [
                one for number, one in enumerate(branches) if not isinstance(one, str) or kinds.index(one) == number
            ]
            if "null" not in kinds and random.random() < 0.3:
                unique.insert(0, "null")
            return unique if unique else ["null"]
        kind = _kind(schema)
        if kind == "record":
            return self._later_record(schema)
        if kind == "array":
            return {"type": "array", "items": self._later(schema["items"])}
        if kind == "map":
            return {"type": "map", "values": self._later(schema["values"])}
        if kind == "enum" and random.random() < 0.4:
            return {**schema, "symbols": ["CCC", "A", "NEW", "DDDD"], **random.choice(({}, {"default": "NEW"}))}
        if isinstance(schema, str):
            if random.random() < 0.2:
                return random.choice(WIDER.get(schema, (schema,)))
            if random.random() < 0.1 and schema != "null":
                return [schema, "null"]
        return schema

    def _later_record(self, schema: Schema) -> Schema:
        random = self.random
        fields = []
        for one in schema["fields"]:
            if random.random() < 0.15:
                continue
            changed = {**one, "type": self._later(one["type"])}
            if random.random() < 0.15:
                changed |= {"name": f"new_{one['name']}", "aliases": [one["name"]]}
            fields.append(changed)
        if random.random() < 0.4:
            fields += [
                {"name": "added", "type": "string", "default": "new"},
                {"name": "maybe", "type": ["null", "long"], "default": None},
                {"name": "listed", "type": {"type": "array", "items": "int"}, "default": [1, -2]},
            ]
        if random.random() < 0.3:
            random.shuffle(fields)
        return {**schema, "fields": fields}


def _kind(schema: Schema) -> str:
    if isinstance(schema, list):
        return "union"
    kind: str = schema["type"] if isinstance(schema, dict) else schema
    return kind


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    done = bytearray()
    while rest >= 0x80:
        done.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*done, rest])
