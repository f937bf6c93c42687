"""Records as people read them: nothing is lost, nothing runs, nothing moves the text around it; and their addresses."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.console.drawing.json_text import Kind, pretty_json
from duralog.console.drawing.reader_zone import IN_UTC
from duralog.console.drawing.record_place import (
    NotAPlace,
    Place,
    key_query,
    parse_key,
    parse_offset,
    parse_when,
    place_of,
)
from duralog.console.drawing.record_rows import panel_of, row_of
from duralog.console.drawing.shown_bytes import (
    LONGEST_SHOWN_CHARACTERS,
    Form,
    copied,
    forms_of,
    hex_lines,
    preview,
    shown,
    text_of,
    visible,
)
from duralog.console.facts.records import RecordKind, ShownRecord

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def record(**fields: Any) -> ShownRecord:
    key, value = fields.get("key", b"k"), fields.get("value", b"v")
    known: dict[str, Any] = {
        "offset": 5,
        "timestamp_ms": 1_700_000_000_000,
        "timestamp_type": "CreateTime",
        "key": key,
        "value": value,
        "headers": (),
        "key_bytes": len(key or b""),
        "value_bytes": len(value or b""),
        "header_count": len(fields.get("headers", ())),
        "size_bytes": 2,
        "is_tombstone": value is None,
        "codec": "lz4",
    }
    return ShownRecord(**{**known, **fields})


@given(documents)
def test_json_is_laid_out_and_stays_the_same(document: object) -> None:
    for is_ascii in (True, False):
        tokens = pretty_json(json.dumps(document, ensure_ascii=is_ascii))
        if isinstance(document, dict | list):
            assert tokens is not None
            laid_out = "".join(part for _, part in tokens)
            assert laid_out == json.dumps(document, indent=2, ensure_ascii=is_ascii)
        else:
            assert tokens is None


def test_json_keeps_what_reading_it_would_lose() -> None:
    text = '{"a": 1.10, "a": 1e400, "n": 123456789012345678901234567890, "s": "\\u00e9\\/"}'
    tokens = pretty_json(text)
    assert tokens is not None
    assert "".join("".join(part for _, part in tokens).split()) == text.replace(" ", "")


def test_tokens_are_distinguished() -> None:
    tokens = pretty_json('{"key": ["text", 1, true, null]}')
    assert tokens is not None
    assert [(kind, part) for kind, part in tokens if kind is not Kind.PLAIN] == [
        (Kind.KEY, '"key"'),
        (Kind.STRING, '"text"'),
        (Kind.NUMBER, "1"),
        (Kind.WORD, "true"),
        (Kind.WORD, "null"),
    ]


@pytest.mark.parametrize(
    "text", ["", "123", '"text"', "{", '{"a": }', "[" * 5_000 + "]" * 5_000, '{"a": 1} x', "[" * 200 + "]" * 200]
)
def test_what_is_no_document_is_not_laid_out(text: str) -> None:
    assert pretty_json(text) is None


def test_a_number_of_a_million_digits_takes_no_time() -> None:
    assert pretty_json(f"[{'9' * 1_000_000}]") is not None


@given(st.binary(max_size=300))
def test_any_bytes_are_shown_without_what_moves_text(data: bytes) -> None:
    what = shown(data)
    assert all(char.isprintable() or char in "\n\t" for char in what.text)
    line = preview(data)
    assert line.isprintable()
    assert len(line) <= 161


@pytest.mark.parametrize("hidden", ["\u202e", "\u2066", "\x1b[31m", "\r", "\x07", "\u200b", "\ufeff"])
def test_hidden_characters_are_seen(hidden: str) -> None:
    assert hidden not in shown(f"before{hidden}after".encode()).text
    assert hidden not in preview(f"before{hidden}after".encode())
    assert hidden not in visible(hidden)


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (None, Form.NULL),
        (b"", Form.EMPTY),
        (b'{"a": 1}', Form.JSON),
        (b"[]", Form.JSON),
        (b"plain", Form.TEXT),
        ("Grüße".encode(), Form.TEXT),
        (b"12", Form.TEXT),
        (b"\xff\xfe", Form.HEX),
        (b"\x00\x00\x00\x05", Form.HEX),
        (b"a\x00b", Form.HEX),
    ],
)
def test_bytes_are_shown_in_the_most_readable_form(data: bytes | None, form: Form) -> None:
    assert shown(data).form is form


def test_another_form_can_be_chosen_if_the_bytes_can_take_it() -> None:
    assert forms_of(shown(b'{"a":1}').form) == (Form.JSON, Form.TEXT, Form.HEX)
    assert shown(b'{"a":1}', Form.TEXT).text == '{"a":1}'
    assert shown(b'{"a":1}', Form.HEX).form is Form.HEX
    assert forms_of(shown(b"\xff").form) == (Form.HEX,)
    assert shown(b"\xff", Form.JSON).form is Form.HEX


def test_hexadecimal_has_place_bytes_and_letters() -> None:
    assert (
        hex_lines(b"Hello\x00\x01\x02!")
        == "00000000  48 65 6c 6c 6f 00 01 02  Hello···\n00000008  21                       !"
    )


def test_what_is_too_long_is_cut_and_says_so() -> None:
    long = shown(b"x" * (LONGEST_SHOWN_CHARACTERS + 1))
    assert (len(long.text), long.is_cut) == (LONGEST_SHOWN_CHARACTERS, True)
    assert not shown(b"x" * LONGEST_SHOWN_CHARACTERS).is_cut
    document = shown(json.dumps(["word"] * 40_000).encode())
    assert document.form is Form.JSON
    assert document.is_cut
    assert len(document.text) == LONGEST_SHOWN_CHARACTERS
    assert shown(b"\xff" * 100_000).is_cut


def test_a_cut_within_a_character_is_still_text() -> None:
    data = ("é" * 1_000).encode()
    assert preview(data[:-1]).startswith("éé")
    assert text_of(data[:11], is_cut=True) == "é" * 5
    assert text_of(data[:11]) is None


def test_copies_are_the_bytes_as_they_are() -> None:
    assert copied(b'{"a":\n1}') == '{"a":\n1}'
    assert copied(b"\x00\xff") == "00ff"
    assert copied(None) == ""


def test_rows_distinguish_kinds() -> None:
    assert row_of(record(), IN_UTC)["tag"] == ""
    assert row_of(record(value=None), IN_UTC)["tag"] == "tombstone"
    assert row_of(record(kind=RecordKind.ABORTED), IN_UTC)["tag"] == "aborted"
    marker = row_of(
        record(kind=RecordKind.MARKER, key=None, value=None, is_tombstone=False, marker="commit of producer 4"),
        IN_UTC,
    )
    assert (marker["tag"], marker["value"], marker["key"]) == ("marker", "commit of producer 4", "")
    assert row_of(record(key=None), IN_UTC)["keyForm"] == "is-null"
    assert row_of(record(key=b"\x00"), IN_UTC)["keyForm"] == "is-hex"
    assert row_of(record(key=b"0xff"), IN_UTC)["keyForm"] == ""
    assert row_of(record(value=b""), IN_UTC)["value"] == "empty"


def test_offsets_beyond_a_browsers_numbers_stay_exact() -> None:
    assert row_of(record(offset=2**63 - 1), IN_UTC)["offset"] == "9223372036854775807"
    assert panel_of("t", 0, record(offset=2**63 - 1), {}, IN_UTC)["offset"] == "9223372036854775807"


def test_the_panel_has_all_of_a_record() -> None:
    headers = (("trace", b"1"), ("\u202eturned", b"\xff"), ("none", None))
    panel = panel_of("a b", 3, record(key=b"k&k", value=b'{"x": 1}', headers=headers), {"value": Form.TEXT}, IN_UTC)
    key, value = panel["parts"]
    assert key["find"] == "/topic/a%20b/3/records?key=k%26k"
    assert (value["form"], value["forms"]) == ("text", ["JSON", "text", "bytes"])
    assert panel["headers"] == [["trace", "1", ""], ["\\u202eturned", "0xff", "is-hex"], ["none", "null", "is-null"]]


def test_the_panel_offers_the_rest_of_a_long_value() -> None:
    _, value = panel_of("t", 0, record(value=b"x" * 100, value_bytes=5_000_000), {}, IN_UTC)["parts"]
    assert value["more"] == "Show all 4.77 MiB"
    _, whole = panel_of("t", 0, record(value=b"x" * 600_000), {}, IN_UTC)["parts"]
    assert (whole["more"], "duralog consume" in whole["note"]) == ("", True)


@pytest.mark.parametrize(
    "place",
    [
        Place(),
        Place(offset=0),
        Place(offset=12, is_backwards=True, opened=11),
        Place(time="-1h"),
        Place(time="2026-01-31T12:00+01:00", opened=5),
        Place(key="a b&c=ü", offset=7),
        Place(is_followed=True),
    ],
)
def test_places_go_through_an_address_and_back(place: Place) -> None:
    assert place_of(dict(parse_qsl(place.query().removeprefix("?")))) == place


@pytest.mark.parametrize(
    "query",
    [
        {"offset": "-1"},
        {"offset": "ten"},
        {"offset": "9" * 30},
        {"offset": "٣"},
        {"time": "yesterday"},
        {"time": "-1x"},
        {"time": "9" * 40},
        {"key": "k" * 5_000},
        {"open": "<b>"},
    ],
)
def test_what_names_no_place_says_what_would(query: dict[str, str]) -> None:
    with pytest.raises(NotAPlace, match=r"give|too long"):
        place_of(query)


@given(st.dictionaries(st.sampled_from(["offset", "time", "key", "follow", "back", "open"]), st.text(max_size=30)))
def test_any_address_is_a_place_or_a_sentence(query: dict[str, str]) -> None:
    try:
        place = place_of(query)
    except NotAPlace:
        return
    assert place_of(dict(parse_qsl(place.query().removeprefix("?"), keep_blank_values=True))) == place


def test_times_are_ages_or_moments_or_numbers() -> None:
    now = 1_700_000_000_000
    assert parse_when("-1h", now_ms=now) == now - 3_600_000
    assert parse_when("90s", now_ms=now) == now - 90_000
    assert parse_when("1699999999999", now_ms=now) == 1_699_999_999_999
    assert parse_when("2023-11-14T22:13:20Z", now_ms=0) == now
    with pytest.raises(NotAPlace, match="give the time as 2024-05-01, or"):
        parse_when("20240501", now_ms=now)


def test_offsets_may_be_grouped() -> None:
    assert parse_offset("1\u202f234\u202f567") == parse_offset("1,234,567") == parse_offset(" 1234567 ") == 1_234_567


@given(st.binary(min_size=1, max_size=60))
def test_any_key_can_be_looked_for(key: bytes) -> None:
    assert parse_key(key_query(key)) == key
