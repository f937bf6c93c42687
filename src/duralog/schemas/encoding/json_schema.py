"""JSON values by a JSON Schema: whether a value is valid, and what is wrong with it.

The keywords of drafts 4 to 2020-12 that say what a value may be are checked, without remote references, `format`,
`unevaluated*` and `$dynamicRef`: these are ignored. Numbers are compared as JSON has them: 1.0 is an integer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from duralog.errors import InvalidRecord, SchemaError
from duralog.schemas.compatibility.json_schema import JsonSchema
from duralog.schemas.exact_numbers import Exact

_MAX_DEPTH = 100
_MAX_DIGITS = 5_000
_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "string": (str,),
}
_LIMITS: tuple[tuple[str, type, Callable[[Any, Any], bool]], ...] = (
    ("minLength", str, lambda value, limit: len(value) >= limit),
    ("maxLength", str, lambda value, limit: len(value) <= limit),
    ("minItems", list, lambda value, limit: len(value) >= limit),
    ("maxItems", list, lambda value, limit: len(value) <= limit),
    ("minProperties", dict, lambda value, limit: len(value) >= limit),
    ("maxProperties", dict, lambda value, limit: len(value) <= limit),
)


def check_json(schema: JsonSchema, value: Any) -> None:
    """Raises `InvalidRecord`, which names the field, what is expected and what was found."""
    problem = next(_problems(schema, schema.root, value, "", 0), None)
    if problem is not None:
        raise InvalidRecord(problem)


def _problems(schema: JsonSchema, node: Any, value: Any, path: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise SchemaError(f"{_place(path)}the JSON Schema refers to itself without end, or is nested too deeply")
    node = schema.resolved(node)
    if node is True or node == {}:
        return
    if not isinstance(node, dict):
        yield f"{_place(path)}nothing is allowed there, found {_shown(value)}"
        return
    yield from _own(node, value, path)
    yield from _combined(schema, node, value, path, depth)
    if isinstance(value, dict):
        yield from _fields(schema, node, value, path, depth)
    if isinstance(value, list):
        yield from _items(schema, node, value, path, depth)


def _own(node: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    """What the keywords say of the value itself."""
    wanted = node.get("type")
    names = wanted if isinstance(wanted, list) else [] if wanted is None else [wanted]
    if names and not any(_is_of(value, name) for name in names):
        yield f"{_place(path)}expected {' or '.join(map(str, names))}, found {_shown(value)}"
        return
    if "enum" in node and not any(_same(value, each) for each in _list(node, "enum")):
        yield f"{_place(path)}expected one of {_shown(node['enum'])}, found {_shown(value)}"
    if "const" in node and not _same(value, node["const"]):
        yield f"{_place(path)}expected {_shown(node['const'])}, found {_shown(value)}"
    for word, type_, holds in _LIMITS:
        if isinstance(value, type_) and _is_number(node.get(word)) and not holds(value, node[word]):
            yield f"{_place(path)}expected {word} {node[word]}, found {_shown(value)}"
    if isinstance(value, str) and isinstance(node.get("pattern"), str) and not _found(node["pattern"], value):
        yield f"{_place(path)}expected text of the pattern {node['pattern']!r}, found {_shown(value)}"
    if _is_number(value):
        yield from _bounds(node, value, path)
    if isinstance(value, list) and node.get("uniqueItems") is True:
        texts = [json.dumps(each, sort_keys=True) for each in value]
        if len(set(texts)) < len(texts):
            yield f"{_place(path)}expected items that are all different, found {_shown(value)}"


def _bounds(node: dict[str, Any], value: float, path: str) -> Iterator[str]:
    lowest: Any = node.get("minimum")
    highest: Any = node.get("maximum")
    above: Any = node.get("exclusiveMinimum")
    below: Any = node.get("exclusiveMaximum")
    # In draft 4, they say whether the others are exclusive.
    if above is True:
        above, lowest = lowest, None
    if below is True:
        below, highest = highest, None
    if _is_number(lowest) and value < lowest:
        yield f"{_place(path)}expected {lowest} or more, found {_shown(value)}"
    if _is_number(highest) and value > highest:
        yield f"{_place(path)}expected {highest} or less, found {_shown(value)}"
    if _is_number(above) and value <= above:
        yield f"{_place(path)}expected more than {above}, found {_shown(value)}"
    if _is_number(below) and value >= below:
        yield f"{_place(path)}expected less than {below}, found {_shown(value)}"
    step: Any = node.get("multipleOf")
    if _is_number(step) and step and not _is_multiple(value, step):
        yield f"{_place(path)}expected a multiple of {step}, found {_shown(value)}"


def _combined(schema: JsonSchema, node: dict[str, Any], value: Any, path: str, depth: int) -> Iterator[str]:
    for inner in _list(node, "allOf"):
        yield from _problems(schema, inner, value, path, depth + 1)

    def fits(inner: Any) -> bool:
        return next(_problems(schema, inner, value, path, depth + 1), None) is None

    if "anyOf" in node and not any(map(fits, _list(node, "anyOf"))):
        yield f"{_place(path)}expected one of {len(node['anyOf'])} alternatives, found {_shown(value)}"
    if "oneOf" in node and sum(map(fits, _list(node, "oneOf"))) != 1:
        yield f"{_place(path)}expected exactly one of {len(node['oneOf'])} alternatives, found {_shown(value)}"
    if "not" in node and fits(node["not"]):
        yield f"{_place(path)}{_shown(value)} is ruled out by the schema"
    if "if" in node:
        chosen = node.get("then" if fits(node["if"]) else "else")
        if chosen is not None:
            yield from _problems(schema, chosen, value, path, depth + 1)


def _fields(schema: JsonSchema, node: dict[str, Any], value: dict[str, Any], path: str, depth: int) -> Iterator[str]:
    required = node.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            yield f"{_place(_inner(path, name))}it is missing, and required"
    own, patterns = _named(node, "properties"), _named(node, "patternProperties")
    more = node.get("additionalProperties", True)
    for name, each in value.items():
        inner = _inner(path, name)
        matched = [found for pattern, found in patterns.items() if _found(pattern, name)]
        if name in own:
            yield from _problems(schema, own[name], each, inner, depth + 1)
        for found in matched:
            yield from _problems(schema, found, each, inner, depth + 1)
        if name not in own and not matched:
            if more is False:
                yield f"{_place(path)}there is no field {name!r}; there are {', '.join(sorted(own)[:20])}"
            elif more is not True:
                yield from _problems(schema, more, each, inner, depth + 1)


def _items(schema: JsonSchema, node: dict[str, Any], value: list[Any], path: str, depth: int) -> Iterator[str]:
    first, rest = node.get("prefixItems"), node.get("items", True)
    if isinstance(rest, list):
        # Before 2020-12, a list of schemas was the beginning.
        first, rest = rest, node.get("additionalItems", True)
    beginning = first if isinstance(first, list) else []
    for at, each in enumerate(value):
        yield from _problems(schema, beginning[at] if at < len(beginning) else rest, each, f"{path}[{at}]", depth + 1)


def _list(node: dict[str, Any], word: str) -> list[Any]:
    found = node.get(word, [])
    if not isinstance(found, list):
        raise SchemaError(f"the JSON Schema's {word} is not a list: {_shown(found)}")
    return found


def _named(node: dict[str, Any], word: str) -> dict[str, Any]:
    found = node.get(word) or {}
    if not isinstance(found, dict):
        raise SchemaError(f"the JSON Schema's {word} is not an object: {_shown(found)}")
    return found


def _is_multiple(value: float, step: float) -> bool:
    """By the digits of both: 19.99 is a multiple of 0.01, which doubles are not."""
    numbers = [Decimal(each.text if isinstance(each, Exact) else repr(each)) for each in (value, step)]
    # Others would take memory.
    if not all(each.is_finite() and abs(each.adjusted()) <= _MAX_DIGITS for each in numbers):
        return False
    one, other = map(Fraction, numbers)
    return (one / other).denominator == 1


def _is_of(value: Any, name: Any) -> bool:
    if name in ("number", "integer"):
        return _is_number(value) and (name == "number" or value % 1 == 0)
    return isinstance(name, str) and isinstance(value, _TYPES.get(name, ()))


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _found(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError, RecursionError):
        return True  # Of another dialect.


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _inner(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _place(path: str) -> str:
    return f"field {path}: " if path else ""


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
