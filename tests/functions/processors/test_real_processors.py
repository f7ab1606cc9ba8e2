"""Real processors crash, loop, carry models and use Spark's tools in batches as in Spark's worker."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import late_workers
import outside
import pytest
import real_processors as processors
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StatefulProcessor, StreamingQuery
from test_processor_scenarios import BATCHES, SAID, SCHEMA, by, play  # noqa: F401 -- a fixture
from test_processors import BATCHED, OURS, PROCESSORS
from waiting import awaited

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.2",), long=("4.1",)), pytest.mark.tier("more")]

WORKERS = ("false", "true")
"""Values of the option: Spark's worker, and processors in batches."""


@pytest.fixture
def in_both(stream: Callable, conf: Callable) -> Callable:
    """Return a function that calls another for a stream in each worker, and returns what came out."""

    def called(act: Callable[[Any, str], Any]) -> list[Any]:
        for name, value in OURS.items():
            conf(name, value)
        answers = []
        for batched in WORKERS:
            conf(PROCESSORS, batched)
            made = stream(SCHEMA, BATCHES)
            answers.append(act(made, batched))
            assert not made.plan or (BATCHED in made.plan) == (batched == "true")
        return answers

    return called


def querying(processor: StatefulProcessor) -> Callable:
    return lambda frame: by(frame, "a")(processor, SAID, "update", "None")


def reason(error: Exception) -> str:
    """Return the error of Python in which a query ended, otherwise that of Spark, without numbers."""
    text = str(error)
    errors = re.findall(r"^\s*((?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit)\b.*)$", text, re.MULTILINE)
    python = [line for line in errors if not line.startswith(("org.apache", "java.", "py4j."))]
    of_spark = re.findall(r"Python worker \w+ [^\n]*", text)
    return re.sub(r"\d+", "N", [*of_spark, *python][-1])


WORDS = {"interrupt": "KeyboardInterrupt: made up", "memory": "MemoryError", "leave": "SystemExit: N"}
"""Words of the error of a death, if it is not that of a worker that is gone."""

DEAR = pytest.mark.dear("stands for workers that end in the middle of a batch")


@pytest.mark.parametrize(
    ("processor", "death"),
    [
        pytest.param(processors.Dies, death, marks=DEAR if death == "kill" else ())
        for death in processors.DEATHS
    ]
    + [(processors.DiesBetweenRows, death) for death in ("exit", "kill", "leave")],
)
def test_a_query_goes_on_after_its_worker_has_ended(in_both, tmp_path, processor, death):
    def lives(made: Any, batched: str) -> Any:
        flag = tmp_path / batched
        flag.touch()
        query = querying(processor(str(flag), death))
        with pytest.raises(StreamingQueryException) as error:
            made.run(query)
        assert sorted(made.rows) == [0]
        flag.unlink()
        made.run(query)
        return reason(error.value), made.outcome().rows

    stock, batched = in_both(lives)
    assert batched == stock
    assert WORDS.get(death, "Python worker exited unexpectedly") in stock[0]
    assert sorted(stock[1]) == [0, 1, 2]


def test_a_processor_that_survives_a_lack_of_memory_goes_on(play):  # noqa: F811
    rows, _, _ = play(lambda frame, run: querying(processors.Survives())(frame))
    assert "MemoryError()" in str(rows)


LIMITED = """
import json, sys
from pathlib import Path
from conftest import session_options
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from real_processors import Hungry
from streams import Stream
from test_processors import BATCHED, OURS, PROCESSORS
from test_processor_scenarios import BATCHES, SAID, SCHEMA, by
from test_real_processors import reason

root, limit = Path(sys.argv[1]), sys.argv[2]
options = {**session_options(), **OURS, "spark.executor.pyspark.memory": limit}
spark = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
found = {}
for place in ("variables", "state"):
    for batched in ("false", "true"):
        spark.conf.set(PROCESSORS, batched)
        directory = root / f"{place}-{batched}"
        made = Stream(spark, directory, SCHEMA)
        for batch in BATCHES:
            made.add(batch)
        (directory / "flag").touch()
        query = lambda frame: by(frame, "a")(Hungry(str(directory / "flag"), place), SAID, "update", "None")
        try:
            made.run(query)
            said = "none"
        except StreamingQueryException as error:
            said = reason(error)
        (directory / "flag").unlink()
        made.run(query)
        assert (BATCHED in made.plan) == (batched == "true")
        found[f"{place} {batched}"] = [said, repr(made.outcome().rows)]
print("FOUND", json.dumps(found))
"""


def test_sparks_limit_of_a_workers_memory_holds(tmp_path):
    found, _ = outside.run(LIMITED, tmp_path, "1500m")
    assert found["variables true"] == found["variables false"]
    assert "MemoryError" in found["variables true"][0]
    assert found["state true"][1] == found["state false"][1]
    assert "MemoryError" in found["state true"][0]
    assert "MemoryError" in found["state false"][0] or "EncodeError" in found["state false"][0]


@pytest.mark.parametrize("way", ["sleeps", "calls", "appends", "spins"])
def test_a_loop_without_an_end_is_stopped_with_its_query(in_both, tmp_path, way):
    def stopped(made: Any, batched: str) -> Any:
        note = tmp_path / f"worker-{batched}"

        def loops(query: StreamingQuery) -> None:
            awaited(lambda: note.exists() or not query.isActive, "the processor did not come to its loop")
            if not query.isActive:
                query.awaitTermination()  # raises its error

        query = querying(processors.Endless(str(note), way))
        started = late_workers.run(lambda: made.start(query), loops)
        started.stop()
        assert not started.isActive
        worker = int(note.read_text())
        awaited(lambda: not is_alive(worker), "the worker went on after the query had been stopped")
        assert sorted(made.rows) == [0]
        note.with_name(f"{note.name}-over").touch()
        made.run(query)
        return made.outcome().rows

    stock, batched = in_both(stopped)
    assert batched == stock
    assert sorted(stock) == [0, 1, 2]


def is_alive(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


def version(number: int) -> StatefulProcessor:
    """Return a processor of a class that only its pickle has, with other code for each number."""
    words = ["first", "second", "third"][number]

    class Changing(processors.Counts):
        def act(self, key: Any, rows: list[Any]) -> Any:
            return words, help_with(rows)

    if number == 1:

        def help_with(rows: list[Any]) -> Any:
            return sum(row.v for row in rows)

        Changing.said_again = lambda self: 5
    else:

        def help_with(rows: list[Any]) -> Any:
            return number, hasattr(Changing, "said_again")

    return Changing()


def test_changed_code_is_called_by_workers_that_are_used_again(play):  # noqa: F811
    rows, _, _ = play(lambda frame, run: querying(version(run))(frame), runs=3)
    for batch, words in enumerate(["first", "second", "third"]):
        assert all(words in said for _, said in rows[batch])


def test_accumulators_count_as_in_sparks_worker(spark, play):  # noqa: F811
    seen = []

    def query(frame: Any, run: int) -> Any:
        seen.append(spark.sparkContext.accumulator(0))
        return by(frame, "a")(processors.Adds(seen[-1]), SAID, "update", "processingTime")

    play(query, no_data_batches=False)
    counts = [accumulator.value for accumulator in seen]
    assert counts[1] == counts[0]
    assert counts[0] % 1000 == sum(batch.num_rows for batch in BATCHES)


@pytest.mark.parametrize("kind", ["table", "processor"])
def test_broadcasts_come_along_or_are_refused_as_by_spark(spark, in_both, kind):
    """Spark 4.1 to 4.3 call `init` on the driver in a worker that loads no broadcasts."""

    def looked_up(made: Any, batched: str) -> Any:
        if kind == "table":
            table = spark.sparkContext.broadcast({"p": 1, "q": 22, None: 333})
            processor = processors.WithBroadcast(table)
        else:
            processor = processors.Heavy(os.urandom(3 << 20))  # more than Spark sends with a task
        try:
            made.run(querying(processor))
        except StreamingQueryException as error:
            return reason(error)
        return str(made.outcome().rows)

    stock, batched = in_both(looked_up)
    assert batched == stock
    assert "BROADCAST_VARIABLE_NOT_LOADED" in stock or "333" in stock or str(3 << 20) in stock


def test_a_task_knows_its_place(play):  # noqa: F811
    play(lambda frame, run: querying(processors.Places())(frame))


def test_modules_and_archives_that_are_added_come_along(spark, play, tmp_path):  # noqa: F811
    module, archive = tmp_path / "shipped_rules.py", tmp_path / "tables.zip"
    module.write_text("calls = 0\n")
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("table.txt", "from the archive")
    spark.sparkContext.addPyFile(str(module))
    spark.sparkContext.addArchive(f"{archive}#shipped_tables")
    rows, _, _ = play(lambda frame, run: querying(processors.Shipped())(frame))
    assert "from the archive" in str(rows)


@pytest.mark.parametrize("processor", [processors.Model, processors.Threads, processors.Talks])
def test_models_threads_and_logs_are_as_in_sparks_worker(play, processor):  # noqa: F811
    play(lambda frame, run: querying(processor())(frame))


@pytest.mark.parametrize("processor", [processors.Fraud, processors.Sessions])
def test_rules_with_timers_in_event_time_are_as_in_sparks_worker(play, processor):  # noqa: F811
    rows, _, _ = play(
        lambda frame, run: by(frame, "a")(processor(), SAID, "update", "eventTime"), watermark="t 1 minute"
    )
    assert sum(map(len, rows.values())) > 7, "no timer was due"


def test_sparks_profiler_sees_the_same_functions(spark, in_both, conf):
    conf("spark.sql.pyspark.udf.profiler", "perf")

    def profiled(made: Any, batched: str) -> Any:
        before = len(spark._profiler_collector._profile_results)
        made.run(querying(processors.Counts()))
        return made.outcome().rows, len(spark._profiler_collector._profile_results) - before

    stock, batched = in_both(profiled)
    assert batched == stock
