"""Spark's readers of state: the `statestore` source at each batch, its change feed, `state-metadata`."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from queries.small.flow import Flow
from queries.small.forgetting import remembered

import state_store

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

BATCHES = 9
RETAINED = 4


class History:
    """A query that ran `BATCHES` batches, and its required state after each."""

    def __init__(self, flow: Flow, seed: int):
        rng = random.Random(seed)
        keys = [f"k{number:02}" for number in range(15)]
        self.flow, self.states, self.changed = flow, [], []
        state: dict[str, int] = {}
        for number in range(BATCHES):
            if number == BATCHES - 1:
                self._run_to_a_snapshot()
            records = [(rng.choice(keys), rng.randint(0, 9)) for _ in range(0 if number == 6 else 12)]
            flow.feed(records)
            touched = {key: [v for k, v in records if k == key] for key, _ in records}
            state = {**state, **{key: state.get(key, 0) + sum(values) for key, values in touched.items()}}
            state = {key: total for key, total in state.items() if 0 not in touched.get(key, [])}
            self.states.append(state)
            self.changed.append(set(touched))
        flow.run()

    def _run_to_a_snapshot(self) -> None:
        """Run the batches fed so far, and make the snapshots that a busy machine has not made yet."""
        self.flow.run()
        stores = self.flow.checkpoint / "state" / "0"
        if not all(start_batches(stores / partition) for partition in "01"):
            state_store.full_checkpoint(self.flow.checkpoint)

    def expected_changes(self, number: int) -> set[tuple]:
        """Return the required change feed of a batch: the written totals, and the removed keys."""
        before, after = self.states[number - 1], self.states[number]
        written = {(number, "update", key, after[key]) for key in self.changed[number] & set(after)}
        return written | {(number, "delete", key, None) for key in set(before) - set(after)}


def start_batches(store: Path) -> list[int]:
    """Return the retained batches before the last one after which a snapshot of the store was made.

    The names of the files tell them.
    """
    files = [*store.glob("*.zip"), *store.glob("*.snapshot"), *store.glob("snapshot/*.zip")]
    batches = sorted(int(re.match(r"\d+", file.name)[0]) - 1 for file in files)
    return [batch for batch in batches if BATCHES - RETAINED <= batch < BATCHES - 1]


@pytest.fixture(scope="module", params=[1, 2])
def history(spark, provider, tmp_path_factory, request) -> History:
    if provider == "hdfs" and request.param == 2:
        pytest.skip("Spark's HDFS-backed store has no checkpoint format 2")
    options = {
        "spark.sql.streaming.stateStore.checkpointFormatVersion": request.param,
        "spark.sql.streaming.minBatchesToRetain": RETAINED,
    }
    return History(Flow(spark, tmp_path_factory.mktemp("reader"), remembered, **options), seed=7)


def totals_of(rows: dict[str, dict]) -> dict[str, int]:
    return {key: value["groupState"]["total"] for key, value in rows.items()}


@pytest.mark.parametrize("batch", range(BATCHES - RETAINED, BATCHES))
def test_every_retained_batch_is_readable(history, batch):
    assert totals_of(history.flow.state_of_keys(batchId=batch)) == history.states[batch]


def test_the_newest_batch_is_the_default(history):
    assert totals_of(history.flow.state_of_keys()) == history.states[-1]


@pytest.mark.older(more=("4.2",), long=("4.1",))
def test_the_change_feed_has_each_batch(history):
    first = BATCHES - RETAINED + 1
    rows = history.flow.state(readChangeFeed=True, changeStartBatchId=first, changeEndBatchId=BATCHES - 1)
    feed = {
        (
            row["batch_id"],
            row["change_type"],
            row["key"]["key"],
            row["value"] and row["value"]["groupState"]["total"],
        )
        for row in rows
    }
    assert feed == set().union(*(history.expected_changes(number) for number in range(first, BATCHES)))
    assert {kind for _, kind, _, _ in feed} == {"update", "delete"}


@pytest.mark.parametrize("partition", [0, 1])
def test_a_batch_is_rebuilt_from_a_snapshot_before_it(history, partition):
    starts = start_batches(history.flow.checkpoint / "state" / "0" / str(partition))
    full = history.flow.state(batchId=BATCHES - 1)
    wanted = {row["key"]["key"] for row in full if row["partition_id"] == partition}
    rebuilt = history.flow.state_of_keys(
        batchId=BATCHES - 1, snapshotStartBatchId=starts[0], snapshotPartitionId=partition
    )
    assert totals_of(rebuilt) == {key: history.states[-1][key] for key in wanted}


def test_state_metadata_describes_the_operator(history):
    rows = history.flow.spark.read.format("state-metadata").load(str(history.flow.checkpoint)).collect()
    (row,) = [row.asDict() for row in rows]
    assert row["operatorName"] == "applyInPandasWithState"
    assert (row["stateStoreName"], row["numPartitions"]) == ("default", 2)
    assert row["maxBatchId"] == BATCHES - 1


def test_a_batch_that_does_not_exist_is_refused(history):
    with pytest.raises(Exception, match="STDS_COMMITTED_BATCH_UNAVAILABLE"):
        history.flow.state(batchId=BATCHES + 5)
