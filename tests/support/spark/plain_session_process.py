"""A session as users make it, in an environment that is not activated. Prints what it found as JSON.

`test_register` runs it, with a PATH on which there is another Python. Argument: the log directory.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from duralog.errors import DuralogError
from duralog.spark import register
from duralog.spark.jobs import verify


def main(path: str) -> None:
    builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    found: dict[str, object] = {}
    try:
        spark.read.format("duralog").load(path).count()
    except Exception as error:
        found["before"] = str(error)

    chosen = spark.sparkContext.pythonExec
    for python in (sys.argv[2], "/no/such/python"):
        os.environ["PYSPARK_PYTHON"] = spark.sparkContext.pythonExec = python
        try:
            register(spark)
        except DuralogError as error:
            found[python] = str(error)
    del os.environ["PYSPARK_PYTHON"]
    spark.sparkContext.pythonExec = chosen

    for _ in range(2):
        register(spark)
    frame = spark.read.format("duralog").load(path)
    found["rows"] = [frame.count(), frame.where("offset > 0").count()]
    frame.select("value").write.format("duralog").option("topic", "copy").mode("append").save(path)
    found["written"] = spark.read.format("duralog").option("subscribe", "copy").load(path).count()
    found["findings"] = verify(spark, path).to_dict()["findings"]
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
