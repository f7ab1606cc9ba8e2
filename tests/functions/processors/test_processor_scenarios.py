"""In the situations of Spark's own tests, a processor in batches does as it does in Spark's worker."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pyarrow as pa
import pytest
import scenario_processors as processors
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from test_processor_semantics import last_lines
from test_processors import BATCHED, OURS, PROCESSORS, STATE_RECORDS

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2",), long=("4.1",)), pytest.mark.tier("more")]

ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
SAID = "k string, said string"
FORMS = ("rows", "frames")
COUNTS = ("Vars", "Timers", "TTLExpiry")
"""Ends of the names of figures that do not depend on a clock."""

SCHEMA = "a string, v long, c string, t timestamp"


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Return a batch of (a, v, c, minute)."""
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    a, v, c, minutes = zip(*rows, strict=True)
    times = [start + datetime.timedelta(minutes=minute) for minute in minutes]
    return pa.table(
        {
            "a": pa.array(a, pa.string()),
            "v": pa.array(v, pa.int64()),
            "c": pa.array(c, pa.string()),
            "t": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


BATCHES = [
    table([("x", 1, "p", 10), ("y", 2, "p", 20), ("x", 3, "q", 11), ("x", 4, "p", 12)]),
    table([("x", 5, "p", 1), ("z", 6, None, 30), (None, 7, "q", 2), ("y", 8, "p", 31)]),
    table([("y", 9, "p", 3), ("x", 10, "q", 60), ("z", 11, None, 61)]),
]


@pytest.fixture
def play(spark, stream, conf):
    """Return a function that plays batches in Spark's worker and in batches and compares.

    Its arguments: a function that returns the stateful frame for a frame and the number of the run; the
    watermark; how many runs there are, among which the batches are divided; the options of `Stream.run`.
    """
    for name, value in OURS.items():
        conf(name, value)

    def played(query, watermark, runs, batched, **options):
        made = stream(SCHEMA, [], watermark)
        for run in range(runs):
            for batch in BATCHES[run::runs] if runs > 1 else BATCHES:
                made.add(batch)
            conf(PROCESSORS, batched(run))
            made.run(lambda frame, run=run: query(frame, run), **options)
            assert (BATCHED in made.plan) == (batched(run) == "true")
        return made.outcome().rows, made.figures, [counts(report) for report in made.progress]

    def compare(query, watermark=None, runs=1, forms=(lambda run: "true",), **options):
        stock = played(query, watermark, runs, lambda run: "false", **options)
        for batched in forms:
            assert played(query, watermark, runs, batched, **options) == stock
        return stock

    return compare


def counts(report: Any) -> dict[str, int]:
    """Return the figures of a batch that Spark's handle of a processor counts."""
    figures = report.stateOperators[0].customMetrics if report.stateOperators else {}
    return {name: value for name, value in figures.items() if name.endswith(COUNTS)}


def by(frame: Any, *keys: str, form: str = "rows") -> Any:
    """Return the method that runs a processor of this form."""
    groups = frame.groupBy(*keys)
    return groups.transformWithStateInPandas if form == "frames" else groups.transformWithState


def test_deleting_variables_is_as_in_sparks_worker(play):
    _, _, figures = play(lambda frame, run: by(frame, "a")(processors.Deletes(), SAID, "update", "None"))
    assert figures[0]["numDeletedStateVars"] > 0


def test_processing_time_timers_fire_as_in_sparks_worker(play):
    rows, _, figures = play(
        lambda frame, run: by(frame, "a")(processors.Due(), SAID, "update", "processingTime"),
        no_data_batches=False,
    )
    assert sum(report["numRegisteredTimers"] for report in figures) > 8
    assert len(rows[2]) > 6


@pytest.mark.tier("more")
@pytest.mark.parametrize("time_mode", ["None", "processingTime"])
def test_late_rows_stay_without_event_time(play, time_mode):
    rows, _, _ = play(
        lambda frame, run: by(frame, "a")(processors.Times(), SAID, "update", time_mode),
        watermark="t 1 minute",
        no_data_batches=False,
    )
    assert sum(map(len, rows.values())) == 9


@pytest.mark.tier("more")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_initial_state", [False, True])
def test_a_key_of_columns_that_are_not_neighbours_is_as_in_sparks_worker(
    spark, play, form, with_initial_state
):
    processor = processors.Sums if form == "rows" else processors.SumsOfFrames
    initial = None
    if with_initial_state:
        rows = [(100, "p", "x"), (200, "p", "w"), (300, None, "z")]
        initial = spark.createDataFrame(rows, "v long, c string, a string").groupBy("c", "a")
    rows, _, _ = play(
        lambda frame, run: by(frame, "c", "a", form=form)(processor(), SAID, "update", "None", initial)
    )
    assert ("105" in str(rows)) == with_initial_state  # 100 + 1 + 4


@pytest.mark.tier("more")
def test_timers_of_an_initial_state_fire_as_in_sparks_worker(spark, play):
    initial = spark.createDataFrame([("x", 28_401_125), ("w", 28_401_130)], "a string, v long").groupBy("a")
    rows, _, _ = play(
        lambda frame, run: by(frame, "a")(
            processors.TimersFromTheStart(), SAID, "update", "eventTime", initial
        ),
        watermark="t 1 minute",
    )
    assert sum("1704067800000" in said for batch in rows.values() for _, said in batch) >= 1


@pytest.mark.tier("more")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("partitions", [1, 2])
def test_an_initial_state_with_timers_and_a_projection_behind_it_are_as_in_sparks_worker(
    spark, play, conf, form, partitions
):
    conf("spark.sql.shuffle.partitions", partitions)
    processor = processors.TimersFromTheStart if form == "rows" else processors.TimersOfFrames
    initial = spark.createDataFrame([("x", 1), ("w", 2)], "a string, v long").groupBy("a")

    def query(frame: Any, run: int) -> Any:
        said = by(frame, "a", form=form)(processor(), SAID, "update", "processingTime", initial)
        return said.select(F.col("k").alias("key"), F.to_json(F.struct("said")).alias("said"))

    rows, _, _ = play(query, no_data_batches=False)
    assert all("said" in said for batch in rows.values() for _, said in batch)
    assert "w" in str(rows[0]), "the timer of a key without rows was not due"


@pytest.mark.tier("more")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_state_read_as_a_table_starts_another_query_as_in_sparks_worker(
    spark, stream, conf, form, partitions
):
    """The initial state has several rows for a key."""
    for name, value in {**OURS, "spark.sql.shuffle.partitions": partitions}.items():
        conf(name, value)
    processor = processors.Inherits if form == "rows" else processors.InheritsFrames
    found = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        first, second = stream(SCHEMA, BATCHES), stream(SCHEMA, BATCHES[1:])
        first.run(lambda frame: by(frame, "a", form=form)(processor(), SAID, "update", "None"))
        read = spark.read.format("statestore").option("stateVarName", "values")
        state = read.load(str(first.directory / "checkpoint"))
        initial = state.selectExpr("key.a as a", "list_element.v as v").groupBy("a")
        second.run(
            lambda frame, initial=initial: by(frame, "a", form=form)(
                processor(), SAID, "update", "None", initial
            )
        )
        assert (BATCHED in second.plan) == (batched == "true")
        found.append((first.outcome().rows, second.outcome().rows))
    assert found[1] == found[0]
    assert "(1,), (3,), (4,), (5,), (5,)" in str(found[0][1])


LIMITS = [
    ("spark.sql.execution.arrow.maxBytesPerBatch", 2),
    ("spark.sql.execution.arrow.maxBytesPerBatch", 100_000),
    ("spark.sql.execution.arrow.maxRecordsPerBatch", 1),
    ("spark.sql.execution.arrow.maxRecordsPerBatch", -1),
]


@pytest.mark.tier("more")
@pytest.mark.parametrize(("limit", "value"), LIMITS)
@pytest.mark.parametrize("with_initial_state", [False, True])
def test_groups_come_in_as_many_frames_as_in_sparks_worker(
    spark, play, conf, limit, value, with_initial_state
):
    conf(limit, value)
    initial = None
    if with_initial_state:
        initial = spark.createDataFrame([("x", 100), ("w", 5)], "a string, v long").groupBy("a")
    rows, _, _ = play(
        lambda frame, run: by(frame, "a", form="frames")(processors.Chunks(), SAID, "update", "None", initial)
    )
    in_pieces = "[1, 1" in str(rows)
    assert in_pieces == (value in (1, 2))


@pytest.mark.tier("more")
def test_timers_in_a_single_partition_fire_as_in_sparks_worker(play, conf):
    conf("spark.sql.shuffle.partitions", "1")
    conf(STATE_RECORDS, "2")
    play(
        lambda frame, run: by(frame, "a")(processors.Due(), SAID, "update", "processingTime"),
        no_data_batches=False,
    )


def test_expired_values_are_gone_as_in_sparks_worker(play):
    rows, _, figures = play(
        lambda frame, run: by(frame, "a")(processors.Forgets(), SAID, "update", "processingTime"),
        no_data_batches=False,
    )
    assert all("((None, False, [], [], False" in said for batch in rows.values() for _, said in batch)
    assert sum(report["numValuesRemovedDueToTTLExpiry"] for report in figures) > 3


@pytest.mark.tier("more")
@pytest.mark.parametrize("form", FORMS)
def test_nested_output_is_as_in_sparks_worker(play, form):
    processor = processors.Composite if form == "rows" else processors.CompositeFrames
    rows, _, _ = play(
        lambda frame, run: by(frame, "a", form=form)(processor(), processors.COMPOSITE, "update", "None")
    )
    assert "Row(x=2" in str(rows)


def test_both_workers_continue_a_checkpoint_in_turns(play):
    play(
        lambda frame, run: by(frame, "a")(processors.Deletes(), SAID, "update", "None"),
        runs=3,
        forms=(
            lambda run: ("true", "false", "true")[run],
            lambda run: ("false", "true", "false")[run],
        ),
    )


VERSIONS = {
    "grows": [processors.Evolving, processors.MoreFields, processors.WiderField],
    "shrinks": [processors.MoreFields, processors.Evolving, processors.OtherOrder],
}
"""Processors of the same variable, whose schema changes from run to run."""


@pytest.mark.tier("more")
@pytest.mark.parametrize("change", VERSIONS)
def test_a_schema_that_changes_from_run_to_run_is_as_in_sparks_worker(play, conf, change):
    conf(ENCODING, "avro")
    versions = VERSIONS[change]
    rows, _, _ = play(
        lambda frame, run: by(frame, "a")(versions[run](), SAID, "update", "None"),
        runs=3,
        forms=(lambda run: "true", lambda run: ("true", "false", "true")[run]),
    )
    assert ("None, None, None" in str(rows[1])) == (change == "grows")


REFUSED = [
    ("avro", processors.Evolving, processors.OtherType, "EVOLUTION"),
    ("avro", processors.WiderField, processors.Evolving, "EVOLUTION"),
    ("unsaferow", processors.Evolving, processors.OtherType, "SCHEMA"),
    ("unsaferow", processors.Evolving, processors.MoreFields, "SCHEMA"),
    ("avro", processors.Evolving, processors.NotNull, "NULLABLE"),
]


@pytest.mark.tier("more")
@pytest.mark.parametrize(("encoding", "before", "after", "words"), REFUSED)
def test_a_forbidden_change_of_schema_is_refused_as_in_sparks_worker(
    stream, conf, encoding, before, after, words
):
    for name, value in {**OURS, ENCODING: encoding}.items():
        conf(name, value)
    errors = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        made = stream(SCHEMA, BATCHES[:1])
        made.run(lambda frame: by(frame, "a")(before(), SAID, "update", "None"))
        made.add(BATCHES[1])
        with pytest.raises(StreamingQueryException, match=words) as error:
            made.run(lambda frame: by(frame, "a")(after(), SAID, "update", "None"))
        errors.append(re.findall(r"\[(\w+)\]", str(error.value)))
    assert errors[0] == errors[1]


@pytest.mark.tier("more")
def test_large_texts_in_all_variables_are_kept_as_in_sparks_worker(play):
    rows, _, _ = play(lambda frame, run: by(frame, "a")(processors.LargeTexts(), SAID, "update", "None"))
    assert len(rows) == 3


@pytest.mark.tier("more")
@pytest.mark.parametrize("coerces", ["true", "false"])
def test_integers_for_decimals_are_taken_if_spark_takes_them(stream, conf, coerces):
    option = "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
    for name, value in {**OURS, option: coerces}.items():
        conf(name, value)
    found = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        made = stream(SCHEMA, BATCHES)
        try:
            made.run(
                lambda frame: by(frame, "a", form="frames")(
                    processors.IntegersForDecimals(), "k string, d decimal(10,2)", "update", "None"
                )
            )
            found.append(made.outcome().rows)
        except StreamingQueryException as error:
            found.append(last_lines(str(error)))
    assert found[1] == found[0]
    assert isinstance(found[0], dict) == (coerces == "true")


@pytest.mark.tier("more")
def test_spark_reads_states_and_their_changes_as_after_its_own_worker(spark, stream, conf):
    for name, value in OURS.items():
        conf(name, value)
    found = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        made = stream(SCHEMA, BATCHES)
        made.run(lambda frame: by(frame, "a")(processors.Deletes(), SAID, "update", "None"))
        place = str(made.directory / "checkpoint")
        described = spark.read.format("state-metadata").load(place)
        read = spark.read.format("statestore").option("stateVarName", "count")
        changes = read.option("readChangeFeed", "true").option("changeStartBatchId", "0")
        frames = [described, read.load(place), changes.load(place)]
        found.append([sorted(map(repr, frame.collect())) for frame in frames])
    assert found[1] == found[0]
    assert len(found[0][2]) == 9


@pytest.mark.tier("more")
@pytest.mark.parametrize("with_initial_state", [False, True])
def test_spark_reads_lists_and_maps_as_after_its_own_worker(spark, stream, conf, with_initial_state):
    for name, value in OURS.items():
        conf(name, value)
    found = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        made = stream(SCHEMA, BATCHES)
        initial = None
        if with_initial_state:
            initial = spark.createDataFrame([("x", 100)], "a string, v long").groupBy("a")
        made.run(
            lambda frame, initial=initial: by(frame, "a")(
                processors.Inherits(), SAID, "update", "processingTime", initial
            ),
            no_data_batches=False,
        )
        place = str(made.directory / "checkpoint")
        frames = [spark.read.format("state-metadata").load(place)]
        for variable in ("values", "words"):
            for is_flat in ("true", "false"):
                read = spark.read.format("statestore").option("stateVarName", variable)
                frames.append(read.option("flattenCollectionTypes", is_flat).load(place))
        found.append([sorted(map(repr, frame.collect())) for frame in frames])
    assert found[1] == found[0]
    assert len(found[0][1]) == 11 + with_initial_state


@pytest.mark.tier("more")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_initial_state", [False, True])
def test_a_batch_query_gives_the_rows_of_sparks_worker(spark, conf, form, with_initial_state):
    for name, value in OURS.items():
        conf(name, value)
    processor = processors.Sums if form == "rows" else processors.SumsOfFrames
    initial = None
    if with_initial_state:
        initial = spark.createDataFrame([("x", 100), ("w", 5)], "a string, v long").groupBy("a")
    frame = spark.createDataFrame([("x", 1), ("y", 2), ("x", 3)], "a string, v long")
    found = []
    for batched in ("false", "true"):
        conf(PROCESSORS, batched)
        said = by(frame, "a", form=form)(processor(), SAID, "update", "None", initial)
        found.append(sorted(map(tuple, said.collect())))
    assert found[1] == found[0]
    assert ("104" in str(found[0])) == with_initial_state
