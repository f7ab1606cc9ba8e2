"""A session with this store, Delta and Iceberg, made in the order of its arguments.

    lakehouse_session.py ROOT STEP ...

The step `page` is the block in Python of docs/lakehouse.md. A stateful query goes from a Delta table to an
Iceberg table, and one to another Delta table. Each runs with rows that arrive in between, and as if it had
been killed, under both checkpoint formats. Prints FOUND and a line of JSON.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pinned_jars
import quick_java
from delta import configure_spark_with_delta_pip
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from sample_functions import OUTPUT, STATE, total

import state_store

PAGE = Path(__file__).resolve().parents[3] / "docs" / "lakehouse.md"
EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
)
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
BATCHES = ([("a", 1.0), ("b", 2.0), ("a", 3.0)], [("b", 4.0), ("c", 5.0)])


def builder(root: str, steps: list[str]) -> Any:
    """Return a builder to which the steps were applied in turn."""
    (iceberg,) = pinned_jars.pins(pinned_jars.ICEBERG)
    made = SparkSession.builder.master("local[2]").config(
        map={
            **pinned_jars.repository_conf(root),
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": quick_java.spark_options(),
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": f"{root}/warehouse",
            FORMAT: "1",
        }
    )
    for step in steps:
        if step == "page":
            made = after_page(made, root)
        elif step == "store":
            made = state_store.configure(made)
        elif step == "delta":
            made = configure_spark_with_delta_pip(made, [iceberg.coordinates])
            made = made.config("spark.sql.catalog.spark_catalog", DELTA_CATALOG)
        elif step == "extensions":  # as their documents say, in place of what was there
            made = made.config("spark.sql.extensions", EXTENSIONS)
        elif step == "iceberg":
            made = made.config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
            made = made.config("spark.sql.catalog.lake.type", "hadoop")
            made = made.config("spark.sql.catalog.lake.warehouse", f"{root}/lake")
    return made


def after_page(made: Any, root: str) -> Any:
    """Run the page's block with this builder and with a lake of its own; return the page's builder."""
    (block,) = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    for text, instead in (("SparkSession.builder", "made"), ("/data/lake", f"{root}/lake")):
        if block.count(text) != 1:
            raise AssertionError(f"{PAGE} has {text!r} {block.count(text)} times, and not once")
        block = block.replace(text, instead)
    names = {"made": made}
    exec(block, names)
    return names["builder"]


def run(spark: SparkSession, root: str, name: str) -> dict[str, Any]:
    """Run a query on all rows: `totals` into Iceberg, others into Delta; return its progress."""
    clicks = spark.readStream.format("delta").load(f"{root}/clicks")
    into_iceberg = name.startswith("totals")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if into_iceberg:
            marked = state_store.vectorized(total)
            rows = clicks.groupBy("k").applyInPandasWithState(marked, OUTPUT, STATE, "append", "NoTimeout")
        else:
            rows = clicks.dropDuplicates(["k"]).select("k")
    writer = rows.writeStream.outputMode("append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{root}/checkpoint-{name}")
    if into_iceberg:
        query = writer.format("iceberg").toTable(f"lake.db.{name}")
    else:
        query = writer.format("delta").start(f"{root}/{name}")
    query.awaitTermination()
    operator = json.loads(query.recentProgress[-1].json)["stateOperators"][0]
    return {
        "warnings": [str(warning.message) for warning in caught if "group by group" in str(warning.message)],
        "vectorized": query._jsq.explainInternal(False).count("VectorizedFlatMapGroupsInPandasWithState"),
        "keys": operator["numRowsTotal"],
        "ours": any(metric.startswith("incremental") for metric in operator["customMetrics"]),
    }


def run_again(spark: SparkSession, root: str, name: str) -> str:
    """Run a query as if it had been killed after its sink's commit; return the error's text."""
    commits = Path(root, f"checkpoint-{name}", "commits")
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / f"{newest}").unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    try:
        run(spark, root, name)
    except StreamingQueryException as error:
        return str(error)
    return ""


def rows_of(rows: DataFrame) -> list[list[Any]]:
    """Return rows as sorted lists."""
    return sorted(list(row) for row in rows.collect())


def main(root: str, *steps: str) -> None:
    """Make the session, run the queries, and print what came out."""
    spark = builder(root, list(steps)).getOrCreate()
    found: dict[str, Any] = {"extensions": spark.conf.get("spark.sql.extensions")}
    for batch in BATCHES:
        new = spark.createDataFrame(batch, "k string, v double").coalesce(1)
        new.write.format("delta").mode("append").save(f"{root}/clicks")
        for name in ("totals", "seen"):
            found.setdefault(name, []).append(run(spark, root, name))
    found["again"] = {name: run_again(spark, root, name) for name in ("totals", "seen")}
    spark.conf.set(FORMAT, "2")
    for name in ("totals_2", "seen_2"):
        run(spark, root, name)
        found["again"][name] = run_again(spark, root, name)
    found["rows"] = {
        **{name: rows_of(spark.table(f"lake.db.{name}")) for name in ("totals", "totals_2")},
        "seen": rows_of(spark.read.format("delta").load(f"{root}/seen")),
    }
    # Statements that only the parsers of the two extensions know.
    found["optimized"] = spark.sql(f"OPTIMIZE delta.`{root}/clicks`").count()
    spark.sql("ALTER TABLE lake.db.totals ADD PARTITION FIELD k")
    print("FOUND", json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
