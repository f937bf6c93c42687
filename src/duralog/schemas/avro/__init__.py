"""Avro values straight into Arrow arrays, by a compiled kernel.

| module | |
|---|---|
| `schema`, `parsing` | the types of a schema, from its JSON |
| `merging` | a reader's schema with the fields of others |
| `shapes` | what a reader's schema is in Arrow, and which columns the kernel fills |
| `resolution`, `defaults` | a writer's schema against a reader's: the steps to decode a value |
| `program` | the steps as a program for `duralog.kernels.avro` |
| `buffers`, `decoder` | memory for the columns, arrays of it, the decoder |
| `plain` | the same steps in plain Python: the kernel's twin |
"""

from __future__ import annotations

from duralog.schemas.avro.decoder import AvroDecoder, compile_decoder, error_text
from duralog.schemas.avro.parsing import AvroSchema, parse_schema

__all__ = ["AvroDecoder", "AvroSchema", "compile_decoder", "error_text", "parse_schema"]
