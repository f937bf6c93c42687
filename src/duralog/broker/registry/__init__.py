"""A schema registry in the broker's process, for tests and small set-ups: `duralog serve --schema-registry HOST:PORT`.

It speaks the REST interface of Confluent's registry, and its state is the topic `_schemas` in the same directory, as
records that Confluent's registry and Karapace load.

| module | |
|---|---|
| `schemas_log` | the topic: reading what is new, appending |
| `registry` | what the requests do: register, look up, delete, configure |
| `compatibility` | the levels, and which versions are compared |
| `routes` | paths and methods, answers and errors as JSON |
| `server` | over HTTP |
"""
