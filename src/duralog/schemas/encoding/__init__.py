"""From JSON to payloads: what `duralog produce` writes, by the schema of a subject, a file or text.

    encoder = PayloadEncoder(EncoderPlan(format=Format.AVRO, framing=Framing.CONFLUENT, schema=schema))
    encoder.encode({"id": 7})           # the bytes that Confluent's serializers write; raises `InvalidRecord`

What `duralog consume` shows of a decoded payload encodes to the same payload again.
"""
