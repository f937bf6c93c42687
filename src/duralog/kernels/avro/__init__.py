"""Avro values straight into the buffers of Arrow arrays, by programs that `duralog.schemas.avro` makes of schemas.

| module | |
|---|---|
| `program` | what a program is, and the faults |
| `words` | words of memory, by their addresses |
| `reading`, `skipping` | values that are read, and those that are not |
| `interpreter` | the kernel |
"""
