"""Conditions: read from text, and applied to columns as a plain evaluator applies them to record after record."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any as Anything
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duralog.columnar.schema import RECORD_SCHEMA
from duralog.filters.conditions import EVERY, All, Any, Condition, Field, FilterError, Json, Not, Operator, Text
from duralog.filters.json_paths import LARGEST_BYTES
from duralog.filters.matching import Matcher
from duralog.filters.parsing import LONGEST, parse

Row = dict[str, Anything]

CUSTOMER = Json(field=Field.VALUE, path=("customer", "id"), operator=Operator.EQUALS, operand=7)
ORDER = {Operator.LESS, Operator.AT_MOST, Operator.MORE, Operator.AT_LEAST}


def batch(rows: list[Row]) -> pa.RecordBatch:
    filled = [{"topic": "t", "partition": 0, "offset": number, **row} for number, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(filled, schema=RECORD_SCHEMA)


def matches(expression: str, *values: bytes | None) -> list[bool]:
    rows = Matcher(parse(expression)).rows(batch([{"value": value, "headers": []} for value in values]))
    return [number in rows for number in range(len(values))]


# The language


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("$.customer.id = 7", CUSTOMER),
        ("value $.customer.id == 7", CUSTOMER),
        ("$['customer'][\"id\"]=7", CUSTOMER),
        ("key = user-17", Text(field=Field.KEY, operator=Operator.EQUALS, operand=b"user-17")),
        ("key = 0x00Ff", Text(field=Field.KEY, operator=Operator.EQUALS, operand=b"\0\xff")),
        ('key = "0x00"', Text(field=Field.KEY, operator=Operator.EQUALS, operand=b"0x00")),
        ("value = null", Text(field=Field.VALUE, operator=Operator.EQUALS)),
        ("value = 'null'", Text(field=Field.VALUE, operator=Operator.EQUALS, operand=b"null")),
        ("key = 7", Text(field=Field.KEY, operator=Operator.EQUALS, operand=b"7")),
        (
            'value contains "a \\"b\\"" ignoring case',
            Text(field=Field.VALUE, operator=Operator.CONTAINS, operand=b'a "b"', ignores_case=True),
        ),
        (r"value matches 'id-\d+'", Text(field=Field.VALUE, operator=Operator.MATCHES, operand=rb"id-\d+")),
        ("header trace exists", Text(field=Field.HEADER, header="trace", operator=Operator.EXISTS)),
        ("header contains x", Text(field=Field.HEADER, operator=Operator.CONTAINS, operand=b"x")),
        ("header 'contains' = x", Text(field=Field.HEADER, header="contains", operator=Operator.EQUALS, operand=b"x")),
        ("lost", Text(field=Field.ANYWHERE, operator=Operator.CONTAINS, operand=b"lost")),
        (
            "'lost order' ignoring case",
            Text(field=Field.ANYWHERE, operator=Operator.CONTAINS, operand=b"lost order", ignores_case=True),
        ),
        (
            "$.items[0].tags[*] != null",
            Json(field=Field.VALUE, path=("items", 0, "tags", EVERY), operator=Operator.DIFFERS),
        ),
        ("$.amount > 10.5", Json(field=Field.VALUE, path=("amount",), operator=Operator.MORE, operand=Decimal("10.5"))),
        (
            "$.amount <= -1e3",
            Json(field=Field.VALUE, path=("amount",), operator=Operator.AT_MOST, operand=Decimal(-1000)),
        ),
        ("$ = true", Json(field=Field.VALUE, path=(), operator=Operator.EQUALS, operand=True)),
        ("$.a = 'true'", Json(field=Field.VALUE, path=("a",), operator=Operator.EQUALS, operand="true")),
        ("$.name = ada", Json(field=Field.VALUE, path=("name",), operator=Operator.EQUALS, operand="ada")),
        ("$.größe exists", Json(field=Field.VALUE, path=("größe",), operator=Operator.EXISTS)),
        (
            "header trace $.id = 7",
            Json(field=Field.HEADER, header="trace", path=("id",), operator=Operator.EQUALS, operand=7),
        ),
        ("not not lost", parse("lost")),
        ("a and b or not (c or d)", Any((All((parse("a"), parse("b"))), Not(Any((parse("c"), parse("d"))))))),
    ],
)
def test_what_can_be_typed(text: str, condition: Condition) -> None:
    assert parse(text) == condition


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("", 0, "expected key, value"),
        ("valeu = 3", 0, "found valeu"),
        ("$.a >", 5, "after >, found the end"),
        ("$.a > and b", 6, "after >, found and"),
        ("$.a..b = 1", 4, "a name after the dot"),
        ("$.a[x] = 1", 3, "expected [0]"),
        ("$.a$b = 1", 3, "expected .name"),
        ("$.a[0]b = 1", 6, "expected .name"),
        ("$.a", 3, "expected =, !=, <"),
        ("key < 3", 4, "key is text"),
        ("$.a > null", 6, "no order"),
        ("value matches '('", 14, "not a regular expression"),
        ('x and "abc', 6, "no closing quote"),
        ('"\\q"', 1, "escape"),
        ("(key = a", 8, "expected )"),
        ("key = a b", 8, "and, or, or the end, found b"),
        ("key = a )", 8, "found )"),
        ("a or", 4, "found the end"),
        ("header $.a = 1", 7, "a header with a name"),
        ("anywhere exists", 15, "expected a text"),
        ("(" * 60 + "a", 50, "more than 50 levels"),
        ("a" * (LONGEST + 1), LONGEST, "at most"),
        ('value matches "\\ud800"', 14, "surrogate"),
        ("key ! a", 4, "unexpected !"),
    ],
)
def test_errors_name_the_place(text: str, position: int, why: str) -> None:
    with pytest.raises(FilterError) as raised:
        parse(text)
    assert raised.value.position == position
    assert why in str(raised.value)
    line, caret = raised.value.pointed().splitlines()
    assert line[caret.index("^") :][:1] == text[position : position + 1]
    assert len(line) <= 72


@given(st.text(max_size=60) | st.text(st.sampled_from("$.[]()*'\"=<>!0a andornt\\"), max_size=40))
def test_any_text_is_read_or_refused_at_a_place(text: str) -> None:
    place = 0
    try:
        Matcher(parse(text)).rows(batch([{"value": b'{"a": 1}', "headers": [{"key": "a", "value": b"x"}]}]))
    except FilterError as error:
        place = error.position
    assert 0 <= place <= len(text)


# What it means


def test_numbers_are_compared_exactly() -> None:
    assert matches("$ = 0.1", b"0.1", b"0.10", b"1e-1", b"0.1000000000000000055") == [True, True, True, False]
    assert matches("$ = 9007199254740993", b"9007199254740993", b"9007199254740992") == [True, False]
    assert matches("$ < 1e400", b"5", b"1e399", b"1e999999", b'"5"') == [True, True, False, False]
    assert matches("$ = 1", b"1.0", b"true", b'"1"') == [True, False, False]


def test_what_is_missing_compares_to_nothing() -> None:
    assert matches("$.a != 7", b'{"a": 8}', b'{"a": 7}', b"{}", b"not json", None) == [True, False, False, False, False]
    assert matches("not $.a = 7", b'{"a": 8}', b'{"a": 7}', b"{}", b"not json", None) == [True, False, True, True, True]
    assert matches("value != a", b"b", b"a", None) == [True, False, False]
    assert matches("$.a = null", b'{"a": null}', b"{}") == [True, False]
    assert matches("$.a exists", b'{"a": null}', b"{}", b"[1]") == [True, False, False]


def test_a_number_in_any_notation() -> None:
    documents = (b'{"a":1.50}', b'{"b":{"a":1.5}}', b'{"a":15E-1}', b'{"a":"1.5"}', b'{"a": 1.4999999999999999999999}')
    assert matches("$.a = 1.5", *documents) == [True, False, True, False, False]
    assert matches("$.a < 1.5", *documents) == [False, False, False, False, True]
    assert matches("$.a >= 1.5", *documents, b'{"a":1e999}') == [True, False, True, False, False, True]


def test_all_of_many_rows_are_looked_at() -> None:
    documents = [b'{"n":%d,"parity":"%s"}' % (n, b"odd" if n % 2 else b"even") for n in range(3_000)]
    assert matches("$.n >= 1000 and $.parity = odd", *documents) == [n >= 1000 and n % 2 == 1 for n in range(3_000)]
    assert matches("$.n < 10 or $.parity matches '^e'", *documents) == [n < 10 or n % 2 == 0 for n in range(3_000)]


def test_one_of_a_list_is_enough() -> None:
    assert matches("$[*].n > 2", b'[{"n": 1}, {"n": 3}]', b'[{"n": 1}]', b"[]", b'{"n": 3}') == [
        True,
        False,
        False,
        False,
    ]


def test_case() -> None:
    assert matches("value contains ÄPFEL ignoring case", "zwei Äpfel".encode(), b"\xffPFEL", b"apfel") == [
        True,
        False,
        False,
    ]
    assert matches("value = a.b ignoring case", b"A.B", b"axb", b"a.b\n", b"x a.b") == [True, False, False, False]
    assert matches("$.a != x ignoring case", b'{"a": "X"}', b'{"a": "y"}', b'{"a": 1}', b"{}") == [
        False,
        True,
        True,
        False,
    ]
    assert matches("$.a matches '^x+$' ignoring case", b'{"a": "xXx"}', b'{"a": "xy"}', b'{"a": 1}') == [
        True,
        False,
        False,
    ]


def test_bytes_that_are_not_text() -> None:
    assert matches("value contains 0xff", b"a\xffb", b"\xc3\xbf") == [True, False]
    assert matches("value matches '.'", b"\xff", b"a") == [False, True]


def test_hostile_documents_have_nothing_to_find() -> None:
    deep, digits = b"[" * 100_000, b'{"a": ' + b"9" * 100_000 + b"}"
    assert matches("$.a exists", deep, digits, b'{"a": NaN}', b'\xef\xbb\xbf{"a": 1}') == [False, False, True, True]
    assert matches("$.a > 1", b'{"a": NaN}', b'{"a": 1e999999999}', b'{"a": "\\ud800"}') == [False, True, False]
    large = b'{"a": "' + b"x" * LARGEST_BYTES + b'"}'
    matcher = Matcher(parse("$.a exists"))
    assert list(matcher.rows(batch([{"value": large}]))) == []
    assert matcher.too_large == 1


def test_an_expensive_pattern_takes_linear_time() -> None:
    assert matches("value matches '^(a+)+$'", b"a" * 50_000 + b"b") == [False]


# Against a plain evaluator


def plain(condition: Condition, row: Row) -> bool:
    match condition:
        case Not():
            return not plain(condition.condition, row)
        case All():
            return all(plain(part, row) for part in condition.conditions)
        case Any():
            return any(plain(part, row) for part in condition.conditions)
        case Json():
            return any(
                plain_json(condition, value)
                for data in plain_fields(condition, row)
                if data is not None
                for value in plain_find(data, condition.path)
            )
    return any(plain_text(condition, data) for data in plain_fields(condition, row))


def plain_fields(condition: Text | Json, row: Row) -> list[bytes | None]:
    of_headers = [each["value"] for each in row["headers"] if condition.header in (None, each["key"])]
    match condition.field:
        case Field.KEY | Field.VALUE:
            return [row[condition.field]]
        case Field.HEADER:
            return (
                [b""] * len(of_headers)
                if condition.operator is Operator.EXISTS and isinstance(condition, Text)
                else of_headers
            )
    return [row["key"], row["value"], *of_headers, *(each["key"].encode() for each in row["headers"])]


def plain_text(condition: Text, data: bytes | None) -> bool:
    wanted, operator = condition.operand, condition.operator
    if wanted is None:
        return (data is None) == (operator is Operator.EQUALS)
    if data is None:
        return False
    if operator is Operator.MATCHES or condition.ignores_case:
        try:
            text, wanted_text = data.decode(), wanted.decode()
        except UnicodeDecodeError:
            return False
        flags = re.IGNORECASE if condition.ignores_case else re.NOFLAG
        if operator is Operator.MATCHES:
            return re.search(wanted_text, text, flags) is not None
        if operator is Operator.CONTAINS:
            return re.search(re.escape(wanted_text), text, flags) is not None
        return (re.fullmatch(re.escape(wanted_text), text, flags) is not None) == (operator is Operator.EQUALS)
    if operator is Operator.CONTAINS:
        return wanted in data
    return (data == wanted) == (operator is Operator.EQUALS)


def plain_find(data: bytes, path: tuple[Anything, ...]) -> list[Anything]:
    try:
        found = [json.loads(data)]
    except ValueError:
        return []
    for step in path:
        below = []
        for value in found:
            if isinstance(step, str) and isinstance(value, dict):
                below += [value[step]] if step in value else []
            elif isinstance(step, int) and isinstance(value, list):
                below += value[step : step + 1]
            elif step is EVERY and isinstance(value, list):
                below += value
        found = below
    return found


def plain_json(condition: Json, value: Anything) -> bool:
    operator, operand = condition.operator, cast("Anything", condition.operand)
    if operator is Operator.EXISTS:
        return True
    if operator in (Operator.CONTAINS, Operator.MATCHES) or (condition.ignores_case and isinstance(value, str)):
        as_text = Text(
            field=Field.VALUE, operator=operator, operand=str(operand).encode(), ignores_case=condition.ignores_case
        )
        return isinstance(value, str) and plain_text(as_text, value.encode())
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (value, operand))
    is_comparable = numbers or type(value) is type(operand)
    if operator in ORDER:
        signs = {Operator.LESS: (-1,), Operator.AT_MOST: (-1, 0), Operator.MORE: (1,), Operator.AT_LEAST: (1, 0)}
        return (
            is_comparable
            and isinstance(value, int | float | str)
            and (value > operand) - (value < operand) in signs[operator]
        )
    return (is_comparable and value == operand) == (operator is Operator.EQUALS)


NAMES = st.sampled_from(["a", "b", "ab"])
WORDS = st.sampled_from(["", "a", "A", "b", "ab", "aB", "xaby", "."])
NUMBERS = st.integers(-2, 2) | st.sampled_from([0.5, -1.5, 12.25, 1000, 10**18, 10**30])
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
BYTES = (
    st.none()
    | WORDS.map(str.encode)
    | DOCUMENTS.map(lambda each: json.dumps(each).encode())
    | st.sampled_from([b"\xffab", rb'{"\u0061": "\u0061b"}', rb'{"a": "x\u0061by"}'])
    | st.sampled_from(
        [
            b'{"a" : 1.50}',
            b'{"a"\n:\t-2 , "b":"a"}',
            b'{"a":' + b" " * 20 + b"1000}",
            b'{"a":1e0,"b":0.5E+0}',
            b'{"a":10e-1, "ab":-0}',
            b'{"a":1.000000000000000000000000000000}',
            rb'{"b":"\"a\":1","a":"\"a\""}',
            b'{"a":1,"b":{"a":2},"a":0.5}',
            b'{"a"',
            b'{"a":',
            b'{"a":1',
        ]
    )
)
HEADERS = st.lists(st.fixed_dictionaries({"key": NAMES, "value": BYTES}), max_size=2)
ROWS = st.lists(st.fixed_dictionaries({"key": BYTES, "value": BYTES, "headers": HEADERS}), min_size=1, max_size=6)
PATTERNS = st.sampled_from(["a", "^a", "b$", "a.*b", "[ab]+", "^$"])
PATHS = st.lists(NAMES | st.integers(0, 2) | st.just(EVERY), max_size=3).map(tuple)
TEXTS = st.builds(
    Text,
    field=st.sampled_from([Field.KEY, Field.VALUE, Field.ANYWHERE]),
    operator=st.sampled_from([Operator.EQUALS, Operator.DIFFERS, Operator.CONTAINS]),
    operand=WORDS.map(str.encode),
    ignores_case=st.booleans(),
)
OTHER_TEXTS = (
    st.builds(
        Text,
        field=st.just(Field.KEY),
        operator=st.just(Operator.MATCHES),
        operand=PATTERNS.map(str.encode),
        ignores_case=st.booleans(),
    )
    | st.builds(Text, field=st.just(Field.VALUE), operator=st.sampled_from([Operator.EQUALS, Operator.DIFFERS]))
    | st.builds(
        Text,
        field=st.just(Field.HEADER),
        header=st.none() | NAMES,
        operator=st.sampled_from([Operator.EQUALS, Operator.CONTAINS]),
        operand=WORDS.map(str.encode),
    )
    | st.builds(Text, field=st.just(Field.HEADER), header=st.none() | NAMES, operator=st.just(Operator.EXISTS))
)
JSONS = (
    st.builds(
        Json,
        field=st.just(Field.VALUE),
        path=PATHS,
        operator=st.sampled_from([Operator.EQUALS, Operator.DIFFERS, Operator.EXISTS]),
        operand=SCALARS,
    )
    | st.builds(
        Json,
        field=st.sampled_from([Field.KEY, Field.VALUE]),
        path=PATHS,
        operator=st.sampled_from(sorted(ORDER)),
        operand=NUMBERS | WORDS,
    )
    | st.builds(
        Json, field=st.just(Field.HEADER), header=NAMES, path=PATHS, operator=st.just(Operator.EQUALS), operand=SCALARS
    )
    | st.builds(
        Json,
        field=st.just(Field.VALUE),
        path=PATHS,
        operator=st.sampled_from([Operator.CONTAINS, Operator.EQUALS, Operator.DIFFERS]),
        operand=WORDS,
        ignores_case=st.booleans(),
    )
    | st.builds(Json, field=st.just(Field.VALUE), path=PATHS, operator=st.just(Operator.MATCHES), operand=PATTERNS)
)
CONDITIONS = st.recursive(
    TEXTS | OTHER_TEXTS | JSONS,
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, min_size=2, max_size=3).map(lambda some: All(tuple(some)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda some: Any(tuple(some)))
    ),
    max_leaves=5,
)


@settings(max_examples=300)
@given(CONDITIONS, ROWS)
@example(
    Not(All((CUSTOMER, Text(field=Field.KEY, operator=Operator.EXISTS)))), [{"key": None, "value": b"1", "headers": []}]
)
def test_columns_match_as_records_do_one_by_one(condition: Condition, rows: list[Row]) -> None:
    found = Matcher(condition).rows(batch(rows))
    expected = [number for number, row in enumerate(rows) if plain(condition, row)]
    assert np.array_equal(found, expected)
    # A slice of a larger batch counts from its own start.
    part = batch([{"headers": []}, *rows]).slice(1)
    assert np.array_equal(Matcher(condition).rows(part), expected)
