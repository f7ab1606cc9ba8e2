"""Connections to workers that get functions of many groups send small writes at once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from sample_functions import OUTPUT, STATE, total_of_rows

import state_store

pytestmark = pytest.mark.spark


def private(spark: Any, class_name: str, name: str, owner: Any) -> Any:
    """Return a private field of a JVM object, whose class py4j may not be able to inspect."""
    found = spark._jvm.java.lang.Class.forName(class_name).getDeclaredField(name)
    found.setAccessible(True)
    return found.get(owner)


def sends_at_once(spark: Any) -> list[bool]:
    """Return for each idle worker of the session whether the JVM sends small writes to it at once."""
    environment = "org.apache.spark.SparkEnv"
    module = spark._jvm.java.lang.Class.forName(environment + "$").getField("MODULE$").get(None)
    env = private(spark, environment + "$", "env", module)
    factories = private(spark, environment, "pythonWorkers", env).values().toSeq()
    option = spark._jvm.java.lang.Class.forName("java.net.StandardSocketOptions").getField("TCP_NODELAY")
    found = []
    for factory in (factories.apply(i) for i in range(factories.size())):
        idle = private(spark, "org.apache.spark.api.python.PythonWorkerFactory", "idleWorkers", factory)
        workers = idle.toSeq()
        found += [workers.apply(i).channel().getOption(option.get(None)) for i in range(workers.size())]
    return found


def test_small_writes_to_workers_are_sent_at_once(spark, stream):
    query = stream("k string, v double", [pa.table({"k": ["a", "b"], "v": [1.0, 2.0]})])
    function = state_store.per_group(total_of_rows)
    query.run(
        lambda frame: frame.groupBy("k").applyInPandasWithState(
            function, OUTPUT, STATE, "update", "NoTimeout"
        )
    )
    assert query.rows[0] and any(sends_at_once(spark))
