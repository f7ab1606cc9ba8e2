"""A query continues after its state was exported and imported, in other partitions, as without that.

The state comes to other partitions while the query has yet to run a batch there (`repartition` beside it).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import late_workers
import pyarrow
import pytest
from dataset.golden_states import in_order
from queries.runs.row_sink import rows_of
from queries.scenarios import records
from queries.scenarios.catalogue import SCENARIOS
from queries.scenarios.scenario import Scenario
from queries.small.flow import session_options

import state_store
from state_store.data.dataset.rewriting.copying import repartition
from state_store.data.dataset.rewriting.importing import import_state
from state_store.data.dataset.views import views
from state_store.data.query import Operator, Query

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

BATCHES = 4
FIRST = 2
AT_ONCE = 7
FEW = [
    "session-window-append",
    "join-full",
    "pandas-event-time",
]
LEFT_OUT = [name for name in SCENARIOS if "processing-time" in name]  # by the clock
NAMES = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.tier("long"))
    for name in SCENARIOS
    if name not in LEFT_OUT
]


class Goings:
    """Queries that ran a few batches, and continued twice: unchanged, and with rewritten state."""

    def __init__(self, spark, root: Path, names: list[str]):
        self.spark, self.root, self.names = spark, root, names
        self.outputs: dict[tuple[str, str], list[str]] = {}
        self._inputs = {"events": records.batches(5, BATCHES), "answers": records.batches(6, BATCHES)}

    def play(self) -> None:
        self._feed(slice(1))
        self._run("before")
        for name in self.names:
            repartition(str(self.checkpoint(name, "before")), self._between(name), 5, running=True)
        self._feed(slice(1, FIRST))
        self._run("before")
        for name in self.names:
            self._change(str(self.checkpoint(name, "before")), str(self.checkpoint(name, "other")))
            shutil.copytree(self.checkpoint(name, "before"), self.checkpoint(name, "same"))
        self._feed(slice(FIRST, None))
        self._run("same")
        self._run("other")

    def checkpoint(self, name: str, way: str) -> Path:
        return self.root / way / name

    def _between(self, name: str) -> str:
        return f"{self.checkpoint(name, 'other')}-between"

    def _change(self, before: str, after: str) -> None:
        """Change the number of partitions, and export and import the rows of each operator."""
        repartition(before, at := f"{after}-between", 5)  # goes on with what is there
        operators = Query.open(at).operators
        for operator in operators:
            target = after if operator is operators[-1] else f"{after}-{operator.id}"
            taken = {name: _table(at, operator.id, name) for name in _given(at, operator)}
            import_state(at, taken, target, operator.id)
            at = target

    def _feed(self, part: slice) -> None:
        for stream, batches in self._inputs.items():
            records.write(self.root / stream, batches, part)

    def _run(self, way: str) -> None:
        for names in _side_by_side(self.names):
            late_workers.run_all(partial(self._start, SCENARIOS[name], way) for name in names)

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


def _side_by_side(names: list[str]) -> list[list[str]]:
    """Run a few at a time, processors alone: Spark gives each of their workers ten seconds to start."""
    alone = [[name] for name in names if name.startswith("processor")]
    others = [name for name in names if not name.startswith("processor")]
    return [*alone, *(others[first : first + AT_ONCE] for first in range(0, len(others), AT_ONCE))]


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
    assert {count for operator in query.operators for count in operator.stores.values()} <= {1, 5}
    compared = 0
    for operator in query.operators:
        for store in _all_rows(query, operator):
            rows = [_rows(goings.checkpoint(name, way), operator.id, store) for way in ("same", "other")]
            assert rows[0] == rows[1], store
            compared += len(rows[0])
    assert compared


def _given(checkpoint: str, operator: Operator) -> list[str]:
    """Return the stores whose rows are imported."""
    if operator.name == "symmetricHashJoin":
        return ["left", "right"]
    return [name for name in views(Query.open(checkpoint), operator) if not name.startswith("$")]


def _all_rows(query: Query, operator: Operator) -> list[str]:
    """Return all rows that Spark keeps for the operator."""
    return [name for name, view in views(query, operator).items() if not view.hidden]


def _table(checkpoint: str, operator: int, store: str) -> pyarrow.Table:
    with state_store.open(checkpoint, operator, store) as state:
        return state.to_arrow()


def _rows(checkpoint: Path, operator: int, store: str) -> list[dict]:
    found = _table(str(checkpoint), operator, store)
    return in_order(found.drop_columns("partition_id").to_pylist())
