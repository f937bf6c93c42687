"""Whether values of one JSON Schema are valid under another, by the rules that Confluent's registry documents.

The question is about every value that the writer's schema allows, so the check is careful: a change that it does not
know as harmless is a problem. Objects have an open content model unless `additionalProperties` is false, a closed one
if it is, and a partially open one if it is a schema. Local references (`#/definitions/a`, `#/$defs/a`) are followed,
and those to other schemas by the names of the references.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from duralog.errors import MissingExtra, SchemaError
from duralog.schemas.compatibility.work import MAX_PROBLEMS, Work

_MAX_DEPTH = 100
_STEPS_OF_PATTERN = 20
"""What an expression costs, besides its length: it may have to be compiled again."""

_UPPER_BOUNDS = ("maxLength", "maximum", "exclusiveMaximum", "maxProperties", "maxItems")
_LOWER_BOUNDS = ("minLength", "minimum", "exclusiveMinimum", "minProperties", "minItems")
_WORDS_OF_SUBSCHEMAS = ("allOf", "anyOf", "oneOf")


class JsonSchema:
    """A parsed schema with the documents that it refers to."""

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        self.root = _parsed(text, "the schema")
        self._documents = {name: _parsed(other, name) for name, other in (references or {}).items()}

    def resolved(self, node: Any) -> Any:
        """What a reference stands for, through chains of them."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                return node
            node = self._target(node["$ref"])
        raise SchemaError("its references form a cycle")

    def _target(self, reference: str) -> Any:
        name, _, pointer = reference.partition("#")
        found = self._documents.get(name) if name else self.root
        if found is None:
            raise SchemaError(f"it refers to {name!r}, which is not among its references")
        for step in filter(None, pointer.split("/")):
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, ValueError, IndexError, TypeError):
                raise SchemaError(f"it refers to {reference!r}, which it does not have") from None
        return found


def json_schema_problems(reader: JsonSchema, writer: JsonSchema, work: Work) -> list[str]:
    """Why the reader's schema refuses values that the writer's allows. Empty if it allows all of them."""
    check = _Check(reader, writer, work)
    check.compare(reader.root, writer.root, "#")
    return check.problems[:MAX_PROBLEMS]


class _Check:
    def __init__(self, reader: JsonSchema, writer: JsonSchema, work: Work) -> None:
        self.problems: list[str] = []
        self._reader = reader
        self._writer = writer
        self._work = work
        self._seen: set[tuple[int, int]] = set()
        self._made: list[Any] = []
        """Nodes that are in no document: kept, as `_seen` and `_texts` have the ids of nodes."""
        self._texts: dict[int, dict[str, None]] = {}
        """Of the values of an enum, by its node, as it may be compared with many."""
        self._open: set[tuple[int, int]] = set()
        """Pairs that are being compared, by this check or those that it is a part of. A recursive type ends there."""
        self._depth = 0

    def compare(self, reader: Any, writer: Any, path: str) -> None:
        reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
        for node in (reader, writer):
            if not isinstance(node, dict | bool):
                raise SchemaError(f"{path[:200]}: expected a schema, found {json.dumps(node)[:60]}")
        pair = (id(reader), id(writer))
        if pair in self._seen or pair in self._open or len(self.problems) >= MAX_PROBLEMS:
            return
        if self._are_same(reader, writer, set()):
            return
        if self._depth >= _MAX_DEPTH:
            raise SchemaError(f"it is nested deeper than {_MAX_DEPTH}: {path[:200]}")
        self._seen.add(pair)
        self._open.add(pair)
        self._depth += 1
        try:
            self._compare(reader, writer, path)
        finally:
            self._open.discard(pair)
            self._depth -= 1

    def _are_same(self, reader: Any, writer: Any, assumed: set[tuple[int, int]]) -> bool:
        """Whether two nodes are equal, with all that they refer to. `assumed` are pairs that are being compared."""
        self._work.add()
        if isinstance(reader, dict) and isinstance(writer, dict):
            if "$ref" in reader and "$ref" in writer:
                reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
                pair = (id(reader), id(writer))
                if pair in assumed:
                    return True
                assumed.add(pair)
                return self._are_same(reader, writer, assumed)
            return reader.keys() == writer.keys() and all(
                self._are_same(each, writer[name], assumed) for name, each in reader.items()
            )
        if isinstance(reader, list) and isinstance(writer, list):
            return len(reader) == len(writer) and all(
                self._are_same(one, other, assumed) for one, other in zip(reader, writer, strict=True)
            )
        return bool(reader == writer) and isinstance(reader, bool) == isinstance(writer, bool)

    def _compare(self, reader: Any, writer: Any, path: str) -> None:
        if _allows_all(reader) or writer is False:
            return
        if reader is False:
            self._refuse(path, "allows no value any more")
            return
        writer = {} if writer is True else writer
        self._work.add(_breadth(reader) + _breadth(writer))
        if any(word in reader or word in writer for word in _WORDS_OF_SUBSCHEMAS):
            self._combined(reader, writer, path)
            return
        for word in ("not", "if", "then", "else", "pattern", "format", "multipleOf", "uniqueItems", "propertyNames"):
            if word not in reader or reader[word] is False:
                continue
            if word not in writer or not self._are_same(reader[word], writer[word], set()):
                self._refuse(path, f"{word} was {'changed' if word in writer else 'added'}")
        self._types(reader, writer, path)
        self._values(reader, writer, path)
        self._bounds(reader, writer, path)
        if "object" in _types(writer):
            self._objects(reader, writer, path)
        if "array" in _types(writer):
            self._arrays(reader, writer, path)

    def _types(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        missing = _types(writer) - _types(reader)
        if "integer" in missing and "number" in _types(reader):
            missing -= {"integer"}
        if missing:
            self._refuse(path, f"the type was narrowed: no {', '.join(sorted(missing))}")

    def _values(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        allowed = _enumerated(reader)
        if allowed is None:
            return
        written = _enumerated(writer)
        if written is None:
            self._refuse(path, "an enum was added")
            return
        known = self._texts_of(reader, allowed)
        lost = [text for text in self._texts_of(writer, written) if text not in known]
        if lost:
            self._refuse(path, f"the enum was narrowed: no {', '.join(text[:40] for text in lost[:5])}")

    def _texts_of(self, node: dict[str, Any], values: list[Any]) -> dict[str, None]:
        """Values that are equal have one text: 1.0 is 1, but true is not."""
        if id(node) not in self._texts:
            whole = (int(one) if isinstance(one, float) and one.is_integer() else one for one in values)
            self._texts[id(node)] = dict.fromkeys(json.dumps(one, sort_keys=True) for one in whole)
        return self._texts[id(node)]

    def _bounds(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        for words, is_narrower in ((_UPPER_BOUNDS, _is_less), (_LOWER_BOUNDS, _is_more)):
            for word in words:
                if word not in reader:
                    continue
                if word not in writer:
                    if not _is_lowest(word, reader[word]):
                        self._refuse(path, f"{word} was added")
                elif is_narrower(reader[word], writer[word]):
                    self._refuse(path, f"{word} was narrowed from {writer[word]} to {reader[word]}")

    def _objects(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        reader_properties, writer_properties = _object(reader, "properties"), _object(writer, "properties")
        for name in _names(reader) - _names(writer):
            if "default" not in _object({"": self._reader.resolved(reader_properties.get(name))}, ""):
                self._refuse(f"{path}/properties/{name}", "the property became required, and has no default")
        for name, written in writer_properties.items():
            below = f"{path}/properties/{name}"
            if name in reader_properties:
                self.compare(reader_properties[name], written, below)
            elif not _allows_nothing(written):
                self._removed(reader, name, written, below)
        for name, read in reader_properties.items():
            if name not in writer_properties and not _allows_all(self._reader.resolved(read)):
                self._added(writer, name, read, f"{path}/properties/{name}")
        if _more(writer) is not False:
            self.compare(_more(reader), _more(writer), f"{path}/additionalProperties")
        for name, needed in _object(reader, "dependentRequired").items():
            if _object(writer, "dependentRequired").get(name) != needed:
                self._refuse(f"{path}/dependentRequired/{name}", "a dependency was added or changed")

    def _removed(self, reader: dict[str, Any], name: str, written: Any, path: str) -> None:
        """The reader sees a property that its schema does not name."""
        rest = self._reader.resolved(self._rest_for(reader, name))
        if rest is False:
            self._refuse(path, "the property was removed from a closed content model")
        elif not _allows_all(rest):
            self.compare(rest, written, path)

    def _added(self, writer: dict[str, Any], name: str, read: Any, path: str) -> None:
        """The writer may have used the name for something else, if its schema let it."""
        rest = self._writer.resolved(self._rest_for(writer, name))
        if rest is False:
            return
        if _allows_all(rest):
            self._refuse(path, "the property was added to an open content model")
        else:
            self.compare(read, rest, path)

    def _rest_for(self, node: dict[str, Any], name: str) -> Any:
        """The schema of a property that `properties` does not name."""
        patterns = _object(node, "patternProperties")
        self._work.add(sum(_STEPS_OF_PATTERN + len(pattern) for pattern in patterns))
        return _rest_for(node, patterns, name)

    def _arrays(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        places, rest = _items(reader)
        written_places, written_rest = _items(writer)
        for number in range(max(len(places), len(written_places))):
            read = places[number] if number < len(places) else rest
            written = written_places[number] if number < len(written_places) else written_rest
            if written is not False:
                self.compare(read, written, f"{path}/items/{number}")
        if written_rest is not False:
            self.compare(rest, written_rest, f"{path}/items")

    def _combined(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        """Each of the writer's choices must be allowed by one of the reader's; all of an `allOf` of the reader must."""
        for number, part in enumerate(_parts(reader)):
            self.compare(part, writer, f"{path}/allOf/{number}")
        choices = _choices(reader)
        written = _choices(writer)
        if choices is None and written is None:
            rest, written_rest = _without_parts(reader), _without_parts(writer)
            self._made += (rest, written_rest)
            if all(self._problems_of(rest, self._writer.resolved(part)) for part in _parts(writer)):
                self.compare(rest, written_rest, path)
            return
        for number, one in enumerate(written if written is not None else [writer]):
            candidates = choices if choices is not None else [reader]
            if not any(not self._problems_of(candidate, one) for candidate in candidates):
                self._refuse(f"{path}/{number}", "no choice of the reader allows this one of the writer")

    def _problems_of(self, reader: Any, writer: Any) -> list[str]:
        apart = _Check(self._reader, self._writer, self._work)
        apart._depth = self._depth + 1
        apart._open = self._open
        apart._texts = self._texts
        apart._made = self._made
        apart.compare(reader, writer, "#")
        return apart.problems

    def _refuse(self, path: str, why: str) -> None:
        self.problems.append(f"{path[:200]}: {why}")


def _parsed(text: str, name: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict | bool):
        raise SchemaError(f"{name} is not a JSON Schema: expected an object or true or false")
    return found


_NOTES = frozenset({"title", "description", "default", "$id", "$schema", "examples", "$comment"})


def _allows_all(node: Any) -> bool:
    return node is True or (isinstance(node, dict) and node.keys() <= _NOTES)


def _breadth(node: dict[str, Any]) -> int:
    """How much there is to compare in a node itself: its properties, the values of its enum."""
    return sum(len(value) for value in node.values() if isinstance(value, dict | list))


def _allows_nothing(node: Any) -> bool:
    return node is False


_ALL_TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})


def _types(node: dict[str, Any]) -> set[str]:
    found = node.get("type")
    if isinstance(found, str):
        found = [found]
    if isinstance(found, list):
        return {str(each) for each in found} | ({"integer"} if "number" in found else set())
    values = _enumerated(node)
    return set(_ALL_TYPES) if values is None else {_type_of(value) for value in values}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _enumerated(node: dict[str, Any]) -> list[Any] | None:
    if "const" in node:
        return [node["const"]]
    found = node.get("enum")
    return found if isinstance(found, list) else None


def _is_less(one: Any, other: Any) -> bool:
    return _is_number(one) and _is_number(other) and one < other


def _is_more(one: Any, other: Any) -> bool:
    return _is_number(one) and _is_number(other) and one > other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_lowest(word: str, value: Any) -> bool:
    """Whether it is a bound that every value keeps."""
    return word in ("minLength", "minProperties", "minItems") and _is_number(value) and value <= 0


def _object(node: dict[str, Any], word: str) -> dict[str, Any]:
    found = node.get(word)
    return found if isinstance(found, dict) else {}


def _names(node: dict[str, Any]) -> set[str]:
    found = node.get("required")
    return {str(each) for each in found} if isinstance(found, list) else set()


def _more(node: dict[str, Any]) -> Any:
    return node.get("additionalProperties", True)


def _rest_for(node: dict[str, Any], patterns: dict[str, Any], name: str) -> Any:
    return next((schema for pattern, schema in patterns.items() if _matches(pattern, name)), _more(node))


def _matches(pattern: str, name: str) -> bool:
    """In linear time: schemas come from clients."""
    try:
        import re2
    except ModuleNotFoundError:
        raise MissingExtra("to compare patternProperties", "google-re2", extra="broker") from None

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.search(pattern, name, options) is not None
    except (re2.error, UnicodeEncodeError):
        raise SchemaError(f"patternProperties has an expression that cannot be used: {pattern[:100]!r}") from None


def _items(node: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first places, and of all places after them."""
    if isinstance(node.get("prefixItems"), list):
        return node["prefixItems"], node.get("items", True)
    if isinstance(node.get("items"), list):
        return node["items"], node.get("additionalItems", True)
    return [], node.get("items", True)


def _parts(node: dict[str, Any]) -> list[Any]:
    found = node.get("allOf")
    return found if isinstance(found, list) else []


def _without_parts(node: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "allOf"}


def _choices(node: dict[str, Any]) -> list[Any] | None:
    for word in ("oneOf", "anyOf"):
        if isinstance(node.get(word), list):
            return list(node[word])
    return None
