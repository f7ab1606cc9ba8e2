"""Refusals of `state-store migrate`, always before it writes; and the logs that it makes of Spark's."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from query_directory import QueryDirectory, rows

import state_store
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.settings.session import MERGE_OPERATOR_KEY, PROVIDER_KEY, UNNAMED
from state_store.data import migration as module
from state_store.data.jobs import Threads
from state_store.data.migration import HDFS, INCREMENTAL, ROCKSDB, StateStore, migrate
from state_store.data.query import Query, StoreKey
from state_store.errors import (
    ConflictError,
    DamagedError,
    InternalError,
    MissingError,
    OptionError,
    StateStoreError,
)
from state_store.session import build
from state_store.session import jar as jvm_program
from state_store.session.jar import JvmProgram

VERSIONS = 3
TASK_COPY = module._TaskCopy
PROCESSOR = {
    "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateExec"},
    "stateStoreInfo": [
        {
            "storeName": "default",
            "numColsPrefixKey": 0,
            "numPartitions": 2,
            "stateSchemaFilePaths": ["file:/elsewhere/state/0/_stateSchema/default/0_a"],
        }
    ],
    "operatorPropertiesJson": json.dumps({"stateVariables": []}),
}


def query_of(root: Path, store: StateStore, *, ids: bool = False, provider: str | None = None) -> Path:
    """A checkpoint with two partitions and three versions, whose last one counts."""
    query = QueryDirectory(root / "source", root / "scratch", provider=provider or store.provider, ids=ids)
    for _ in range(VERSIONS):
        query.commit(rows(0, 2))
    for key in query.keys:
        place = query.root / key.path
        for number in range(1, VERSIONS + 1):
            id_ = f"_{query.newest[key].checkpoint_id}" if ids else ""
            if store is HDFS:
                (place / f"{number}.delta").touch()
            elif store is ROCKSDB:
                (place / f"{number}{id_}.changelog").touch()
    return query.root


class Program:
    """In place of the JVM: tells `events`, and notes what it was asked."""

    asked: dict
    meanwhile = staticmethod(lambda: None)
    events_: tuple[dict, ...] = ()

    def __init__(self, main_class: str, asked: dict, *, memory: str | None = None):
        type(self).asked = asked

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def events(self):
        type(self).meanwhile()
        yield from type(self).events_


@pytest.fixture
def program(monkeypatch):
    """No JVM; every store of an operator 0 with two partitions is told to be done."""

    class One(Program):
        events_ = tuple(
            {"done": {"operator": 0, "partition": number, "name": "default", "rows": 5, "id": f"id-{number}"}}
            for number in range(2)
        )

    monkeypatch.setattr(module, "JvmProgram", One)
    return One


@pytest.fixture
def no_program(monkeypatch):
    """A JVM that must not be started."""

    def refuse(*_arguments, **_options):
        pytest.fail("a JVM was started")

    monkeypatch.setattr(module, "JvmProgram", refuse)


def pinned(checkpoint: Path, batch: int) -> dict:
    return json.loads((checkpoint / f"offsets/{batch}").read_text().splitlines()[1])["conf"]


def commit_of(checkpoint: Path, batch: int) -> tuple[str, dict]:
    header, content = (checkpoint / f"commits/{batch}").read_text().splitlines()
    return header, json.loads(content)


def refused(kind: type[StateStoreError], source: Path, target: Path, to: str, **options) -> StateStoreError:
    with pytest.raises(kind) as raised:
        migrate(str(source), str(target), to, **options)
    return raised.value


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_target_that_has_something_is_refused(tmp_path, no_program, kind):
    source, target = query_of(tmp_path, HDFS), tmp_path / "target"
    target.mkdir()
    (target / "x").touch() if kind == "file" else (target / "x").mkdir()
    refused(ConflictError, source, target, "incremental")
    assert [path.name for path in target.iterdir()] == ["x"]


def test_an_empty_target_may_be_there(tmp_path, program):
    source, target = query_of(tmp_path, HDFS), tmp_path / "target"
    target.mkdir()
    assert migrate(str(source), str(target), "incremental").rows == 10


@pytest.mark.parametrize("provider", ["com.example.Store", None])
def test_a_store_that_is_not_known_is_refused(tmp_path, no_program, provider):
    source = query_of(tmp_path, HDFS, provider="com.example.Store")
    if provider is None:
        for path in (source / "offsets").iterdir():
            path.write_text(path.read_text().replace(PROVIDER_KEY, "something.else"))
    message = refused(OptionError, source, tmp_path / "target", "incremental").message
    assert "incremental, hdfs and rocksdb" in message and (provider or "does not say") in message
    assert not (tmp_path / "target").exists()


def test_a_query_that_has_committed_nothing_is_refused(tmp_path, no_program):
    query = QueryDirectory(tmp_path / "source", tmp_path / "scratch", provider=HDFS.provider, ids=False)
    query.commit(rows(0, 2), logged=False)
    assert (
        "has not committed a batch yet"
        in refused(MissingError, query.root, tmp_path / "target", "incremental").message
    )


def test_a_directory_without_a_query_is_refused(tmp_path, no_program):
    refused(MissingError, tmp_path, tmp_path / "target", "incremental")


@pytest.mark.parametrize(
    ("store", "ids", "gone"),
    [
        (HDFS, False, "2.delta"),
        (HDFS, False, "1.delta"),
        (ROCKSDB, False, "3.changelog"),
        (ROCKSDB, True, "3_*.changelog"),
        (INCREMENTAL, True, f"delta/{VERSIONS:020}_*.sst"),
    ],
)
def test_a_version_that_is_gone_is_refused(tmp_path, no_program, store, ids, gone):
    source = query_of(tmp_path, store, ids=ids)
    (lost,) = (source / "state/0/1").glob(gone)
    lost.unlink()
    to = "rocksdb" if store is INCREMENTAL else "incremental"
    assert "0/1/default" in refused(MissingError, source, tmp_path / "target", to).message
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("store", "complete"), [(HDFS, "3.snapshot"), (HDFS, "2.snapshot"), (ROCKSDB, "3.zip")]
)
def test_nothing_before_a_complete_version_is_needed(tmp_path, program, store, complete):
    source = query_of(tmp_path, store)
    for partition in range(2):
        for path in (source / f"state/0/{partition}").glob("[0-9].*"):
            if int(path.name[0]) <= int(complete[0]):
                path.unlink()
        (source / f"state/0/{partition}" / complete).touch()
    assert migrate(str(source), str(tmp_path / "target"), "incremental").version == VERSIONS


def test_a_format_that_a_store_does_not_have_is_refused(tmp_path, no_program):
    source = query_of(tmp_path, INCREMENTAL, ids=True)
    assert "format 1" in refused(OptionError, source, tmp_path / "t", "hdfs", checkpoint_format=2).message


def test_archives_of_spark_4_0_keep_their_format(tmp_path, no_program, monkeypatch):
    monkeypatch.setattr(module, "installed_spark", lambda: "4.0.5")
    source = query_of(tmp_path, ROCKSDB)
    message = refused(OptionError, source, tmp_path / "t", "rocksdb", checkpoint_format=2).message
    assert "Spark 4.0" in message and "one checkpoint format" in message
    assert not (tmp_path / "t").exists()


def pin(source: Path, **options: str) -> None:
    """Name options in the offset log of a query."""
    for path in (source / "offsets").iterdir():
        version, metadata, *rest = path.read_text().splitlines()
        described = json.loads(metadata)
        described["conf"].update(options)
        path.write_text("\n".join([version, json.dumps(described), *rest]))


@pytest.mark.parametrize(("spark", "readable"), [("4.0.1", False), ("4.1.2", False), ("4.2.0", True)])
def test_lists_of_a_later_spark_are_refused(tmp_path, program, monkeypatch, spark, readable):
    """Spark 4.0 and 4.1 would take the first bytes of a value for the delimiter before it."""
    monkeypatch.setattr(module, "installed_spark", lambda: spark)
    source, target = query_of(tmp_path, ROCKSDB), tmp_path / "target"
    pin(source, **{MERGE_OPERATOR_KEY: "2"})
    migrate(str(source), str(target), "incremental")  # it has no lists
    (source / "state/0/_metadata/metadata").write_text("v2\n" + json.dumps(PROCESSOR))
    if readable:
        migrate(str(source), str(tmp_path / "again"), "incremental")
        assert program.asked["source"]["pins"][MERGE_OPERATOR_KEY] == "2"
        return
    error = refused(OptionError, source, tmp_path / "again", "incremental")
    assert (error.option, spark in error.message) == (MERGE_OPERATOR_KEY, True)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(("spark", "written"), [("4.1.1", "1"), ("4.3.0", "2")])
def test_lists_that_an_older_spark_writes_are_pinned_as_it_writes_them(
    tmp_path, program, monkeypatch, spark, written
):
    monkeypatch.setattr(module, "installed_spark", lambda: spark)
    source, target = query_of(tmp_path, INCREMENTAL), tmp_path / "target"
    pin(source, **{MERGE_OPERATOR_KEY: "2"})
    migrate(str(source), str(target), "rocksdb")
    assert pinned(target, 0)[MERGE_OPERATOR_KEY] == written
    assert program.asked["target"]["pins"][MERGE_OPERATOR_KEY] == written


def test_an_option_that_the_log_does_not_name_is_left_to_the_spark_that_reads_it(tmp_path, program):
    source = query_of(tmp_path, ROCKSDB)
    migrate(str(source), str(tmp_path / "target"), "incremental")
    for side in ("source", "target"):
        named = program.asked[side]["pins"].keys() | program.asked[side]["conf"].keys()
        assert not named & UNNAMED.keys()
    assert not pinned(tmp_path / "target", 0).keys() & UNNAMED.keys()


def test_column_families_have_no_place_in_the_hdfs_backed_store(tmp_path, no_program):
    source = query_of(tmp_path, ROCKSDB)
    (source / "state/0/_metadata/metadata").write_text("v2\n" + json.dumps(PROCESSOR))
    message = refused(OptionError, source, tmp_path / "target", "hdfs").message
    assert "(transformWithState)" in message and "column families" in message
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_query_that_runs_meanwhile_is_refused(tmp_path, program, fails):
    """Also if the copy fails, since the query has removed the version."""
    source, target = query_of(tmp_path, HDFS), tmp_path / "target"
    if fails:
        program.events_ = ({"error": {"kind": "missing", "message": "2.delta is gone"}},)
    program.meanwhile = staticmethod(lambda: (source / f"offsets/{VERSIONS}").write_text("v1\n{}\n"))
    error = refused(ConflictError, source, target, "incremental")
    assert "gone on meanwhile" in error.message
    assert not target.exists()


def test_a_batch_that_had_begun_is_none_that_goes_on(tmp_path, program):
    source, target = query_of(tmp_path, HDFS), tmp_path / "target"
    text = (source / f"offsets/{VERSIONS - 1}").read_text()
    (source / f"offsets/{VERSIONS}").write_text(text)
    assert migrate(str(source), str(target), "incremental").version == VERSIONS
    assert pinned(target, VERSIONS)[PROVIDER_KEY] == INCREMENTAL.provider
    assert Query.open(str(target)).committed_batch() == VERSIONS - 1


def test_an_error_of_the_jvm_is_raised_and_nothing_counts(tmp_path, program):
    source, target = query_of(tmp_path, HDFS), tmp_path / "target"
    program.events_ = ({"error": {"kind": "missing", "message": "2.delta is gone"}},)
    message = refused(MissingError, source, target, "incremental").message
    assert message == "2.delta is gone"
    assert not target.exists()


class Elsewhere(Threads):
    """Tasks of a job, one after the other, in this process; their work is pickled as for another one."""

    are_elsewhere = True
    parallelism = 2

    def run(self, work, items, **how):
        is_value = isinstance(work, TASK_COPY)
        return super().run(pickle.loads(pickle.dumps(work)) if is_value else work, items, **how)


class Leaving(module.Receipts):
    """Receipts of a job of which a task was killed when it had stored an archive."""

    def remove_orphans(self, written, **how):
        (Path(self._location) / f"state/0/0/{VERSIONS}_killed.zip").touch()
        super().remove_orphans(written, **how)


class Copying(Program):
    """In place of the JVM of a task: writes the files of the stores that it is asked for."""

    files: tuple[str, ...] = ("delta/{version:020d}_{id}_empty_0000.sst",)
    asked_for: ClassVar[list[tuple[int, str | None]]]
    fails_at: int | None = None

    def events(self):
        asked = type(self).asked
        place = Path(asked["target"]["state"].removeprefix("file:"))
        for store in asked["stores"]:
            for partition in store["partitions"]:
                number, id_ = partition["partition"], f"id-{partition['partition']}-{len(self.asked_for)}"
                if number == self.fails_at:
                    yield {"error": {"kind": "damaged", "message": "a row is damaged"}}
                    return
                self.asked_for.append((number, partition["id"]))
                for name in self.files:
                    path = place / str(store["operator"]) / str(number) / name.format(id=id_, **asked)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(id_)
                    path.with_name(f".{path.name}.crc").touch()
                yield {
                    "done": {
                        "operator": store["operator"],
                        "partition": number,
                        "name": store["name"],
                        "rows": 5,
                        "id": id_,
                    }
                }


@pytest.fixture
def by_spark(monkeypatch):
    """A session whose tasks run here, with a JVM each that only writes files."""

    class Context:
        @staticmethod
        def getConf():
            return Context

        @staticmethod
        def getAll():
            return [("spark.hadoop.fs.x", "y"), ("spark.hadoop.fs.z", "1"), ("spark.app.name", "n")]

    class Session:
        sparkContext = Context
        program = type("Copy", (Copying,), {"asked_for": []})

    monkeypatch.setattr(module, "JvmProgram", Session.program)
    monkeypatch.setattr(module, "workers", lambda spark: Elsewhere())
    return Session


def stored(target: Path) -> list[str]:
    state = target / "state/0"
    return sorted(path.relative_to(state).as_posix() for path in state.glob("[0-9]*/**/*") if path.is_file())


def test_a_job_copies_stores_and_writes_the_logs_last(tmp_path, by_spark):
    source, target = query_of(tmp_path, ROCKSDB, ids=True), tmp_path / "target"
    done = migrate(str(source), str(target), "incremental", spark=by_spark, conf={"spark.hadoop.fs.z": "2"})
    assert (done.rows, done.stores, done.version) == (10, 2, VERSIONS)
    ids = [version.checkpoint_id for version in Query.of_any_store(str(source)).committed().values()]
    assert by_spark.program.asked_for == list(enumerate(ids))
    assert by_spark.program.asked["hadoop"] == {"fs.x": "y", "fs.z": "2"}
    assert [path for path in stored(target) if "_metadata" not in path] == [
        f"{number}/delta/{VERSIONS:020d}_id-{number}-{number}_empty_0000.sst" for number in range(2)
    ]
    assert commit_of(target, VERSIONS - 1)[1]["stateUniqueIds"] == {"0": [["id-0-0"], ["id-1-1"]]}
    assert not (target / "_written").exists()


def test_an_interrupted_job_copies_only_the_other_stores(tmp_path, by_spark):
    source, target = query_of(tmp_path, ROCKSDB), tmp_path / "target"
    by_spark.program.fails_at = 1
    with pytest.raises(
        DamagedError, match=r"a row is damaged\. .* has a part of it: the same command goes on"
    ):
        migrate(str(source), str(target), "incremental", spark=by_spark)
    assert not list((target / "commits").glob("[0-9]*"))
    with pytest.raises(
        ConflictError,
        match=r"has what migrate of version 3 to incremental in .* by Spark of .* has written so far",
    ):
        migrate(str(source), str(target), "rocksdb", spark=by_spark)
    killed = target / f"state/0/1/delta/{VERSIONS:020d}_killed_empty_0000.sst"
    killed.parent.mkdir(parents=True)
    killed.touch()
    by_spark.program.fails_at = None
    updates: list = []
    done = migrate(str(source), str(target), "incremental", spark=by_spark, progress=updates.append)
    assert (done.rows, updates[-1].stores_done) == (10, 2)
    assert [number for number, _ in by_spark.program.asked_for] == [0, 1]
    assert not killed.exists() and len([path for path in stored(target) if path.endswith(".sst")]) == 2


def test_archives_are_stored_with_what_they_need(tmp_path, by_spark):
    """The archive comes last; leftovers of a killed task go, but not what belongs to the archive."""
    source, target = query_of(tmp_path, INCREMENTAL), tmp_path / "target"
    by_spark.program.files = ("SSTs/1-{id}.sst", "{version}_{id}.zip.crc", "{version}_{id}.zip")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "Receipts", Leaving)
        migrate(str(source), str(target), "rocksdb", spark=by_spark)
    assert [path for path in stored(target) if "_metadata" not in path] == [
        path
        for number in range(2)
        for path in (
            f"{number}/{VERSIONS}_id-{number}-{number}.zip",
            f"{number}/{VERSIONS}_id-{number}-{number}.zip.crc",
            f"{number}/SSTs/1-id-{number}-{number}.sst",
        )
    ]


@pytest.mark.parametrize(("to", "advice"), [("hdfs", "without Spark"), ("rocksdb", "or to format 2")])
def test_names_that_attempts_would_share_are_refused(tmp_path, by_spark, to, advice):
    source = query_of(tmp_path, INCREMENTAL)
    error = refused(OptionError, source, tmp_path / "target", to, checkpoint_format=1, spark=by_spark)
    assert error.message.endswith(advice) and not (tmp_path / "target").exists()


def test_a_second_copy_of_a_task_leaves_nothing(tmp_path, by_spark):
    source, target = query_of(tmp_path, INCREMENTAL), tmp_path / "target"
    by_spark.program.files = ("SSTs/1-{id}.sst", "{version}_{id}.zip")

    class Blind(module.Receipts):
        """Receipts that a copy of a task looks for before the other one has written them."""

        def of(self, key):
            looked, self.looked = self.looked, self.looked | {key}
            return super().of(key) if key in looked else None

        looked = frozenset()

    def twice(*given):
        copies = [once(*given), replace(once(*given), receipts=Blind(str(target)))]
        return lambda keys, progress: [copy(keys, progress) for copy in copies][1]

    once = module._TaskCopy
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_TaskCopy", twice)
        migrate(str(source), str(target), "rocksdb", spark=by_spark)
    assert len(by_spark.program.asked_for) == 4
    names = [path for path in stored(target) if "_metadata" not in path]
    assert names == [
        f"0/{VERSIONS}_id-0-0.zip",
        "0/SSTs/1-id-0-0.sst",
        f"1/{VERSIONS}_id-1-2.zip",
        "1/SSTs/1-id-1-2.sst",
    ]


def test_to_format_2_ids_come_into_the_commit_log(tmp_path, program):
    source, target = query_of(tmp_path, ROCKSDB), tmp_path / "target"
    migrate(str(source), str(target), "incremental")
    assert commit_of(target, VERSIONS - 1) == (
        "v2",
        {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [["id-0"], ["id-1"]]}},
    )
    assert commit_of(target, 0) == ("v2", {"nextBatchWatermarkMs": 0})
    assert {pinned(target, batch)[PROVIDER_KEY] for batch in range(VERSIONS)} == {INCREMENTAL.provider}
    assert pinned(source, 0)[PROVIDER_KEY] == ROCKSDB.provider
    key = StoreKey(0, 1)
    assert Query.open(str(target)).committed()[key].checkpoint_id == "id-1"


def test_to_format_1_ids_go(tmp_path, program):
    source, target = query_of(tmp_path, INCREMENTAL, ids=True), tmp_path / "target"
    migrate(str(source), str(target), "rocksdb", checkpoint_format=1)
    for batch in range(VERSIONS):
        assert commit_of(target, batch) == ("v1", {"nextBatchWatermarkMs": 0})
    asked = program.asked["stores"][0]["partitions"]
    assert [store_asked["id"] for store_asked in asked] == [
        version.checkpoint_id for version in Query.open(str(source)).committed().values()
    ]


@pytest.mark.parametrize("above", ["", "state/", "state/0/_stateSchema/default/", "0/%20 state/commits/"])
def test_schemas_are_named_where_they_are(tmp_path, program, above):
    source, target = query_of(tmp_path, ROCKSDB), tmp_path / above / "target"
    text = json.dumps(PROCESSOR).replace("/elsewhere/", f"/elsewhere/{above}")
    (source / "state/0/_metadata/metadata").write_text(f"v2\n{text}")
    migrate(str(source), str(target), "incremental")
    metadata = json.loads((target / "state/0/_metadata/metadata").read_text().splitlines()[1])
    expected = [f"file:{target}/state/0/_stateSchema/default/0_a"]
    assert metadata["stateStoreInfo"][0]["stateSchemaFilePaths"] == expected
    assert program.asked["stores"][0]["schema_files"] == expected


def test_column_families_of_joins_are_copied_as_spark_uses_them(tmp_path, program):
    """A join of format 4 has several values a key in all of them; the indexes of times count as no keys."""
    migrate(str(query_of(tmp_path, ROCKSDB)), str(tmp_path / "target"), "incremental")
    asked = program.asked["stores"][0]
    indexes = {"left-tsWithKey", "right-tsWithKey"}
    assert {*asked["lists"]} >= indexes | {"left-keyWithTsToValues", "right-keyWithTsToValues"}
    assert {*asked["internal"]} == indexes


def test_checksums_of_rows_are_left_to_sparks_stores(tmp_path, program):
    source = query_of(tmp_path, ROCKSDB)
    checksums = "spark.sql.streaming.stateStore.rowChecksum.enabled"
    for path in (source / "offsets").iterdir():
        path.write_text(path.read_text().replace('"conf": {', f'"conf": {{"{checksums}": "true", '))
    migrate(str(source), str(tmp_path / "ours"), "incremental")
    assert pinned(tmp_path / "ours", 0)[checksums] == "false"
    assert program.asked["source"]["pins"][checksums] == "true"
    assert program.asked["target"]["pins"][checksums] == "false"
    migrate(str(source), str(tmp_path / "theirs"), "rocksdb")
    assert pinned(tmp_path / "theirs", 0)[checksums] == "true"


def test_configuration_is_for_both_stores_or_for_hadoop(tmp_path, program):
    source = query_of(tmp_path, HDFS)
    migrate(str(source), str(tmp_path / "target"), "rocksdb", conf={"spark.hadoop.fs.x": "1", "spark.y": "2"})
    assert program.asked["hadoop"] == {"fs.x": "1"}
    assert program.asked["source"]["conf"]["spark.y"] == program.asked["target"]["conf"]["spark.y"] == "2"


def test_without_java_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "java", lambda: str(tmp_path / "no-java"))
    source = query_of(tmp_path, HDFS)
    assert "Java" in refused(OptionError, source, tmp_path / "target", "incremental").message
    assert not (tmp_path / "target").exists()


@pytest.mark.tier("more")
def test_a_jvm_that_ends_by_itself_is_an_error(monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xlog:gc*")  # to the standard output
    with (
        pytest.raises(InternalError, match=r"no\.such\.Program"),
        JvmProgram("no.such.Program", {}) as program,
    ):
        list(program.events())


@pytest.mark.tier("more")
def test_a_heap_that_is_too_small_is_named(tmp_path, monkeypatch):
    (tmp_path / "java").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setattr(jvm_program, "java", lambda: str(tmp_path / "java"))
    with (
        pytest.raises(OptionError, match="a heap of 1m is too small"),
        JvmProgram("any.Program", {}, memory="1m") as program,
    ):
        list(program.events())


def test_other_commands_name_this_one(tmp_path):
    source = query_of(tmp_path, ROCKSDB)
    with pytest.raises(OptionError, match="state-store migrate"):
        state_store.open(str(source))


def test_the_command_says_what_it_did(tmp_path, program, capsys):
    source = query_of(tmp_path, HDFS)
    words = ["migrate", str(source), "--to", "incremental"]
    assert main([*words, str(tmp_path / "one"), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {
        "from": "hdfs",
        "to": "incremental",
        "format": 2,
        "version": VERSIONS,
        "stores": 2,
        "rows": 10,
    }
    assert main([*words, str(tmp_path / "two"), "--format", "1"]) == ExitCode.OK
    assert "10 rows of 2 stores, from hdfs to incremental" in " ".join(capsys.readouterr().out.split())
    assert main([*words, str(tmp_path / "two")]) == ExitCode.RETRY
    assert main([*words, str(tmp_path / "three"), "--conf", "x"]) == ExitCode.USAGE
