"""A schema registry in the broker's process, for tests and small set-ups: `duralog serve --schema-registry HOST:PORT`.

It speaks the REST interface of Confluent's registry, and its state is the topic `_schemas` in the same directory, as
records that Confluent's registry and Karapace load.

| module | |
|---|---|
| `schemas_log`, `records` | the topic: reading what is new, appending |
| `state` | what its records add up to |
| `checks`, `digests`, `levels` | parsing, comparing and recognizing schemas |
| `room` | how many schemas, versions and configs there may be |
| `registry` | what is done: register, look up, delete, configure |
| `routes`, `call`, `requests`, `answers` | paths and methods, answers and errors as JSON |
| `server` | over HTTP, with the audit log |
"""
