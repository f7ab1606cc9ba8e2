"""Under each option that reaches Python workers all forms of a function have the results of Spark's own.

The options are listed from Spark's own classes, so that a new release of Spark cannot bring one unseen.
"""

from __future__ import annotations

import datetime
import re

import pyarrow as pa
import pytest
from forms import FORMS, OUTPUT_COLUMNS, STATE_COLUMNS
from py4j.java_gateway import JavaObject

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

ARROW = "spark.sql.execution.arrow"
UDF = "spark.sql.execution.pyspark.udf"
PANDAS = "spark.sql.execution.pythonUDF.pandas"

REACH_WORKERS: dict[str, tuple[str, ...]] = {
    f"{ARROW}.compression.codec": ("lz4", "zstd"),
    f"{ARROW}.maxBytesPerBatch": ("1k",),
    f"{ARROW}.maxBytesPerOutputBatch": ("100b",),
    f"{ARROW}.maxRecordsPerBatch": ("1", "0"),
    f"{ARROW}.maxRecordsPerOutputBatch": ("1",),
    f"{ARROW}.transformWithStateInPySpark.maxStateRecordsPerBatch": ("1",),
    f"{ARROW}.useLargeVarTypes": ("true",),
    "spark.sql.execution.pandas.convertToArrowArraySafely": ("false",),
    "spark.sql.execution.pandas.structHandlingMode": ("row",),
    "spark.sql.execution.pandas.udf.buffer.size": ("64",),
    "spark.sql.execution.pyspark.binaryAsBytes": ("false",),
    f"{UDF}.daemonKillWorkerOnFlushFailure": ("false",),
    f"{UDF}.faulthandler.enabled": ("true",),
    f"{UDF}.hideTraceback.enabled": ("true",),
    f"{UDF}.idleTimeoutSeconds": ("60",),
    f"{UDF}.killOnIdleTimeout": ("true",),
    f"{UDF}.simplifiedTraceback.enabled": ("false",),
    f"{UDF}.tracebackDumpIntervalSeconds": ("30",),
    f"{UDF}.tracebackWithLocals.enabled": ("true",),
    "spark.sql.execution.python.udf.buffer.size": ("64",),
    "spark.sql.execution.python.udf.maxRecordsPerBatch": ("1",),
    "spark.sql.execution.pythonUDF.arrow.concurrency.level": ("4",),
    "spark.sql.execution.pythonUDF.mapInBatch.legacy.acceptAnyIterable.enabled": ("false",),
    f"{PANDAS}.intToDecimalCoercionEnabled": ("true",),
    f"{PANDAS}.preferIntExtensionDtype": ("true",),
    "spark.sql.execution.udf.unified.execution.enabled": ("true",),
    "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": ("false",),
    "spark.sql.legacy.execution.pythonUDF.pandas.conversion.enabled": ("true",),
    "spark.sql.planner.pythonExecution.memory": ("512m",),
    "spark.sql.pyspark.jvmStacktrace.enabled": ("true",),
    "spark.sql.pyspark.udf.profiler": ("perf",),
    "spark.sql.pyspark.worker.logging.enabled": ("true",),
    "spark.sql.session.timeZone": ("+05:30", "EST5EDT"),
}
"""Options that workers of stateful functions, or the streams to them, might heed, with the values to try."""

DO_NOT = re.compile(
    r"spark\.python\.sql\.dataFrameDebugging|arrow\.(cache|enabled|fallback|localRelation|pyspark|sparkr|pythonUDF)|"
    r"zstd\.level|inferPandasDictAsMap|pyspark\.python$|pythonUDF\.arrow\.(enabled|legacy)|[uU]d[tT]f|pythonUDTF|"
    r"transpilePyUDFs|legacy\.allow|optimizer\.avoid|dataSource\.profiler|sql\.pyspark\.(infer|legacy|plotting|toJSON)|"
    r"python\.filterPushdown|python\.udf\.maxBytesPerBatch"
)
"""Names of options of `toPandas`, of scalar functions, of table functions and of data sources."""

ROWS = {
    "k": [None, "a", "b", "", "ü", "a", "c" * 50],
    "n": [1, None, 2**40, -3, 5, 6, 7],
    "v": [0.5, 1.5, -2.5, 3.5, 4.5, None, 6.5],
    "s": [None, "", "x", None, "y" * 40, None, ""],
    "t": [datetime.datetime(2024, 3, 10, 9, minute, tzinfo=datetime.timezone.utc) for minute in range(7)],
    "l": [[1, None], [], None, [4], [5], [6], [7]],
}
SCHEMA = "k string, n long, v double, s string, t timestamp, l array<int>"


def batches() -> list[pa.Table]:
    table = pa.table(ROWS)
    columns = [
        table.column(name).cast(pa.timestamp("us", "UTC")) if name == "t" else table.column(name)
        for name in ROWS
    ]
    table = pa.Table.from_arrays(columns, names=list(ROWS)).set_column(
        5, "l", table.column("l").cast(pa.list_(pa.int32()))
    )
    return [table, table.slice(0, 1), table.slice(2)]


def results(stream, form: str):
    """Return output rows by batch, and state, of a query with one form of the function."""
    query = stream(SCHEMA, batches())
    query.run(
        lambda df: df.groupBy("k").applyInPandasWithState(
            FORMS[form], OUTPUT_COLUMNS, STATE_COLUMNS, "update", "NoTimeout"
        )
    )
    return query.outcome().rows, query.stored()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        pytest.param(option, value, marks=[] if "codec" in option else [pytest.mark.tier("more")])
        for option, values in REACH_WORKERS.items()
        for value in values
    ],
)
def test_all_forms_have_the_results_of_sparks_operator(stream, conf, option, value):
    conf("spark.sql.execution.pyspark.udf.faulthandler.enabled", "false")
    conf(option, value)
    expected = results(stream, "stock")
    for form in FORMS:
        if form != "stock":
            assert results(stream, form) == expected, form


def test_every_option_of_sql_is_looked_at(spark):
    package = spark._jvm.org.apache.spark.sql.internal
    companion: JavaObject = getattr(getattr(package, "SQLConf$"), "MODULE$")
    names = [entry.key() for entry in companion.getConfigEntries().toArray()]
    concerned = [name for name in names if re.search(r"arrow|python|pandas|pyspark|udf", name, re.IGNORECASE)]
    assert len(concerned) > 40
    unknown = [name for name in concerned if name not in REACH_WORKERS and not DO_NOT.search(name)]
    assert unknown == [], "add them to REACH_WORKERS with a value to try, or to DO_NOT"
