"""The state in `StreamingQueryProgress`: Spark's figures against a model."""

from __future__ import annotations

import pytest
from queries.small.flow import Flow
from queries.small.forgetting import remembered

from state_store.observe.metrics import progress_metrics

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2",), long=("4.1",)), pytest.mark.tier("more")]

BATCHES = [
    [("a", 1), ("b", 2), ("c", 3)],
    [("a", 4), ("d", 5)],
    [("b", 0), ("c", 0)],
    [],
    [("b", 6)],
]
TOTAL = [3, 4, 2, 2, 3]
UPDATED = [3, 2, 0, 0, 1]
REMOVED = [0, 0, 2, 0, 0]


def test_rows_are_counted_exactly_in_every_batch(spark, tmp_path):
    query = Flow(spark, tmp_path / "flow", remembered).run(*BATCHES)
    operators = [progress.stateOperators[0] for progress in query.recentProgress]
    assert [operator.numRowsTotal for operator in operators] == TOTAL
    assert [operator.numRowsUpdated for operator in operators] == UPDATED
    assert [operator.numRowsRemoved for operator in operators] == REMOVED
    assert {operator.numStateStoreInstances for operator in operators} == {2}


def test_rows_are_still_counted_after_a_restart(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", remembered)
    totals = [
        progress.stateOperators[0].numRowsTotal
        for batch in BATCHES
        for progress in flow.run(batch).recentProgress
    ]
    assert totals == TOTAL


def test_a_second_action_restores_nothing(spark, provider, tmp_path):
    """Each action makes an attempt at the version, and Spark commits the first."""
    if provider != "incremental":
        pytest.skip("metrics of the incremental store")
    flow = Flow(spark, tmp_path / "flow")

    def use_twice(frame, _batch_id):
        for _action in range(2):
            frame.write.format("noop").mode("overwrite").save()

    query = flow.run(*BATCHES, sink=use_twice)
    operators = [progress.stateOperators[0] for progress in query.recentProgress]
    assert [operator.customMetrics["incrementalRestoreCount"] for operator in operators] == [0] * len(BATCHES)
    totals = {key: tuple(value.values()) for key, value in flow.state_of_keys().items()}
    assert totals == {"a": (2, 5), "b": (3, 8), "c": (2, 3), "d": (1, 5)}


@pytest.fixture(scope="module")
def metrics(spark, provider, tmp_path_factory) -> list[dict[str, int]]:
    """Return the custom metrics of all batches of a query with frequent merges and full checkpoints."""
    if provider != "incremental":
        pytest.skip("metrics of the incremental store")
    directory = tmp_path_factory.mktemp("metrics")
    query = Flow(spark, directory / "flow", remembered).run(*BATCHES, *([[("e", 7)]] * 10))
    return [progress.stateOperators[0].customMetrics for progress in query.recentProgress]


def test_deltas_are_counted_by_record(metrics):
    assert [batch["incrementalDeltaPuts"] for batch in metrics[: len(BATCHES)]] == UPDATED
    assert [batch["incrementalDeltaRemoves"] for batch in metrics[: len(BATCHES)]] == REMOVED
    assert all(0 < batch["incrementalDeltaBytes"] <= batch["incrementalUploadedBytes"] for batch in metrics)


def test_merges_and_full_checkpoints_are_counted(metrics):
    merges = sum(batch["incrementalMergeCount"] for batch in metrics)
    fulls = sum(batch["incrementalFullCount"] for batch in metrics)
    assert merges > fulls > 0
    assert sum(batch["incrementalMergeFailures"] for batch in metrics) == 0


def test_the_chain_stays_short(metrics):
    assert all(batch["incrementalChainFiles"] > 0 for batch in metrics)
    assert max(batch["incrementalChainDeltas"] for batch in metrics) < len(metrics)


def test_every_custom_metric_is_in_every_progress(metrics):
    declared = {metric.name for metric in progress_metrics()}
    assert all(declared <= set(batch) for batch in metrics)


def test_commit_time_and_memory_are_reported(spark, tmp_path):
    query = Flow(spark, tmp_path / "flow").run([(f"k{number}", number) for number in range(500)])
    operator = query.lastProgress.stateOperators[0]
    assert operator.memoryUsedBytes > 0
    assert operator.commitTimeMs > 0
