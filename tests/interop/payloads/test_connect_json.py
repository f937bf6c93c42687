"""JSON of Kafka Connect's own converter, of all its types: every value is what the converter itself reads back."""

from __future__ import annotations

import base64
import datetime
import json
import subprocess
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest

from duralog.schemas import Format, PayloadDecoder, SchemaCatalogue, detect_format
from oracle.kafka_process import KafkaProcess
from tests.support.places import ROOT
from tests.support.schemas.presence import present

SCHEMAS = 60
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_every_value_is_what_the_converter_reads(kafka: KafkaProcess, decimals: str) -> None:
    program = ROOT / "oracle" / "connect" / "ConnectPayloads.java"
    command = ["java", "-Dstdout.encoding=UTF-8", "-cp", kafka.class_path, str(program), "1", str(SCHEMAS), decimals]
    written = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
    seen: set[str] = set()
    for seed, lines in groupby(map(json.loads, written), key=lambda line: line["seed"]):
        rows = list(lines)
        payloads = pa.array([base64.b64decode(row["payload"]) for row in rows])
        plan = present(detect_format(payloads, SchemaCatalogue()).plan)
        assert plan.format is Format.CONNECT
        decoder = PayloadDecoder(plan)
        decoded = decoder.decode(payloads)
        assert decoded.reasons.to_pylist() == [None] * len(rows), seed
        found = [plain(decoder.arrow_type, value) for value in decoded.values.to_pylist()]
        assert found == [in_order(decoder.arrow_type, row["read"]) for row in rows], seed
        seen |= set(type_names(decoder.arrow_type))
    assert seen >= {"map", "struct", "list", "decimal128", "date32", "time32", "timestamp", "float", "binary", "int8"}


def type_names(type_: pa.DataType) -> list[str]:
    name = str(type_).partition("[")[0].partition("<")[0].partition("(")[0]
    below = [type_.field(number).type for number in range(type_.num_fields)] if pa.types.is_nested(type_) else []
    return [name, *(each for type_ in below for each in type_names(type_))]


def plain(type_: pa.DataType, value: Any) -> Any:
    """A decoded value as the converter's program shows its own."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {each.name: plain(each.type, value[each.name]) for each in type_}
    if pa.types.is_list(type_):
        return [plain(type_.value_type, each) for each in value]
    if pa.types.is_map(type_):
        return _sorted([[plain(type_.key_type, key), plain(type_.item_type, item)] for key, item in value])
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.date):
        return (value - EPOCH.date()).days
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if isinstance(value, float):
        return f"{value!r}"
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def in_order(type_: pa.DataType, read: Any) -> Any:
    """What the program shows, with the pairs of maps in the order of their keys and floats in Python's digits."""
    if read is None:
        return None
    if pa.types.is_struct(type_):
        return {each.name: in_order(each.type, read[each.name]) for each in type_}
    if pa.types.is_list(type_):
        return [in_order(type_.value_type, each) for each in read]
    if pa.types.is_map(type_):
        return _sorted([[key, in_order(type_.item_type, item)] for key, item in read])
    return f"{float(read)!r}" if pa.types.is_floating(type_) else read


def _sorted(pairs: list[list[Any]]) -> list[list[Any]]:
    return sorted(pairs, key=lambda pair: repr(pair[0]))
