"""Clients of a running broker, duralog's or any other that speaks Kafka's protocol.

`producing`, `consuming`, `topics` and `groups` go through `confluent-kafka`, the extra `duralog[kafka]` (`connection`).
`configs` and `log_dirs` send the requests that it lacks, over their own connection (`wire`).
"""
