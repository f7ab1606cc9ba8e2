"""A query goes on after its state was written anew, in other partitions, as it goes on without."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dataset.golden_states import in_order
from queries import records
from queries.catalogue import SCENARIOS
from queries.flow import session_options
from queries.scenario import Scenario
from queries.sink import rows_of

import state_store
from state_store.dataset.importing import import_rows
from state_store.dataset.repartition import repartition
from state_store.query import Query

pytestmark = [pytest.mark.spark, pytest.mark.spark42_long]

BATCHES = 6
FIRST = 3
FEW = ["session-window-append", "join-full", "pandas-event-time", "drop-duplicates-within-watermark"]
# By the clock, or refused: keys within keys.
LEFT_OUT = [name for name in SCENARIOS if "processing-time" in name or name.startswith("processor")]
NAMES = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.long)
    for name in SCENARIOS
    if name not in LEFT_OUT
]


class Goings:
    """Queries that ran a few batches, and went on twice: as they were, and with their state written anew."""

    def __init__(self, spark, root: Path, names: list[str]):
        self.spark, self.root, self.names = spark, root, names
        self.outputs: dict[tuple[str, str], list[str]] = {}
        self._inputs = {"events": records.batches(5, BATCHES), "answers": records.batches(6, BATCHES)}

    def play(self) -> None:
        self._feed(slice(FIRST))
        self._run("before")
        for name in self.names:
            self._change(str(self.checkpoint(name, "before")), str(self.checkpoint(name, "other")))
            shutil.copytree(self.checkpoint(name, "before"), self.checkpoint(name, "same"))
        self._feed(slice(FIRST, None))
        self._run("same")
        self._run("other")

    def checkpoint(self, name: str, way: str) -> Path:
        return self.root / way / name

    def _change(self, before: str, after: str) -> None:
        """Another number of partitions; and where there is one store, its rows go out and in again."""
        between = f"{after}-between"
        repartition(before, between, 5)
        operators = Query.open(between).operators
        if [len(one.stores) for one in operators] == [1]:
            with state_store.open(between) as state:
                import_rows(between, state, after)
        else:
            shutil.move(between, after)

    def _feed(self, part: slice) -> None:
        for stream, batches in self._inputs.items():
            scratch = self.root / "scratch" / stream
            records.write(scratch, batches)
            (self.root / stream).mkdir(exist_ok=True)
            for path in sorted(scratch.iterdir())[part]:
                path.rename(self.root / stream / path.name)
            shutil.rmtree(scratch)

    def _run(self, way: str) -> None:
        running = [self._start(SCENARIOS[name], way) for name in self.names]
        for query in running:
            query.awaitTermination()

    def _start(self, scenario: Scenario, way: str):
        output = self.outputs.setdefault((scenario.name, way), [])
        with session_options(self.spark, scenario.conf):
            events, answers = (
                self.spark.readStream.schema(records.SCHEMA)
                .option("maxFilesPerTrigger", 1)
                .json(str(self.root / stream))
                for stream in ("events", "answers")
            )
            writer = scenario.query(events, answers).writeStream.outputMode(scenario.mode)
            writer = writer.option("checkpointLocation", str(self.checkpoint(scenario.name, way)))
            writer = writer.trigger(availableNow=True)
            return writer.foreachBatch(lambda frame, _batch: output.extend(rows_of(frame))).start()


@pytest.fixture(scope="module")
def goings(spark, tmp_path_factory, request) -> Iterator[Goings]:
    names = sorted(
        item.callspec.params["name"] for item in request.session.items if item.module is request.module
    )
    found = Goings(spark, tmp_path_factory.mktemp("goings"), names)
    found.play()
    yield found


@pytest.mark.parametrize("name", NAMES)
def test_output_and_state_are_the_same_with_other_partitions(goings, name):
    same, other = (goings.outputs[name, way] for way in ("same", "other"))
    assert sorted(other) == sorted(same)
    assert same or goings.outputs[name, "before"]
    query = Query.open(str(goings.checkpoint(name, "other")))
    assert {count for one in query.operators for count in one.stores.values()} <= {1, 5}
    for operator in query.operators:
        for store in operator.stores:
            rows = [_rows(goings.checkpoint(name, way), operator.id, store) for way in ("same", "other")]
            assert rows[0] == rows[1]


def _rows(checkpoint: Path, operator: int, store: str) -> list[dict]:
    with state_store.open(str(checkpoint), operator, store) as state:
        names = [name for name in state.schema.names if name != "partition_id"]
        return in_order(state.to_arrow(names).to_pylist())
