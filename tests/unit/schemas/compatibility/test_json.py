"""JSON Schemas compared by the documented rules, and for random schemas and values: what is called readable is."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from duralog.errors import MissingExtra, SchemaError
from duralog.schemas.compatibility.json_schema import JsonSchema, json_schema_problems
from duralog.schemas.compatibility.work import Work


def problems(reader: Any, writer: Any) -> list[str]:
    return json_schema_problems(JsonSchema(json.dumps(reader)), JsonSchema(json.dumps(writer)), Work())


def of(properties: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **more}


INT, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("reader", "writer", "is_readable"),
    [
        (True, INT, True),
        (INT, True, False),
        (False, INT, False),
        ({"type": "number"}, INT, True),
        (INT, {"type": "number"}, False),
        ({"type": ["integer", "null"]}, INT, True),
        (INT, {"type": ["integer", "null"]}, False),
        ({"enum": [1, 2, 3]}, {"enum": [1, 2]}, True),
        ({"enum": [1]}, {"enum": [1, 2]}, False),
        ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 5}, True),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 9}, False),
        ({"type": "string", "maxLength": 5}, TEXT, False),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}, False),
        (TEXT, {"type": "string", "pattern": "a"}, True),
        ({"type": "string", "pattern": "a"}, TEXT, False),
        # Open content models: a new property could have been written with another type.
        (of({"a": INT, "b": TEXT}), of({"a": INT}), False),
        (of({"a": INT, "b": True}), of({"a": INT}), True),
        (of({"a": INT}), of({"a": INT, "b": TEXT}), True),
        # Closed ones.
        (of({"a": INT, "b": TEXT}), of({"a": INT}, additionalProperties=False), True),
        (of({"a": INT}, additionalProperties=False), of({"a": INT, "b": TEXT}, additionalProperties=False), False),
        (of({"a": INT}, additionalProperties=TEXT), of({"a": INT, "b": TEXT}, additionalProperties=False), True),
        (of({"a": INT}, additionalProperties=INT), of({"a": INT, "b": TEXT}, additionalProperties=False), False),
        (of({"a": INT}, required=["a"]), of({"a": INT}), False),
        (of({"a": {"type": "integer", "default": 0}}, required=["a"]), of({"a": INT}), True),
        (of({"a": INT}), of({"a": INT}, required=["a"]), True),
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": INT}, True),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": INT}, False),
        ({"oneOf": [INT, TEXT]}, INT, True),
        (INT, {"oneOf": [INT, TEXT]}, False),
        ({"oneOf": [INT, TEXT]}, {"anyOf": [TEXT, INT]}, True),
        ({"allOf": [INT, {"minimum": 0}]}, INT, False),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "number"}}},
            {"$ref": "#/$defs/b", "$defs": {"b": INT}},
            True,
        ),
    ],
)
def test_documented_rules(reader: Any, writer: Any, is_readable: bool) -> None:
    assert (problems(reader, writer) == []) is is_readable, problems(reader, writer)


def test_recursion_ends() -> None:
    tree: dict[str, Any] = {"type": "object", "properties": {"below": {"$ref": "#"}}, "additionalProperties": False}
    larger = {**tree, "properties": {**tree["properties"], "name": TEXT}}
    assert problems(larger, tree) == []
    assert problems(tree, larger) != []


@pytest.mark.parametrize("text", ["{", "7", '"a"', "[" * 100_000, '{"$ref": "#/a"}', '{"$ref": "other.json"}'])
def test_bad_schemas_are_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        json_schema_problems(JsonSchema(text), JsonSchema('{"type": "integer"}'), Work())


def test_cycles_of_references_are_refused() -> None:
    text = '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}'
    with pytest.raises(SchemaError, match="cycle"):
        json_schema_problems(JsonSchema(text), JsonSchema("{}"), Work())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "bb"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=5,
)
PLAIN = st.one_of(
    st.just(True),
    st.just(False),
    st.builds(
        lambda names: {"type": names},
        st.lists(
            st.sampled_from(["null", "boolean", "integer", "number", "string"]), min_size=1, max_size=3, unique=True
        ),
    ),
    st.builds(
        lambda low, high: {"type": "integer", "minimum": low, "maximum": high}, st.integers(-3, 3), st.integers(-3, 3)
    ),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.sampled_from([1, 2, "a", None]), min_size=1, max_size=3, unique=True),
    ),
    st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(0, 2)),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.builds(
        lambda properties, more, required: {
            "type": "object",
            "properties": properties,
            "additionalProperties": more,
            "required": required,
        },
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        inner,
        st.lists(st.sampled_from("abc"), max_size=2, unique=True),
    )
    parts = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        objects,
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda some: {"anyOf": some}, parts),
        st.builds(lambda some: {"allOf": some}, parts),
    )


# Named, not a lambda: Hypothesis looks into its source, and does not always find that of a lambda of many lines.
SCHEMAS = st.recursive(PLAIN, larger, max_leaves=6)


@given(reader=SCHEMAS, writer=SCHEMAS, values=st.lists(VALUES, min_size=8, max_size=8))
def test_what_is_called_readable_is(reader: Any, writer: Any, values: list[Any]) -> None:
    assume(problems(reader, writer) == [])
    write, read = jsonschema.Draft202012Validator(writer), jsonschema.Draft202012Validator(reader)
    for value in values:
        if write.is_valid(value):
            assert read.is_valid(value), (value, reader, writer)


@given(schema=SCHEMAS)
def test_a_schema_reads_itself(schema: Any) -> None:
    assert problems(schema, json.loads(json.dumps(schema))) == []


def test_the_target_of_a_reference_counts() -> None:
    """Both schemas have the same text at `a`, but not the same type."""

    def order(zip_code: Any) -> dict[str, Any]:
        address = of({"zip": zip_code})
        return {"$ref": "#/$defs/O", "$defs": {"O": of({"a": {"$ref": "#/$defs/A"}}), "A": address}}

    assert problems(order(INT), order(TEXT))
    assert not problems(order(INT), order(INT))
    assert problems(
        {"not": {"$ref": "#/$defs/A"}, "$defs": {"A": INT}}, {"not": {"$ref": "#/$defs/A"}, "$defs": {"A": TEXT}}
    )


def test_recursive_choices_end() -> None:
    def tree(leaf: Any) -> dict[str, Any]:
        return of({"next": {"oneOf": [{"type": "null"}, {"$ref": "#"}]}, "leaf": leaf}, additionalProperties=False)

    assert problems(tree({"type": "number"}), tree(INT)) == []
    assert problems(tree(INT), tree({"type": "number"}))


@pytest.mark.parametrize(
    "bad", [{"items": 5}, {"properties": {"a": 5}}, {"allOf": [5]}, {"anyOf": [None]}, {"prefixItems": ["x"]}]
)
def test_what_is_not_a_schema_is_refused(bad: Any) -> None:
    for other in ({"items": TEXT}, of({"a": TEXT}), {"anyOf": [TEXT]}, {"type": "array", "prefixItems": [TEXT]}):
        for one, two in ((bad, other), (other, bad)):
            with contextlib.suppress(SchemaError):
                problems(one, two)


def test_only_patterns_need_the_extra_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console compares schemas, too, and is installed without it."""
    monkeypatch.setitem(sys.modules, "re2", None)
    assert problems(of({"a": TEXT}, additionalProperties=False), of({"a": TEXT, "b": TEXT}))
    with pytest.raises(MissingExtra, match="google-re2"):
        problems(of({}, patternProperties={"a": TEXT}), of({"b": TEXT}))


def test_large_values_of_an_enum_are_read_once() -> None:
    """Each with each would be billions of comparisons."""
    values = [[1] * 100 + [number] for number in range(10_000)]
    assert problems({"enum": values}, {"enum": values[::-1]}) == []
    assert problems({"enum": values[1:]}, {"enum": values[::-1]})


@pytest.mark.parametrize(
    ("reader", "writer", "is_readable"), [(1, 1.0, True), (1, True, False), (0, False, False), ("1", 1, False)]
)
def test_equal_values_of_an_enum(reader: Any, writer: Any, is_readable: bool) -> None:
    assert (problems({"enum": [reader]}, {"enum": [writer]}) == []) is is_readable


def test_comparisons_are_bounded() -> None:
    many = {"enum": [str(number) for number in range(20_000)]}
    assert len(problems({"enum": ["a"]}, many)) == 1
    # What is compared often counts each time.
    often = {"$defs": {"many": many}, **of({f"p{number}": {"$ref": "#/$defs/many"} for number in range(50)})}
    with pytest.raises(SchemaError, match="steps to compare"):
        problems(often, of({f"p{number}": {"enum": [str(number)]} for number in range(50)}))
    patterns = {f"a{number}": TEXT for number in range(300)}
    with pytest.raises(SchemaError, match="steps to compare"):
        problems({"patternProperties": patterns}, of({f"b{number}": TEXT for number in range(300)}))
