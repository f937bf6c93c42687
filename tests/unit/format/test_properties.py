from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord
from duralog.format.java_properties import Properties, decode_properties, encode_properties
from duralog.format.properties import (
    MetaProperties,
    decode_json_object,
    decode_meta_properties,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_json_object,
    encode_meta_properties,
    encode_partition_metadata,
)
from duralog.format.uuids import ZERO_UUID, uuid_bytes, uuid_text

META = b"""#
#Sun Nov 15 07:01:10 UTC 2026
cluster.id=AAAAAAAAQACAAAAAAAAAAQ
directory.id=ACsDLMXvQDqPXeSh-NcKzQ
node.id=1
version=1
"""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a\t=\f b", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\\\=c", {"a\\": "c"}),
        ("a\\ b c", {"a b": "c"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=é", {"a": "é"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("a=1,\\\n   2,\\\r\n#3", {"a": "1,2,#3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
    ],
)
def test_the_syntax_of_java(text, values):
    assert decode_properties(text.encode("latin-1")).values == values


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\\u12x4", b"a=\\u", b"\\u00 =1"])
def test_a_malformed_character_escape_is_refused(text):
    with pytest.raises(CorruptRecord, match=r"position 4: .*character escape"):
        decode_properties(b"b=1\n" + text)


def test_comments_and_order_are_kept():
    properties = decode_properties(META)
    assert properties.comments == ("#", "#Sun Nov 15 07:01:10 UTC 2026")
    assert list(properties.values) == ["cluster.id", "directory.id", "node.id", "version"]
    assert encode_properties(properties) == META


def test_what_java_escapes_is_escaped():
    values = {"a b=:#!": " x y=\\\t\n\r\f", "é": "€😀\x7f"}
    assert encode_properties(Properties(values)) == (
        b"a\\ b\\=\\:\\#\\!=\\ x y\\=\\\\\\t\\n\\r\\f\n\\u00E9=\\u20AC\\uD83D\\uDE00\\u007F\n"
    )


@given(st.dictionaries(st.text(), st.text()))
def test_what_was_encoded_is_decoded(values):
    assert decode_properties(encode_properties(Properties(values))).values == values


@given(
    st.lists(st.sampled_from([b"a", b"=", b":", b" ", b"\\", b"u", b"0041", b"\n", b"\r", b"#", b"!", b"\t", b"\xe9"]))
)
def test_random_text_is_decoded_or_refused(pieces):
    with contextlib.suppress(CorruptRecord):
        values = decode_properties(b"".join(pieces)).values
        assert decode_properties(encode_properties(Properties(values))).values == values


def test_meta_properties():
    meta = decode_meta_properties(META)
    assert meta == MetaProperties(
        version=1, cluster_id="AAAAAAAAQACAAAAAAAAAAQ", node_id=1, directory_id="ACsDLMXvQDqPXeSh-NcKzQ"
    )
    assert encode_meta_properties(meta, written="Sun Nov 15 07:01:10 UTC 2026") == META


def test_meta_properties_from_before_kraft():
    meta = decode_meta_properties(b"broker.id=3\ncluster.id=abc\n")
    assert meta == MetaProperties(version=0, cluster_id="abc", node_id=3, directory_id=None)
    assert encode_meta_properties(meta, written="then") == b"#\n#then\nbroker.id=3\ncluster.id=abc\nversion=0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"version=2", "wrong version .*expected 0 or 1, found 2"),
        (b"version=x", "wrong version .*found 'x'"),
        (b"version=1\nnode.id=2147483648", "wrong node.id"),
        (b"version=1\ndirectory.id=abc", "wrong directory.id .*found 'abc'"),
    ],
)
def test_wrong_meta_properties_are_refused(text, message):
    with pytest.raises(CorruptRecord, match=message):
        decode_meta_properties(text)


def test_partition_metadata():
    data = b"version: 0\ntopic_id: ACsDLMXvQDqPXeSh-NcKzQ"
    assert decode_partition_metadata(data) == "ACsDLMXvQDqPXeSh-NcKzQ"
    assert encode_partition_metadata("ACsDLMXvQDqPXeSh-NcKzQ") == data
    assert (
        decode_partition_metadata(b"version:   0\r\ntopic_id:\tACsDLMXvQDqPXeSh-NcKzQ==\n") == "ACsDLMXvQDqPXeSh-NcKzQ"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1 .*'version: ...', found ''"),
        (b"version: 1\ntopic_id: ACsDLMXvQDqPXeSh-NcKzQ", "line 1 .*version: 0, found 'version: 1'"),
        (b"version 0\n", "line 1 "),
        (b"version: 0", "line 2 .*found ''"),
        (b"version: 0\ntopic_id: abc", "line 2 .*base64, found 'topic_id: abc'"),
        (b"version: 0\ntopic_id: " + ZERO_UUID.encode(), "line 2 .*other than zero"),
        (b"\xff\xfe\n", "line 1 "),
    ],
)
def test_wrong_partition_metadata_is_refused(data, message):
    with pytest.raises(CorruptRecord, match=message):
        decode_partition_metadata(data)


def test_json_files():
    assert encode_clean_shutdown(14) == b'{"version":0,"brokerEpoch":14}'
    assert decode_json_object(encode_clean_shutdown(14)) == {"version": 0, "brokerEpoch": 14}
    assert encode_json_object({"leaderId": 1}) == b'{"leaderId":1}'


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(data):
    with pytest.raises(CorruptRecord, match="expected an object"):
        decode_json_object(data)


@given(st.binary(min_size=16, max_size=16))
def test_ids_keep_their_bytes(raw):
    text = uuid_text(raw)
    assert len(text) == 22
    assert uuid_bytes(text) == uuid_bytes(text + "==") == raw


def test_an_id_is_written_as_kafka_does():
    assert uuid_text(bytes(16)) == ZERO_UUID
    assert uuid_text(bytes([0xFB, 0xEF, 0xBE] * 5 + [0xFF])) == "----" * 5 + "_w"


@pytest.mark.parametrize("text", ["", "abc", "A" * 21, "A" * 23, "A" * 21 + "+", "A" * 22 + "=", "A" * 21 + "é"])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(ValueError, match="22 characters"):
        uuid_bytes(text)
