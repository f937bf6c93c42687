"""The same requests to Apache Kafka and to duralog's broker, and what differs in the answers.

A scenario is a sequence of raw requests, right and wrong ones. It runs against each server by itself, its answers are
written down with everything that may differ between two servers replaced (`normal_form`), and the two transcripts must
then be the same, field by field, apart from the differences that are meant (`deliberate`).

`python -m oracle.conformance KAFKA_HOST:PORT DURALOG_HOST:PORT` runs it against two servers that are there already.
"""
