"""The two result framings of the oldest document."""

from __future__ import annotations

import pytest

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format import batches, message_set
from duralog.format.fetch_results import (
    MessageSetResult,
    MultiMessageSetResult,
    decode_message_set_result,
    decode_multi_message_set_result,
    encode_message_set_result,
    encode_multi_message_set_result,
    encode_result_header,
)
from duralog.format.record import Record


def messages(*values: bytes, base_offset: int = 0) -> bytes:
    records = [Record(value=value) for value in values]
    return message_set.encode(records, magic=0, base_offset=base_offset)


def test_a_message_set_answer_is_length_error_code_and_messages() -> None:
    content = messages(b"a", b"b")
    encoded = encode_message_set_result(MessageSetResult(content, error_code=1))
    assert encoded == (len(content) + 2).to_bytes(4, "big") + b"\x00\x01" + content


def test_the_header_alone_goes_before_bytes_that_are_sent_from_a_file() -> None:
    content = messages(b"a")
    assert encode_result_header(len(content), -1) + content == encode_message_set_result(MessageSetResult(content, -1))


def test_the_messages_come_back_and_can_be_read() -> None:
    encoded = encode_message_set_result(MessageSetResult(messages(b"a", b"b", base_offset=7)))
    result, end = decode_message_set_result(encoded + b"more")
    assert end == len(encoded)
    assert result.error_code == 0
    found = [
        record for batch in batches.scan(result.messages) for record in batches.decode_records(result.messages, batch)
    ]
    assert [(record.offset, record.value) for record in found] == [(7, b"a"), (8, b"b")]


def test_a_message_cut_off_by_the_size_limit_is_no_error() -> None:
    content = messages(b"a", b"b")[:-1]
    result, _ = decode_message_set_result(encode_message_set_result(MessageSetResult(content)))
    assert [batch.last_offset for batch in batches.scan(result.messages)] == [0]


def test_a_multi_answer_holds_whole_answers_in_order() -> None:
    inner = [MessageSetResult(messages(b"a")), MessageSetResult(b"", error_code=3), MessageSetResult(messages(b"b"))]
    encoded = encode_multi_message_set_result(MultiMessageSetResult(inner, error_code=-1))
    content = b"".join(map(encode_message_set_result, inner))
    assert encoded == (len(content) + 2).to_bytes(4, "big") + b"\xff\xff" + content
    multi, end = decode_multi_message_set_result(b"xx" + encoded + b"more", 2)
    assert end == 2 + len(encoded)
    assert multi.error_code == -1
    assert [(result.error_code, bytes(result.messages)) for result in multi.results] == [
        (result.error_code, bytes(result.messages)) for result in inner
    ]


def test_an_answer_without_messages() -> None:
    encoded = encode_multi_message_set_result(MultiMessageSetResult([]))
    assert encoded == b"\x00\x00\x00\x02\x00\x00"
    assert decode_multi_message_set_result(encoded) == (MultiMessageSetResult(()), 6)


def test_every_cut_of_an_answer_is_refused() -> None:
    inner = [MessageSetResult(messages(b"a")), MessageSetResult(messages(b"b"))]
    encoded = encode_multi_message_set_result(MultiMessageSetResult(inner))
    for size in range(len(encoded)):
        with pytest.raises(CorruptRecord) as refused:
            decode_multi_message_set_result(encoded[:size])
        assert refused.value.position == 0


def test_an_inner_answer_cannot_reach_past_the_outer_one() -> None:
    encoded = bytearray(encode_multi_message_set_result(MultiMessageSetResult([MessageSetResult(b"abc")])))
    encoded[6:10] = (6).to_bytes(4, "big")
    with pytest.raises(CorruptRecord) as refused:
        decode_multi_message_set_result(bytes(encoded) + b"behind the answer")
    assert (refused.value.fault, refused.value.position, refused.value.found) == (Fault.FIELD_LENGTH, 6, 6)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 1, 3, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(CorruptRecord) as refused:
        decode_message_set_result(length.to_bytes(4, "big", signed=True) + b"\x00\x00")
    assert (refused.value.position, refused.value.expected, refused.value.found) == (0, "2 to 2", length)


@pytest.mark.parametrize(("size", "error_code"), [(-1, 0), (2**31 - 2, 0), (0, 2**15), (0, -(2**15) - 1)])
def test_values_that_do_not_fit_their_fields_are_not_written(size: int, error_code: int) -> None:
    with pytest.raises(InvalidRecord):
        encode_result_header(size, error_code)
