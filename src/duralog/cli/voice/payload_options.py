"""The options of commands that decode keys and values by schemas: the same names and words everywhere.

The secrets of a registry are in a file, `--schema-registry-config`, never on the command line: `username`, `password`,
`token`, `ca.file`, `certificate.file` and `key.file`, or Confluent's `basic.auth.user.info` and `bearer.auth.token`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.failures import WrongUsage
from duralog.cli.voice.options import HOW
from duralog.errors import CorruptRecord, DuralogError, SchemaError, arrow_needed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duralog.schemas.decode_options import Decode

_FORMATS = "auto, avro, protobuf, json, string, long and others"
_SCHEMAS = "latest, id:N, a subject or subject:version, a file, or text"
_OF_REGISTRY = ("username", "password", "token", "ca.file", "certificate.file", "key.file")

ValueFormat = Annotated[
    str | None,
    typer.Option(
        "--value-format",
        metavar="NAME",
        help=f"Decode values: {_FORMATS}. auto detects it from a sample and the topic _schemas.",
        rich_help_panel=HOW,
    ),
]
KeyFormat = Annotated[
    str | None,
    typer.Option("--key-format", metavar="NAME", help=f"Decode keys: {_FORMATS}.", rich_help_panel=HOW),
]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        "--value-schema", metavar="TEXT", help=f"The schema of decoded values: {_SCHEMAS}.", rich_help_panel=HOW
    ),
]
KeySchema = Annotated[
    str | None,
    typer.Option("--key-schema", metavar="TEXT", help=f"The schema of decoded keys: {_SCHEMAS}.", rich_help_panel=HOW),
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        help="Take schemas from this registry, instead of the topic _schemas.",
        rich_help_panel=HOW,
    ),
]
SchemaRegistryConfig = Annotated[
    str | None,
    typer.Option(
        "--schema-registry-config",
        metavar="FILE",
        help="How to log in to the registry: username and password, or token; ca.file, certificate.file, key.file.",
        rich_help_panel=HOW,
    ),
]

Unwrap = Annotated[
    str | None,
    typer.Option(
        "--unwrap",
        metavar="NAME",
        help="Convert change events to rows of the database's table: debezium.",
        rich_help_panel=HOW,
    ),
]
BadPayloads = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="NAME",
        help="For payloads that do not decode: permissive (a null, with the bytes and the reason in _corrupt) or"
        " failfast.",
        rich_help_panel=HOW,
    ),
]

_WRITTEN = "auto, avro, protobuf, json, string, long and others"
_NEW = "latest, id:N, a subject or subject:version, a file, or text"

WrittenValueFormat = Annotated[
    str | None,
    typer.Option(
        "--value-format",
        metavar="NAME",
        help=f"Encode values: {_WRITTEN}. auto is the format of the schema.",
        rich_help_panel=HOW,
    ),
]
WrittenKeyFormat = Annotated[
    str | None,
    typer.Option("--key-format", metavar="NAME", help=f"Encode keys: {_WRITTEN}.", rich_help_panel=HOW),
]
WrittenValueSchema = Annotated[
    str | None,
    typer.Option("--value-schema", metavar="TEXT", help=f"Encode JSON values by: {_NEW}.", rich_help_panel=HOW),
]
WrittenKeySchema = Annotated[
    str | None,
    typer.Option("--key-schema", metavar="TEXT", help=f"Encode JSON keys by: {_NEW}.", rich_help_panel=HOW),
]
WrittenRegistry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        help="Take ids from this registry, and register new schemas; by default, from the topic _schemas.",
        rich_help_panel=HOW,
    ),
]
FramingName = Annotated[
    str | None,
    typer.Option(
        "--framing",
        metavar="NAME",
        help="Put the schema's id before each payload (confluent, the default), or do not (none).",
        rich_help_panel=HOW,
    ),
]
NoRegister = Annotated[
    bool,
    typer.Option("--no-register", help="Refuse a schema that the registry does not have yet.", rich_help_panel=HOW),
]


def decode_given(
    value_format: str | None,
    key_format: str | None,
    value_schema: str | None,
    key_schema: str | None,
    schema_registry: str | None,
    schema_registry_config: str | None,
    mode: str | None = None,
) -> Decode | None:
    """What the options mean. None if nothing is decoded."""
    given = {
        "value.format": value_format,
        "key.format": key_format,
        "value.schema": value_schema,
        "key.schema": key_schema,
        "schema.registry.url": schema_registry,
        "mode": mode,
    }
    options = {name: text for name, text in given.items() if text is not None}
    if schema_registry_config is not None:
        if schema_registry is None:
            raise WrongUsage("--schema-registry-config needs --schema-registry URL")
        options |= _registry_settings(schema_registry_config)
    if not options:
        return None
    if not any(name.endswith((".format", ".schema")) for name in options):
        given_alone = "--mode" if schema_registry is None else "--schema-registry"
        raise WrongUsage(f"{given_alone}: nothing is decoded: give --value-format or --key-format")
    with arrow_needed():
        from duralog.schemas.decode_options import Decode

        _check_formats({"--value-format": value_format, "--key-format": key_format})
    try:
        return Decode.of(options)
    except SchemaError as error:
        raise WrongUsage(str(error)) from None


def _check_formats(given: Mapping[str, str | None]) -> None:
    from duralog.schemas.payload_decoder import Format
    from duralog.schemas.payload_planning import AUTO, BINARY

    names = [AUTO, BINARY, *Format]
    for option, name in given.items():
        if name is not None and name not in names:
            raise WrongUsage(f"{option} {name!r}: give one of {', '.join(names)}")


def _registry_settings(path: str) -> dict[str, str]:
    from duralog.format.java_properties import decode_properties
    from duralog.storage.disk.file_source import read_small

    data = read_small(path)
    if data is None:
        raise WrongUsage(f"--schema-registry-config: there is no file {path}")
    try:
        given = decode_properties(data).values
    except CorruptRecord as error:
        raise error.in_file(path) from None
    found: dict[str, str] = {}
    for name, text in given.items():
        known = name.removeprefix("schema.registry.")
        if known == "basic.auth.user.info":
            found["schema.registry.username"], _, found["schema.registry.password"] = text.partition(":")
        elif known == "bearer.auth.token":
            found["schema.registry.token"] = text
        elif known in _OF_REGISTRY:
            found[f"schema.registry.{known}"] = text
        elif known not in ("url", "basic.auth.credentials.source", "bearer.auth.credentials.source"):
            raise DuralogError(
                f"{path}: unknown setting {name} for a registry; known settings are {', '.join(_OF_REGISTRY)}"
            )
    return found
