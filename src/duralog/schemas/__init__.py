"""Typed payloads: bytes with a schema id in front become columns. This package opens no logs and no topics.

    catalogue = read_schemas_topic(records)                 # (key, value) of a `_schemas` topic: no registry needed
    catalogue = fetch_catalogue(RegistrySettings(url=...))  # a registry's REST API
    reader = find_schema(catalogue, "orders-value")         # or "orders-value:3", "id:7", "guid:..."
    reader = read_schema_file("order.avsc")                 # or .proto, .desc (a descriptor set), .json

    plan = DecoderPlan(format=Format.AVRO, framing=Framing.CONFLUENT, reader=reader, catalogue=catalogue)
    decoder = PayloadDecoder(plan)                          # at planning: raises SchemaError; picklable, sent to tasks
    decoder.arrow_type                                      # fixed
    decoded = decoder.decode(values, headers)               # in a task: never raises for bytes
    decoded.values, decoded.reasons                         # a bad row is null and has a reason

    found = detect_format(values, catalogue, headers)       # `auto`: what is certain, and a sentence that says what
    found = detect_format(values, catalogue, headers, known=Format.JSON)   # the user names the format
    found.plan, found.finding                               # a DecoderPlan or None

Import from here. What needs an optional package imports it when it is used, and raises `MissingExtra` without it.
"""

from duralog.schemas.catalogue import SchemaCatalogue, find_schema
from duralog.schemas.connect.connect_payloads import infer_connect_type
from duralog.schemas.connect.debezium_payloads import infer_debezium_type
from duralog.schemas.detection import Detected, detect_format
from duralog.schemas.json_payloads import infer_json_type
from duralog.schemas.payload_decoder import DecoderPlan, Format, PayloadDecoder
from duralog.schemas.payloads import Decoded
from duralog.schemas.registered_schema import RegisteredSchema, SchemaReference, SchemaType, SubjectVersion
from duralog.schemas.registry import RegistrySettings, fetch_catalogue, fetch_ids
from duralog.schemas.schema_files import read_schema_file
from duralog.schemas.schemas_topic import SCHEMAS_TOPIC, read_schemas_topic
from duralog.schemas.wire_formats import Framing

__all__ = [
    "SCHEMAS_TOPIC",
    "Decoded",
    "DecoderPlan",
    "Detected",
    "Format",
    "Framing",
    "PayloadDecoder",
    "RegisteredSchema",
    "RegistrySettings",
    "SchemaCatalogue",
    "SchemaReference",
    "SchemaType",
    "SubjectVersion",
    "detect_format",
    "fetch_catalogue",
    "fetch_ids",
    "find_schema",
    "infer_connect_type",
    "infer_debezium_type",
    "infer_json_type",
    "read_schema_file",
    "read_schemas_topic",
]
