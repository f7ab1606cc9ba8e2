"""A processor in batches has the results that Spark's `TwsTester` gives without a query."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import scenario_processors as processors
from pyspark.sql import Row
from test_processor_scenarios import BATCHES, FORMS, SAID, SCHEMA, by
from test_processors import BATCHED, OURS, PROCESSORS

TwsTester = pytest.importorskip("pyspark.sql.streaming.tws_tester").TwsTester

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2",)), pytest.mark.tier("more")]

INITIAL = {"x": 100, "w": 5}


def of_tester(form: str, with_initial_state: bool) -> dict[int, list[tuple[Any, ...]]]:
    """Return the output of the tester for each batch, whose groups it gets one after the other."""
    if form == "rows":
        rows = [(key, Row(v=v)) for key, v in INITIAL.items()]
        tester = TwsTester(processors.Remembers(), initialStateRow=rows if with_initial_state else None)
    else:
        frames = [(key, pd.DataFrame({"v": [v]})) for key, v in INITIAL.items()]
        tester = TwsTester(
            processors.RemembersFrames(), initialStatePandas=frames if with_initial_state else None
        )
    found: dict[int, list[tuple[Any, ...]]] = {}
    for number, batch in enumerate(BATCHES):
        groups: dict[Any, list[dict[str, Any]]] = {}
        for row in batch.select(["a", "v", "c"]).to_pylist():
            groups.setdefault(row.pop("a"), []).append(row)
        said: list[tuple[Any, ...]] = []
        for key, rows_of_key in groups.items():
            if form == "rows":
                said += map(tuple, tester.test(key, [Row(**row) for row in rows_of_key]))
            else:
                answer = tester.testInPandas(key, pd.DataFrame(rows_of_key))
                said += answer[["k", "said"]].itertuples(index=False, name=None)
        found[number] = sorted(said)
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_initial_state", [False, True])
def test_a_processor_has_the_results_of_sparks_tester(spark, stream, conf, form, with_initial_state):
    for name, value in {**OURS, PROCESSORS: "true"}.items():
        conf(name, value)
    processor = processors.Remembers if form == "rows" else processors.RemembersFrames
    initial = None
    if with_initial_state:
        initial = spark.createDataFrame(list(INITIAL.items()), "a string, v long").groupBy("a")
    made = stream(SCHEMA, BATCHES)
    made.run(lambda frame: by(frame, "a", form=form)(processor(), SAID, "update", "None", initial))
    assert BATCHED in made.plan
    assert {batch: sorted(rows) for batch, rows in made.rows.items()} == of_tester(form, with_initial_state)
