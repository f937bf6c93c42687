"""The Python that Spark starts its workers with, in a session on this machine.

Spark puts a zip file with its own copy of PySpark in front of `PYTHONPATH`, and a jar. A zip has no compiled modules:
each new process compiles all that it imports, which takes three times as long as the imports themselves. A first query
starts three such processes one after the other. A stream starts one more, and has ten seconds for that. So Spark is
given a script that removes these entries and runs the interpreter, which finds the installed PySpark. The script is in
a temporary folder of the session, and gone with it.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pyspark
from pyspark import SparkContext

_SCRIPT = """#!/bin/sh
set -f
IFS=:
path=
for entry in $PYTHONPATH; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*.zip | */jars/spark-core_*.jar) ;;
        *) path=${{path:+$path:}}$entry ;;
    esac
done
PYTHONPATH=$path exec {interpreter} "$@"
"""


def use_installed_pyspark(context: SparkContext) -> None:
    """Let new workers load the PySpark that this process has, if they would find it."""
    if not _finds_installed_pyspark():
        return
    script = Path(context._temp_dir) / "worker-python"
    script.write_text(_SCRIPT.format(interpreter=shlex.quote(sys.executable)))
    script.chmod(0o700)
    # Some mount the folder for temporary files so that nothing in it can be executed.
    if os.access(script, os.X_OK):
        context.pythonExec = str(script)


def _finds_installed_pyspark() -> bool:
    """Whether workers run this interpreter, and the PySpark that it finds is the one in Spark's zip file."""
    home = os.environ.get("SPARK_HOME")
    installed = Path(pyspark.__file__).parent
    return (
        os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
        and installed.parent.name in ("site-packages", "dist-packages")
        and (home is None or Path(home).resolve() == installed.resolve())
    )
