"""Avro payloads: each writer's schema resolved with the reader's, and compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from duralog.kernels.avro.program import POSITION_SHIFT
from duralog.schemas.avro import AvroDecoder, AvroSchema, compile_decoder, error_text, parse_schema
from duralog.schemas.avro.merging import with_fields_of
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.frames import MessagePlace
from duralog.schemas.payloads import Bytes, Decoded, Int64s, Payloads, good, reasons_of
from duralog.schemas.registered_schema import RegisteredSchema


class AvroFormat:
    """The decoders of a reader's schema, one for each writer's."""

    def __init__(
        self,
        reader: RegisteredSchema,
        catalogue: SchemaCatalogue,
        columns: Sequence[str] | None,
        more_fields_of: Sequence[RegisteredSchema] = (),
    ) -> None:
        self._catalogue = catalogue
        self._columns = columns
        self._parsed_reader = _parsed(reader, catalogue)
        self._reader = reader if not more_fields_of else None
        """None if the column has fields that it does not have."""
        if more_fields_of:
            root = with_fields_of(self._parsed_reader.root, [_parsed(each, catalogue).root for each in more_fields_of])
            # It is compiled here, and never pickled: its text is that of the reader alone.
            self._parsed_reader = replace(self._parsed_reader, root=root)
        self._own = compile_decoder(self._parsed_reader, self._parsed_reader, columns)
        self.arrow_type: pa.DataType = self._own.arrow_type

    def payloads(self, writer: RegisteredSchema | None, _place: MessagePlace | None) -> Payloads:
        """The decoder of a writer's payloads; raises `SchemaError` if the reader's schema cannot read them."""
        own = self._reader
        if writer is None or (own and (writer.text, writer.references) == (own.text, own.references)):
            return _AvroPayloads(self._own)
        return _AvroPayloads(compile_decoder(_parsed(writer, self._catalogue), self._parsed_reader, self._columns))


class _AvroPayloads:
    def __init__(self, decoder: AvroDecoder) -> None:
        self._decoder = decoder
        self.arrow_type: pa.DataType = decoder.arrow_type

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        values, faults = self._decoder.decode_with_positions(data, starts, ends)
        if not faults.any():
            return good(values)
        texts = {int(fault): _text(int(fault)) for fault in np.unique(faults)}
        return Decoded(values, reasons_of(faults, texts))


def _text(fault: int) -> str:
    position, code = fault >> POSITION_SHIFT, fault & ((1 << POSITION_SHIFT) - 1)
    return f"damaged Avro at byte {position}: {error_text(code)}"


def _parsed(schema: RegisteredSchema, catalogue: SchemaCatalogue) -> AvroSchema:
    return parse_schema(schema.text, {name: each.text for name, each in catalogue.resolve(schema).items()})
