"""Features that Spark refuses to other stores: docs/operators.md quotes the messages, with advice."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from queries.small.flow import Flow, session_options

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

RECORDS = [("a", 1), ("b", 2), ("a", 3)]


@pytest.fixture(autouse=True)
def _only_for_custom_providers(provider):
    if provider == "rocksdb":
        pytest.skip("Spark refuses these to every provider but this one")


# Spark 4.2 refuses by its list of allowed operators; 4.3 checks the provider, too.
@pytest.mark.parametrize("check", [True] if pyspark.__version__.startswith("4.2") else [True, False])
def test_real_time_mode_is_refused(spark, tmp_path, check):
    refused = spark._jvm.statestore.queries.Refused
    options = {"spark.sql.streaming.realTimeMode.allowlistCheck": str(check).lower()}
    with session_options(spark, options), pytest.raises(Exception, match="STREAMING_REAL_TIME_MODE"):
        refused.realTime(spark._jsparkSession, str(tmp_path / "checkpoint"), 5000, 240000)


def test_offline_repartition_is_refused_and_can_be_undone(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow")
    flow.run(RECORDS)
    with pytest.raises(
        Exception, match=r"STATE_REPARTITION_INVALID_CHECKPOINT.UNSUPPORTED_PROVIDER"
    ) as refusal:
        spark._streamingCheckpointManager.repartition(str(flow.checkpoint), 3)
    assert spark.conf.get("spark.sql.streaming.stateStore.providerClass") in str(refusal.value)

    with pytest.raises(StreamingQueryException, match="STREAMING_UNFINISHED_REPARTITION_DETECTED"):
        flow.run(RECORDS)
    for name in ("1", ".1.crc"):
        (flow.checkpoint / "offsets" / name).unlink(missing_ok=True)
    flow.run()
    assert sorted((row["key"], row["n"]) for row in flow.batches[-1]) == [("a", 4), ("b", 2)]
