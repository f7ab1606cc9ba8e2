"""What ``StreamingQueryProgress`` says of the state: Spark's figures against a model."""

from __future__ import annotations

from queries.flow import Flow
from queries.forgetting import remembered

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


def test_commit_time_and_memory_are_reported(spark, tmp_path):
    query = Flow(spark, tmp_path / "flow").run([(f"k{number}", number) for number in range(500)])
    operator = query.lastProgress.stateOperators[0]
    assert operator.memoryUsedBytes > 0
    assert operator.commitTimeMs > 0
