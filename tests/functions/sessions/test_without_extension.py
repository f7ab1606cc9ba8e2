"""A session without the extension: the same results, and one warning that says what to set.

Spark's own check of the store stands there for `transformWithState`, as docs/operators.md says.
"""

from __future__ import annotations

import outside
import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.tier("more"),
]

SESSION = """
import json, sys, warnings, zipfile
import late_workers
import quick_java
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from sample_functions import OUTPUT, STATE, Nothing, total
from state_store.session.jar import jar_path
from state_store.core.settings.session import PROVIDER_CLASS
from state_store.functions import VectorizationWarning, vectorized

root = sys.argv[1]
# Without the service file, as if the jar had come after the session started.
jar = root + "/without-service.jar"
with zipfile.ZipFile(jar_path()) as whole, zipfile.ZipFile(jar, "w") as left:
    for name in whole.namelist():
        if not name.startswith("META-INF/services/"):
            left.writestr(name, whole.read(name))
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", quick_java.spark_options())
    .config("spark.sql.codegen.wholeStage", "false").config(map=quick_java.CHECKPOINT_FILES)
    .config("spark.sql.shuffle.partitions", "1").config("spark.jars", jar).getOrCreate()
)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    df = spark.readStream.schema("k string, v double").parquet(root + "/source")
    out = df.groupBy("k").applyInPandasWithState(vectorized(total), OUTPUT, STATE, "append", "NoTimeout")
query = (
    out.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    .option("checkpointLocation", root + "/checkpoint").start(root + "/out")
)
query.awaitTermination()
spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDER_CLASS)
refused = (
    df.groupBy("k").transformWithStateInPandas(Nothing(), "k string", "update", "none")
    .writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    .option("checkpointLocation", root + "/refused")
)
try:
    late_workers.run(refused.start)
except StreamingQueryException as error:
    refusal = str(error)
texts = [str(w.message) for w in caught if w.category is VectorizationWarning]
print("FOUND", json.dumps([texts, refusal, list(map(list, spark.read.parquet(root + "/out").collect()))]))
"""


def test_results_are_the_same_without_the_extension_and_one_warning_says_so(tmp_path):
    outside.write_source(tmp_path / "source")
    (warned, refusal, rows), log = outside.run(SESSION, tmp_path)
    assert len(warned) == 1
    assert "VectorizedExtension" in warned[0] and "spark.sql.extensions" in warned[0]
    assert sorted(rows, key=repr) == sorted([["a", 2, 4.0], ["b", 1, 2.0], [None, 1, 4.0]], key=repr)
    assert "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS" in refusal and "IncrementalStateStoreProvider" in refusal
    assert "runs group by group in worker" not in log  # the driver has said it
