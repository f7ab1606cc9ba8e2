"""Spark refuses to start a query, or goes on, as `verify` says of the files of its checkpoint."""

from __future__ import annotations

import shutil

import pytest
from maintenance.test_spark_files import GOES_ON, HOW, STOPS, files_named
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from queries.small.flow import Flow

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

BATCHES = [[(f"k{number % 3}", number + batch) for number in range(5)] for batch in range(5)]
SOURCES = [("sources/0/4", "removed"), ("sources/0/4", "emptied")]


@pytest.fixture(scope="module")
def stopped(spark, provider, tmp_path_factory) -> Flow:
    """Make a query that was stopped in batch 4, which had begun; batch 3 was committed."""
    if provider != "incremental":
        pytest.skip("the files of the query's logs are the same in each store")
    flow = Flow(spark, tmp_path_factory.mktemp("stopped"), **{"spark.sql.shuffle.partitions": 1})
    flow.run(*BATCHES)
    (flow.checkpoint / "commits/4").unlink()
    return flow


@pytest.mark.parametrize(("file", "how"), [(None, None), *STOPS, *SOURCES, *GOES_ON])
def test_a_start_does_as_the_judgement_of_the_files_says(stopped, tmp_path, file, how):
    flow = stopped.copied(tmp_path / "flow")
    if file:
        path = flow.checkpoint / file
        HOW[how](path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    named = files_named(flow.checkpoint)
    if named:
        assert named == [file]
        with pytest.raises((PySparkException, Py4JJavaError)):
            flow.run()
        assert flow.batches == []
    else:
        flow.run()
        values = [record for batch in BATCHES for record in batch]
        assert {key: row["sum"] for key, row in flow.state_of_keys().items()} == {
            key: sum(value for k, value in values if k == key) for key, _ in values
        }


def test_a_stream_that_a_union_reads_twice_starts_as_the_judgement_says(spark, provider, tmp_path):
    if provider != "incremental":
        pytest.skip("the files of the query's logs are the same in each store")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"key": "a"}\n{"key": "b"}\n')
    rows = spark.readStream.schema("key string").json(str(tmp_path / "in"))

    def run(directory):
        counted = rows.union(rows).groupBy("key").count().writeStream.outputMode("update")
        query = counted.format("noop").option("checkpointLocation", str(directory)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    directory = tmp_path / "checkpoint"
    run(directory)
    assert sorted(path.name for path in (directory / "sources").iterdir()) == ["0"]
    assert files_named(directory) == []
    run(directory)
    shutil.rmtree(directory / "sources")
    assert files_named(directory) == ["sources/0/0"]
    with pytest.raises((PySparkException, Py4JJavaError)):
        run(directory)
