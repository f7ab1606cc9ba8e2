"""Tools whose work is done by Spark's executors: the same results, progress and errors as in one process."""

from __future__ import annotations

import functools
import json
import shutil
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import quick_java
from dataset.golden_states import VERSIONS, checkpoint, expected, in_order, shown, stored
from pyspark import RDD, TaskContext
from pyspark.sql.functions import udf

import state_store
from state_store.cli.main import main
from state_store.data import jobs
from state_store.data.dataset.rewriting import copying as repartition_module
from state_store.data.dataset.rewriting import store_writer
from state_store.data.jobs import Threads, on_stores, workers
from state_store.data.migration import migrate
from state_store.data.query import Query, StoreKey
from state_store.data.query.targets import RECEIPTS
from state_store.errors import BusyError, ConflictError, DamagedError, MissingError, OptionError

pytestmark = pytest.mark.spark

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0"
SIDES = ("left", "right")
LEGACY_DATES, OWN_POOL = "spark.sql.legacy.timeParserPolicy", "spark.scheduler.pool"

TOOLS = {
    "verify": functools.partial(state_store.verify, all_versions=True),
    "files": state_store.files,
    "stats": functools.partial(state_store.stats, sample=1),
    "all stats": functools.partial(state_store.stats, sample=None),
    "repair": state_store.repair,
}


def said_of(tool, directory, **how) -> tuple[object, list]:
    updates: list = []
    result = tool(directory, progress=updates.append, **how)
    return (result.to_json() if hasattr(result, "to_json") else result), updates


@pytest.mark.dear("stands for tools as jobs of Spark")
def test_a_tool_says_the_same_as_without_spark(spark, tmp_path):
    directory = str(checkpoint("flights", tmp_path))
    for name, tool in TOOLS.items():
        alone, updates = said_of(tool, directory)
        found, updates_there = said_of(tool, directory, spark=spark)
        assert found == alone, name
        assert bool(updates) == bool(updates_there)
        ends = [
            (last.task, last.stores_done, last.stores, last.done, last.unit)
            for last in (updates[-1], updates_there[-1])
        ]
        assert ends[0] == ends[1], name


def test_an_export_has_the_same_files(spark, tmp_path):
    directory = str(checkpoint("types", tmp_path))
    rows = [state_store.export(directory, tmp_path / "here"), 0]
    rows[1] = state_store.export(directory, tmp_path / "there", spark=spark)
    assert rows == [len(expected("types", VERSIONS[-1]))] * 2
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == names
    for name in names:
        alone, found = tmp_path / "here" / name, tmp_path / "there" / name
        if name.endswith(".parquet"):
            assert pq.read_schema(alone).metadata == pq.read_schema(found).metadata
            assert pq.read_table(alone).equals(pq.read_table(found))
        else:
            assert alone.read_bytes() == found.read_bytes()
    found = in_order(shown(row) for row in pq.read_table(tmp_path / "there").to_pylist())
    assert found == expected("types", VERSIONS[-1])


def test_full_checkpoints_are_made_of_every_store(spark, tmp_path):
    directory = str(checkpoint("flights", tmp_path))
    made = state_store.full_checkpoint(directory, spark=spark)
    assert [found.key for found in made.made] == Query.open(directory).stores()
    assert state_store.verify(directory).ok
    with state_store.open(directory) as state:
        assert in_order(map(shown, state.to_arrow().to_pylist())) == expected("flights", VERSIONS[-1])


def test_damage_is_found_and_skipped_as_without_spark(spark, tmp_path):
    directory = checkpoint("flights", tmp_path)
    next((directory / "state/0/1").rglob("*.sst")).write_bytes(b"x")
    assert state_store.verify(directory, spark=spark) == state_store.verify(directory)
    assert not state_store.verify(directory, spark=spark).ok
    target = tmp_path / "exported"
    with pytest.raises((DamagedError, MissingError)) as alone:
        state_store.export(directory, target)
    with pytest.raises((DamagedError, MissingError)) as raised:
        state_store.export(directory, target, spark=spark)
    assert (type(raised.value), str(raised.value)) == (type(alone.value), str(alone.value))
    assert not target.exists() and not list(tmp_path.glob(".exported*"))
    rows = state_store.export(directory, target, on_damage="skip", spark=spark)
    success = json.loads((target / "_SUCCESS").read_text())
    assert success == {"rows": rows, "lost": [1]} and rows


def test_an_error_of_a_task_ends_the_job_with_its_kind(spark, tmp_path):
    query = Query.open(str(checkpoint("flights", tmp_path)))

    def failing(key, storage, meter):
        raise MissingError(f"there is no {key.partition}", file="a/file")

    for tasks in (Threads(), workers(spark)):
        with pytest.raises(MissingError, match=r"there is no [01]$") as raised:
            on_stores(query, query.stores(), failing, workers=tasks)
        assert raised.value.file == "a/file"


def test_a_task_of_another_release_of_the_package_is_refused(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("state_store.data.jobs.__version__", "0.0.1")
    with pytest.raises(OptionError, match=r"has incremental-state-store .*, the driver's has 0\.0\.1"):
        state_store.verify(checkpoint("flights", tmp_path), spark=spark)


@pytest.mark.parametrize("given", [3, "local[2]", object()])
def test_an_object_that_is_no_session_is_refused(spark, tmp_path, given):
    with pytest.raises(OptionError, match=r"spark is .*: a SparkSession of the classic API is needed"):
        state_store.verify(checkpoint("flights", tmp_path), spark=given)


def test_a_query_is_read_anew_where_it_is_sent(spark, tmp_path):
    query = Query.open(str(checkpoint("flights", tmp_path)))
    (found,) = workers(spark).run(lambda item, meter: sorted(query.committed()), [0], at_once=1)
    assert found == query.stores()
    assert Path(query.location).is_dir()


@pytest.mark.tier("more")
@pytest.mark.parametrize("partitions", [4, 1, 3])
def test_a_state_is_repartitioned_as_without_spark(spark, tmp_path, partitions):
    source = str(checkpoint("flights", tmp_path))
    targets = [str(tmp_path / "alone"), str(tmp_path / "by-spark")]
    updates: list = []
    done = [
        state_store.repartition(source, targets[0], partitions),
        state_store.repartition(source, targets[1], partitions, spark=spark, progress=updates.append),
    ]
    assert done[0].rows == done[1].rows and done[0].version == done[1].version
    assert (updates[-1].stores_done, updates[-1].stores) == (partitions, partitions)
    rows = []
    for target in targets:
        with state_store.open(target) as state:
            assert state.partitions == tuple(range(partitions))
            rows.append(in_order(map(shown, state.to_arrow().to_pylist())))
    assert rows[0] == rows[1] and len(rows[0]) == done[0].rows
    assert state_store.verify(targets[1], leave_result=False).ok
    files = [
        sorted(
            (path.relative_to(target).as_posix(), path.read_bytes())
            for path in Path(target).rglob("*")
            if path.is_file() and "/delta/" not in str(path) and "commits" not in str(path)
        )
        for target in targets
    ]
    assert [name for name, _ in files[0]] == [name for name, _ in files[1]]


def test_an_interrupted_job_goes_on_with_what_is_there(spark, tmp_path, monkeypatch):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    write = store_writer.Receipts.claim

    def failing(own, key, written):
        """Fail one of the two tasks when the other is done: in Python workers, which get this pickled."""
        if key.partition % 2:
            deadline_s = time.monotonic() + 600
            while time.monotonic() < deadline_s and own.of(StoreKey(0, 2)) is None:
                time.sleep(0.05)
            raise DamagedError("a task fails")
        return write(own, key, written)

    class Failing(store_writer.Receipts):
        claim = failing

    monkeypatch.setattr(repartition_module, "Receipts", Failing)
    with pytest.raises(DamagedError, match=r"a task fails\. .* has a part of it: the same command goes on"):
        state_store.repartition(source, target, 4, spark=spark)
    monkeypatch.undo()
    with pytest.raises(MissingError, match=r"is incomplete: .*into 4 partitions.* same command continues it"):
        state_store.open(target)
    with pytest.raises(ConflictError, match=r"has what repartition of version 4 into 4 partitions by Spark"):
        state_store.repartition(source, target, 2, spark=spark)
    before = {path: path.stat().st_ino for path in target.rglob("delta/*.sst") if path.parts[-3] in "02"}
    assert len(before) == 2
    finished = {path.name for path in (target / RECEIPTS).glob("*.json")}
    assert finished == {f"0-{number}-default.json" for number in (0, 2)}
    done = state_store.repartition(source, target, 4, spark=spark)
    assert done.rows == len(expected("flights", VERSIONS[-1]))
    after = {path: path.stat().st_ino for path in target.rglob("delta/*.sst")}
    assert len(after) == 4 and not (target / RECEIPTS).exists()
    assert all(after[path] == inode for path, inode in before.items())
    with state_store.open(target) as state:
        assert state.count() == done.rows
    assert state_store.verify(target).ok


def test_a_copy_is_the_same_and_goes_on(spark, tmp_path):
    source = str(checkpoint("flights", tmp_path))
    targets = [tmp_path / "alone", tmp_path / "by-spark"]
    done = [state_store.copy(source, targets[0]), state_store.copy(source, targets[1], spark=spark)]
    assert done[0] == done[1] and done[0].files
    files = [
        {path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        for target in targets
    ]
    described = Path("state/0/_metadata/metadata")
    assert files[0].keys() == files[1].keys()
    assert [path for path in files[0] if files[0][path] != files[1][path]] in ([], [described])
    assert not list(Path(source).rglob("lease/*.json"))


@pytest.mark.tier("more")
def test_files_are_imported_by_spark_as_without_it(spark, tmp_path):
    source = str(checkpoint("flights", tmp_path))
    exported, targets = tmp_path / "exported", [str(tmp_path / "alone"), str(tmp_path / "by-spark")]
    state_store.export(source, exported)
    done = [
        state_store.import_state(source, exported, targets[0]),
        state_store.import_state(source, exported, targets[1], spark=spark),
    ]
    assert (done[0].rows, done[0].version) == (done[1].rows, done[1].version) and done[0].rows
    found = []
    for target in targets:
        with state_store.open(target) as state:
            found.append(in_order(map(shown, state.to_arrow().to_pylist())))
    assert found[0] == found[1] == expected("flights", VERSIONS[-1])
    (exported / "other.csv").touch()
    messages = []
    for how in ({}, {"spark": spark}):
        with pytest.raises(OptionError, match=r"other\.csv' is not a Parquet file") as raised:
            state_store.import_state(source, exported, tmp_path / "other", **how)
        messages.append(str(raised.value))
    (exported / "other.csv").unlink()
    (exported / "_SUCCESS").unlink()
    for how in ({}, {"spark": spark}):
        with pytest.raises(OptionError, match="is an export that was interrupted"):
            state_store.import_state(source, exported, tmp_path / "other", **how)
    assert messages[0] == messages[1] and not (tmp_path / "other").exists()
    with pytest.raises(OptionError, match="a SparkSession of the classic API is needed"):
        state_store.import_state(source, exported, tmp_path / "other", spark=3)


@pytest.mark.tier("more")
def test_spark_reads_no_damaged_pages_as_rows_either(spark, tmp_path):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    rows = state_store.show(source).drop_columns("partition_id")
    file = tmp_path / "rows.parquet"
    pq.write_table(rows, file, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(file.read_bytes())
    chunk = pq.read_metadata(file).row_group(0).column(rows.column_names.index("flights"))
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    file.write_bytes(content)
    assert not pq.read_table(file).equals(rows)
    with pytest.raises(BusyError, match="Spark gave the job up"):
        state_store.import_state(source, file, target, spark=spark)
    assert not target.exists()


@pytest.mark.tier("more")
def test_rows_of_a_data_frame_are_imported_as_those_of_a_table(spark, tmp_path):
    source = str(checkpoint("flights", tmp_path))
    rows = state_store.show(source).drop_columns("partition_id").slice(1)
    pq.write_table(rows, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).repartition(3)
    targets = [str(tmp_path / "alone"), str(tmp_path / "by-spark")]
    done = [
        state_store.import_state(source, rows, targets[0]),
        state_store.import_state(source, frame, targets[1]),
    ]
    assert (done[0].rows, done[0].version) == (done[1].rows, done[1].version) and done[0].rows
    found = []
    for target in targets:
        with state_store.open(target) as state:
            found.append(in_order(map(shown, state.to_arrow().to_pylist())))
    assert found[0] == found[1] and len(found[0]) == rows.num_rows
    assert state_store.verify(targets[1], leave_result=False).ok


@pytest.mark.tier("more")
def test_rows_of_every_type_are_the_same_after_a_shuffle(spark, tmp_path):
    source, target = str(checkpoint("types", tmp_path)), str(tmp_path / "target")
    rows = state_store.export(source, tmp_path / "exported")
    assert state_store.import_state(source, tmp_path / "exported", target, spark=spark).rows == rows > 5
    assert stored(target) == stored(source)


@pytest.mark.tier("more")
def test_files_are_read_by_several_tasks_a_core(spark, tmp_path):
    """With a task a core the others wait for the one whose core other programs use."""
    cores, before = spark.sparkContext.defaultParallelism, spark.conf.get(jobs._FILE_PARTITIONS_NAME, None)
    for part in range(6 * cores):  # each counts 4 MiB for Spark
        pq.write_table(pa.table({"number": range(part, part + 3)}), tmp_path / f"part-{part}.parquet")
    spark.conf.unset(jobs._FILE_PARTITIONS_NAME)
    try:
        assert spark.read.parquet(str(tmp_path)).rdd.getNumPartitions() <= cores
        session = jobs.reading_session(spark)
        frame = session.read.parquet(str(tmp_path))
        batches, schema = jobs._arrow_batches(frame, jobs.copied_session(session))
        assert 3 * cores <= batches.getNumPartitions() <= 6 * cores
        assert batches.map(lambda blob: jobs._batch_of(blob, schema).num_rows).sum() == 18 * cores
        assert spark.conf.get(jobs._FILE_PARTITIONS_NAME, None) is None
        spark.conf.set(jobs._FILE_PARTITIONS_NAME, "1")
        few = jobs.reading_session(spark).read.parquet(str(tmp_path))
        assert few.rdd.getNumPartitions() <= cores  # the session says how many
    finally:
        if before is not None:
            spark.conf.set(jobs._FILE_PARTITIONS_NAME, before)


@pytest.mark.tier("more")
def test_many_rows_of_a_data_frame_come_in_small_batches(spark, tmp_path):
    """Rows may be large, and the heap of an executor small: Spark's own batches have 10,000 rows."""
    source = str(checkpoint("flights", tmp_path))
    first = state_store.show(source).slice(0, 1).drop_columns(["partition_id", "carrier"]).to_pylist()[0]
    rows = pa.Table.from_pylist(
        [{"carrier": f"C{number}", **first, "flights": number} for number in range(5000)],
        state_store.show(source).drop_columns("partition_id").schema,
    )
    pq.write_table(rows, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).repartition(2)
    batches, schema = jobs._arrow_batches(frame, jobs.copied_session(spark))
    sizes = batches.map(lambda blob: jobs._batch_of(blob, schema).num_rows).collect()
    assert sum(sizes) == 5000 and len(sizes) > 2 and max(sizes) <= jobs._BATCH_ROWS
    targets = [str(tmp_path / "alone"), str(tmp_path / "by-spark")]
    for target, given in zip(targets, (rows, frame), strict=True):
        assert state_store.import_state(source, given, target).rows == 5000
    assert stored(targets[0]) == stored(targets[1])
    assert state_store.verify(targets[1], leave_result=False).ok


@pytest.mark.tier("more")
@pytest.mark.parametrize("bound", [None, "0", "10"])
def test_a_session_is_nobody_elses_while_its_rows_are_read(spark, tmp_path, bound):
    """Calls in two threads run shuffles of their DataFrames, which end in the order in which they began.

    Meanwhile the session has the options that it had, and so it has afterwards.
    """
    before, to_data_frame = spark.conf.getAll, RDD.toDF
    if bound is not None:
        spark.conf.set(jobs._BATCH_ROWS_NAME, bound)
    options = spark.conf.getAll
    found: dict[str, list[int]] = {}

    def waiting(name):
        start, end = tmp_path / f"{name}-begun", tmp_path / f"{name}-goes-on"

        @udf("boolean")
        def wait(number):
            start.touch()
            while not end.exists():
                time.sleep(0.02)
            return True

        return spark.range(0, 3000, 1, 1).where(wait("id")).repartition(1, "id")

    def read(name, frame):
        batches, schema = jobs._arrow_batches(frame, jobs.copied_session(frame.sparkSession))
        found[name] = batches.map(lambda blob: jobs._batch_of(blob, schema).num_rows).collect()

    names = ("first", "second")
    threads = [threading.Thread(target=read, args=(name, waiting(name))) for name in names]
    try:
        for name, thread in zip(names, threads, strict=True):
            thread.start()
            until((tmp_path / f"{name}-begun").exists)
        assert spark.conf.getAll == options
        for name, thread in zip(names, threads, strict=True):
            (tmp_path / f"{name}-goes-on").touch()
            thread.join()
            assert spark.conf.getAll == options
    finally:
        for name in names:
            (tmp_path / f"{name}-goes-on").touch()
        spark.conf.unset(jobs._BATCH_ROWS_NAME)
    assert spark.conf.getAll == before and RDD.toDF is to_data_frame
    assert found.keys() == set(names) and all(sum(sizes) == 3000 for sizes in found.values())
    assert {max(sizes) for sizes in found.values()} == {10 if bound == "10" else jobs._BATCH_ROWS}


def until(holds) -> None:
    """Wait until a condition holds."""
    deadline_s = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.tier("more")
def test_data_frames_of_sessions_with_other_options_are_refused(spark, tmp_path):
    """All tasks of a job have the same options: dates of one DataFrame would be parsed as in the other."""
    source = str(shutil.copytree(JOIN / "no-ids", tmp_path / "source"))
    sessions = {"left": spark.newSession(), "right": spark.newSession()}
    sessions["left"].conf.set(jobs._BATCH_ROWS_NAME, "7")  # the job has its own
    frames = {}
    for side, session in sessions.items():
        rows = state_store.show(source, store=side).drop_columns("partition_id")
        pq.write_table(rows, tmp_path / f"{side}.parquet")
        frames[side] = session.read.parquet(str(tmp_path / f"{side}.parquet"))
    sessions["right"].conf.set(LEGACY_DATES, "LEGACY")
    with pytest.raises(OptionError, match=rf"with different options \({LEGACY_DATES}\).* set them alike"):
        state_store.import_state(source, frames, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    sessions["left"].conf.set(LEGACY_DATES, "LEGACY")
    state_store.import_state(source, frames, tmp_path / "target")
    for side in SIDES:
        with state_store.open(tmp_path / "target", store=side) as after:
            found = after.to_arrow().drop_columns("partition_id").to_pylist()
        assert in_order(found) == in_order(frames[side].toArrow().to_pylist())


def test_a_job_belongs_to_the_callers_group(spark):
    """Notebooks cancel the jobs of a cell by its group; a scheduler's pool is a property of a thread, too."""
    context = spark.sparkContext
    context.setLocalProperty(OWN_POOL, "tools")
    context.setJobGroup("a cell", "what the cell does")
    try:
        names = (OWN_POOL, "spark.jobGroup.id", "spark.job.description")
        (found,) = workers(spark).run(
            lambda _, meter: [TaskContext.get().getLocalProperty(name) for name in names], [0], at_once=1
        )
        assert found == ["tools", "a cell", "what the cell does"]
        cancelled = threading.Thread(target=cancel_when_at_work, args=(context, "a cell"))
        cancelled.start()
        with pytest.raises(BusyError, match=r"gave the job up: org.*cancelled"):
            workers(spark).run(lambda _, meter: time.sleep(300), [0, 1], at_once=1)
        cancelled.join()
    finally:
        context._jsc.sc().setLocalProperties(context._jvm.java.util.Properties())


def cancel_when_at_work(context, group) -> None:
    until(lambda: context.statusTracker().getActiveStageIds())
    context.cancelJobGroup(group)


@pytest.mark.tier("more")
@pytest.mark.parametrize("shuffles", [False, True])
def test_rows_of_a_data_frame_are_read_with_the_options_of_its_session(spark, tmp_path, shuffles):
    """Readers of files look for some where they run: with Spark's defaults these dates would be null."""
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    first = state_store.show(source).slice(0, 1).drop_columns(["partition_id", "carrier", "flights"])
    pq.write_table(first, tmp_path / "first.parquet")
    (tmp_path / "days.csv").write_text("A,1/2/2020\nB,3/4/2020\n")
    reader = spark.read.schema("carrier string, day_of date").option("dateFormat", "dd/MM/yyyy")
    days = reader.csv(str(tmp_path / "days.csv")).repartition(2 if shuffles else 1)
    frame = days.selectExpr("carrier", "bigint(dayofyear(day_of)) as flights").crossJoin(
        spark.read.parquet(str(tmp_path / "first.parquet"))
    )
    properties = {name: spark.sparkContext.getLocalProperty(name) for name in (LEGACY_DATES, OWN_POOL)}
    spark.conf.set(LEGACY_DATES, "LEGACY")
    try:
        state_store.import_state(source, frame, target)
    finally:
        spark.conf.unset(LEGACY_DATES)
    found = state_store.show(target).select(["carrier", "flights"]).to_pylist()
    assert in_order(found) == [{"carrier": "A", "flights": 32}, {"carrier": "B", "flights": 94}]
    assert properties == {name: spark.sparkContext.getLocalProperty(name) for name in properties}


@pytest.mark.tier("more")
def test_both_sides_of_a_join_are_imported_from_data_frames(spark, tmp_path):
    source = str(shutil.copytree(JOIN / "no-ids", tmp_path / "source"))
    rows = {side: state_store.show(source, store=side).drop_columns("partition_id") for side in SIDES}
    frames = {}
    for side, table in rows.items():
        pq.write_table(table, tmp_path / f"{side}.parquet")
        frames[side] = spark.read.parquet(str(tmp_path / f"{side}.parquet"))
    target = tmp_path / "target"
    state_store.import_state(source, frames, target)
    for side in SIDES:
        with state_store.open(source, store=side) as before, state_store.open(target, store=side) as after:
            assert in_order(after.to_arrow().to_pylist()) == in_order(before.to_arrow().to_pylist())
    assert state_store.verify(target).ok
    with pytest.raises(OptionError, match="DataFrames of Spark or other tables, not both"):
        state_store.import_state(source, {**frames, "left": rows["left"]}, tmp_path / "other")
    with pytest.raises(OptionError, match="the rows have a column 'colour'"):
        named = frames["left"].withColumnRenamed("matched", "colour")
        state_store.import_state(source, named, tmp_path / "other", store="left")


@pytest.mark.tier("more")
def test_rows_of_a_data_frame_that_do_not_fit_are_an_error_of_the_caller(spark, tmp_path, capsys):
    """It comes from a task of Spark's, of which the driver would only say that the job was given up."""
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    rows = state_store.show(source).drop_columns("partition_id")
    pq.write_table(rows, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    with pytest.raises(OptionError, match=r"column 'flights' of the rows has type list.* not int"):
        state_store.import_state(
            source, frame.selectExpr("* except (flights)", "array(1) as flights"), target
        )
    with pytest.raises(MissingError, match="the rows have no column 'delay'"):
        state_store.import_state(source, frame.drop("delay"), target)
    assert not target.exists()


@pytest.mark.tier("more")
def test_a_key_that_a_data_frame_has_twice_leaves_nothing(spark, tmp_path):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    rows = state_store.show(source).drop_columns("partition_id")
    pq.write_table(rows, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    with pytest.raises(OptionError, match="the rows have a key twice: "):
        state_store.import_state(source, frame.union(frame.limit(1)), target)
    assert not target.exists()


@pytest.mark.tier("more")
@pytest.mark.parametrize("to", ["incremental", "rocksdb"])
def test_a_query_is_migrated_as_without_spark(spark, tmp_path, to):
    """The job goes through another store, and comes back: rows, logs and files are those of a process."""
    source = str(shutil.copytree(JOIN / "ids", tmp_path / "source"))
    conf = {f"spark.hadoop.{name}": value for name, value in quick_java.CHECKPOINT_FILES.items()}
    by_spark, back = tmp_path / "by-spark", tmp_path / "back"
    updates: list = []
    done = migrate(source, by_spark, to, conf=conf, memory="256m", spark=spark, progress=updates.append)
    assert (updates[-1].stores_done, updates[-1].done, done.stores) == (done.stores, done.rows, 4)
    assert not (by_spark / RECEIPTS).exists()
    if to != "incremental":
        assert migrate(by_spark, back, "incremental", conf=conf).rows == done.rows
    else:
        back = by_spark
    for side in SIDES:
        with state_store.open(source, store=side) as before, state_store.open(back, store=side) as after:
            assert in_order(after.to_arrow().to_pylist()) == in_order(before.to_arrow().to_pylist())
    assert state_store.verify(back, leave_result=False).ok


@pytest.mark.tier("more")
def test_a_command_takes_the_session_of_a_master(spark, tmp_path, capsys):
    directory = str(checkpoint("flights", tmp_path))
    said = []
    for master in ([], ["--master", "local[2]"]):
        assert main(["verify", directory, "--json", *master]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert said[0] == said[1]
    assert main(["stats", directory, "--json", "--master", "local[2]"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == VERSIONS[-1]
    assert (
        main(["repartition", directory, str(tmp_path / "new"), "--partitions", "4", "--master", "local"]) == 0
    )
    assert state_store.verify(tmp_path / "new").ok
    assert spark.range(3).count() == 3  # the session of others goes on
