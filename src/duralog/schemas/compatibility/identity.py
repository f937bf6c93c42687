"""Which texts are the same schema, so that a registry has one id for them.

Java's client sends the schema that it parsed, Python's the text of the file: both must be found by the other's. What
does not count is white space; in Avro also the order of attributes, how names are qualified, and a type that is written
as an object without need (`{"type": "int"}`); in Protobuf also comments.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from duralog.schemas.avro.schema import PRIMITIVES
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType

_MOST_KEPT = 64
"""Digests. Each keeps its text in memory."""
_LARGEST_KEPT = 64 << 10

_MOST_CHARACTERS_OF_NAMES = 32 << 20
"""Of one schema, in full: every name has the namespace around it."""

# Each alternative matches to the end if what it begins is never closed, and gives nothing back: the expressions pass
# over a text once, whatever a client sends. And none takes long for one match, in which no other thread would run.
_PROTOBUF_TOKEN = re.compile(r"""(?s)//[^\n]*+|/\*.*?(?:\*/|(\Z))|\s++|(["']|[\w.]++|.)""")
_IN_STRING = {quote: re.compile(rf"(?s)(?:[^{quote}\\\n]++|\\.){{1,1000}}+") for quote in "\"'"}


def same_schema(one: RegisteredSchema, other: RegisteredSchema, *, normalize: bool = False) -> bool:
    """Whether they are equal. `normalize`: the order of a JSON Schema's keywords does not count either."""
    if (one.type, one.references) != (other.type, other.references):
        return False
    return one.text == other.text or digest_of(one, normalize) == digest_of(other, normalize)


def digest_of(schema: RegisteredSchema, normalize: bool) -> bytes:
    """Equal for texts that are the same schema."""
    is_small = len(schema.text) <= _LARGEST_KEPT
    return (_kept if is_small else _digest)(schema.type, schema.text, normalize)


def _digest(type_: SchemaType, text: str, normalize: bool) -> bytes:
    digest = hashlib.sha256()
    for part in _plain_parts(type_, text, normalize):
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.digest()


_kept = lru_cache(_MOST_KEPT)(_digest)


def _plain_parts(type_: SchemaType, text: str, normalize: bool) -> Iterator[str]:
    if type_ is SchemaType.PROTOBUF:
        yield from _protobuf_tokens(text)
    else:
        yield _plain_json(type_, text, normalize)


def _protobuf_tokens(text: str) -> Iterator[str]:
    """Each with a blank after it, but for the parts of a string. What is not closed is in no other schema."""
    place = 0
    while token := _PROTOBUF_TOKEN.match(text, place):
        place = token.end()
        found = token[0] if token[1] is not None else token[2]
        if found in _IN_STRING:
            yield found
            while part := _IN_STRING[found].match(text, place):
                place = part.end()
                yield part[0]
            is_closed = text.startswith(found, place)
            place += is_closed
            yield f"{found} " if is_closed else " "
        elif found:
            yield f"{found} "


def _plain_json(type_: SchemaType, text: str, normalize: bool) -> str:
    try:
        found = json.loads(text)
        if type_ is SchemaType.AVRO:
            found, normalize = _Names().type(found, ""), True
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False, sort_keys=normalize)
    except (ValueError, RecursionError):
        # A name alone is an Avro schema, too. And what is no schema at all must not keep others from being found.
        return json.dumps(text.strip()) if type_ is SchemaType.AVRO else text.strip()


class _Names:
    """Avro with all names in full. The text need not be a valid schema: what is none stays as it is."""

    def __init__(self) -> None:
        self._defined: set[str] = set()
        self._left = _MOST_CHARACTERS_OF_NAMES

    def type(self, node: Any, space: str) -> Any:
        if isinstance(node, str):
            return node if node in PRIMITIVES else self._known(node, space)
        if isinstance(node, list):
            return [self.type(each, space) for each in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self.type(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(node, space)
        if kind == "array" and "items" in node:
            return {**node, "items": self.type(node["items"], space)}
        if kind == "map" and "values" in node:
            return {**node, "values": self.type(node["values"], space)}
        if isinstance(kind, str) and (kind not in PRIMITIVES or len(node) == 1):
            return self.type(kind, space)
        return node

    def _known(self, name: str, space: str) -> str:
        full = self._full(name, space)
        return name if full not in self._defined and name in self._defined else full

    def _named(self, node: Mapping[str, Any], space: str) -> Any:
        name = self._full(str(node.get("name")), str(node.get("namespace", space)))
        space = name.rpartition(".")[0]
        self._defined.add(name)
        found = {key: value for key, value in node.items() if key not in ("namespace", "aliases")}
        found["name"] = name
        if isinstance(aliases := node.get("aliases"), list) and aliases:
            found["aliases"] = sorted(self._full(str(each), space) for each in aliases)
        if isinstance(fields := node.get("fields"), list):
            found["fields"] = [self._field(each, space) for each in fields]
        return found

    def _field(self, node: Any, space: str) -> Any:
        if not isinstance(node, dict):
            return node
        usual = {"order": "ascending", "aliases": []}
        found = {key: value for key, value in node.items() if value != usual.get(key, NotImplemented)}
        return {**found, "type": self.type(node.get("type"), space)}

    def _full(self, name: str, space: str) -> str:
        self._left -= len(space) + len(name)
        if self._left < 0:
            raise ValueError("the names are too long")
        return name if "." in name or not space else f"{space}.{name}"
