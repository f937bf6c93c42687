"""Real Apache Kafka as the judge of what duralog reads and writes.

The tests in `tests/interop` and the benchmarks both run Kafka's own code: its jars from Maven Central, and a few small
Java programs (`java/`) that call its record classes. Nothing of this is part of the package that users install.
"""
