"""Options that an offset log does not name have the values that Spark itself gives them."""

from __future__ import annotations

from typing import Any

import pyspark
import pytest

from state_store.core.settings.session import ENCODING_KEY, MERGE_OPERATOR_KEY, ROW_CHECKSUMS_KEY, UNNAMED

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2", "4.1", "4.0"))]

PACKAGE = "org.apache.spark.sql.execution.streaming"

OF_OPERATORS = {
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.stateStore.compression.codec",
    "spark.sql.streaming.statefulOperator.useStrictDistribution",
}
"""Options of every release that say how operators lay out their rows, or how Spark writes its own files."""

OF_4_2 = {
    "spark.sql.function.protobufExtensions.enabled",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution",
}
OF_4_3 = {
    "spark.sql.dropDuplicates.deterministicKeyOrder.enabled",
    "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled",
}

SINCE_4_2 = OF_OPERATORS | {ENCODING_KEY, ROW_CHECKSUMS_KEY, MERGE_OPERATOR_KEY} | OF_4_2
KEYS = {
    "4.0": OF_OPERATORS | {ENCODING_KEY},
    "4.1": OF_OPERATORS | {ENCODING_KEY},
    "4.2": SINCE_4_2,
    "4.3": SINCE_4_2 | OF_4_3,
}
"""The keys of Spark's table, by release: whoever adds one has asked if this project reads the option, which
then belongs in `UNNAMED`.
"""


@pytest.fixture(scope="module")
def metadata(spark) -> Any:
    """Return Spark's object of the metadata in offset logs, which Spark 4.0 has in another package."""
    for name in (f"{PACKAGE}.checkpointing.OffsetSeqMetadata$", f"{PACKAGE}.OffsetSeqMetadata$"):
        try:
            found = spark._jvm.java.lang.Class.forName(name)
        except Exception as error:
            assert "ClassNotFoundException" in str(error)
        else:
            return found.getField("MODULE$").get(None)
    raise AssertionError("this Spark has the table in yet another place")


def test_the_table_is_that_of_this_spark(metadata):
    field = metadata.getClass().getDeclaredField("relevantSQLConfDefaultValues")
    field.setAccessible(True)
    table = field.get(metadata)
    keys = set(_elements(table.keys().toSeq()))
    assert keys == KEYS[".".join(pyspark.__version__.split(".")[:2])]
    has = {key: table.get(key).get() for key in UNNAMED if table.contains(key)}
    assert has.keys() == keys & UNNAMED.keys()
    pinned = {entry.key() for entry in _elements(metadata.relevantSQLConfs())}
    assert has == {key: value for key, value in UNNAMED.items() if key in pinned}


def _elements(scala: Any) -> list[Any]:
    return [scala.apply(number) for number in range(scala.size())]
