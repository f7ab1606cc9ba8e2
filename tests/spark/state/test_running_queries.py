"""A query of Spark that gets another number of partitions while it runs, and goes on there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from queries import session_settings
from queries.small.flow import Flow
from waiting import awaited

import state_store
from state_store.data.dataset.rewriting.beside import Beside
from state_store.data.query import Query

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2", "4.1", "4.0"))]

BATCHES, KEYS = 16, 40
FIRST_CALL, SECOND_CALL = 4, 12
"""Batches in the middle of which the first call begins, and after which the query stops."""


def records(batch: int) -> list[tuple[str, int]]:
    """Return records of keys of which some are new in each batch."""
    return [(f"key-{(batch * 7 + number * 3) % (KEYS + 5 * batch)}", number) for number in range(30)]


@pytest.mark.dear("a query that runs beside the tool, with clean-ups and merges")
@pytest.mark.parametrize(
    ("checkpoint_format", "by_spark"),
    [
        (2, False),
        pytest.param(1, False, marks=pytest.mark.tier("more")),
        pytest.param(2, True, marks=pytest.mark.tier("more")),
        pytest.param(1, True, marks=pytest.mark.tier("more")),
    ],
)
def test_results_are_exact_after_a_repartition_beside_the_query(
    spark, provider, tmp_path, monkeypatch, checkpoint_format, by_spark
):
    if provider != "incremental":
        pytest.skip("a tool of the incremental store")
    prefix = session_settings.PREFIX
    flow = Flow(
        spark,
        tmp_path / "flow",
        **{
            prefix + "checkpointFormatVersion": checkpoint_format,
            prefix + "incremental.maxDeltas": 3,
            "spark.sql.streaming.minBatchesToRetain": 4,
            "spark.sql.shuffle.partitions": 3,
        },
    )
    for batch in range(SECOND_CALL):
        flow.feed(records(batch))
    in_batch, goes_on = threading.Event(), threading.Event()

    def sink(frame, batch: int) -> None:
        frame.count()
        if batch == FIRST_CALL:
            in_batch.set()
            assert goes_on.wait(600)

    source, target = str(flow.checkpoint), str(tmp_path / "target")
    write_bases = Beside._write_first_tables

    def written_meanwhile(own: Beside, query: Query) -> None:
        write_bases(own, query)
        goes_on.set()
        awaited(lambda: (Query.open(source).newest_batch()) >= FIRST_CALL + 3, "the query goes on")

    monkeypatch.setattr(Beside, "_write_first_tables", written_meanwhile)
    how = {"spark": spark if by_spark else None}
    running = flow.start(sink)
    assert in_batch.wait(600)
    so_far = state_store.repartition(source, target, 7, running=True, **how)
    assert so_far.version > FIRST_CALL + 3
    running.awaitTermination()
    assert running.exception() is None
    done = state_store.repartition(source, target, 7, **how)
    assert done.version == SECOND_CALL and done.rows == len(expected(SECOND_CALL))
    assert state_store.verify(target, all_versions=True).ok
    flow.checkpoint = Path(target)
    flow.run(*map(records, range(SECOND_CALL, BATCHES)))
    found = {key: (row["n"], row["total"]) for key, row in rows(target).items()}
    assert found == expected(BATCHES)
    assert Query.open(target).operators[0].stores == {"default": 7}
    state_store.full_checkpoint(target)
    assert state_store.verify(target).ok


def rows(checkpoint: str) -> dict[str, dict]:
    with state_store.open(checkpoint) as state:
        names = state.columns.key_names + [field.name for field in state.columns.value_fields]
        return {
            row[names[0]]: {"n": row[names[1]], "total": row[names[2]]}
            for row in state.to_arrow().to_pylist()
        }


def expected(batches: int) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for key, value in (record for batch in range(batches) for record in records(batch)):
        count, total = found.get(key, (0, 0))
        found[key] = count + 1, total + value
    return found
