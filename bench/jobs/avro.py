from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import MILLION_RECORDS, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP

_ONE = "customer_12"


def _decode(reader: str, fields: int, column: str = "-") -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        command = [sys.executable, "-m", "bench.workers.avro", reader, str(fields), column, str(setting.passes)]
        return Run(command=command, warm_up=WARM_UP)

    return prepare


_CLOCK = (
    "One thread. Records per second of CPU time, not of wall time. Data and schemas are ready before the clock starts."
)

JOBS = (
    Job(
        name="avro",
        title="Avro values to Arrow, ten fields",
        unit=MILLION_RECORDS,
        about="Records of ten fields and about 90 bytes (long, timestamp, string, double, enum, unions with null, ...) "
        "in Avro's binary encoding, as a schema registry's users write them. duralog: 200,000 values to one Arrow "
        "array, every string checked for UTF-8. fastavro, its compiled extension: a dict for each of 20,000 values, "
        f"made and dropped. `fastavro, to Arrow` ends with the same Arrow array as duralog. {_CLOCK}",
        contenders=(
            Contender("duralog", _decode("duralog", 10)),
            Contender("fastavro", _decode("fastavro_objects", 10), is_peer=True),
            Contender("fastavro, to Arrow", _decode("fastavro_to_arrow", 10), is_peer=True),
        ),
        compare_with="fastavro",
        targets=(Target("duralog", 3.0), Target("duralog", 10.0, than="fastavro")),
    ),
    Job(
        name="avro-column",
        title="Avro values to Arrow, one field of twenty",
        unit=MILLION_RECORDS,
        about="As `avro`, with records of twenty fields, of which the thirteenth is read: duralog with `columns`, "
        "fastavro with a reader's schema of one field. Both still walk over the other fields, and notice a value "
        f"that is cut or too long. `duralog, whole value` reads all twenty. {_CLOCK}",
        contenders=(
            Contender("duralog", _decode("duralog", 20, _ONE)),
            Contender("duralog, whole value", _decode("duralog", 20)),
            Contender("fastavro", _decode("fastavro_objects", 20, _ONE), is_peer=True),
        ),
        compare_with="fastavro",
        targets=(Target("duralog", 3.0, than="duralog, whole value"),),
    ),
)
