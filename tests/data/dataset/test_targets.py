"""Writers of checkpoints and exports: they leave a complete one, nothing, or a marker that readers refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import state_store
from dataset.golden_states import checkpoint
from dataset.readers import readers
from state_store.cli.main import main
from state_store.core.checkpoint.stored_documents import MARKER
from state_store.core.snapshots.restore import StateStoreError
from state_store.core.storage.contract import Entry
from state_store.core.storage.local import LocalStorage
from state_store.data import migration
from state_store.data.dataset import export
from state_store.data.dataset.export import NewDirectory, new_directory
from state_store.data.dataset.rewriting import copying
from state_store.data.query import Query, targets
from state_store.data.query.targets import Stopped, new_checkpoint, refuse_nested
from state_store.errors import (
    ConflictError,
    DamagedError,
    Interrupted,
    MissingError,
    OptionError,
    StorageError,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(checkpoint("flights", tmp_path))


WAYS = {
    "copy": lambda source, target: state_store.copy(source, target),
    "repartition": lambda source, target: state_store.repartition(source, target, 3),
    "import_state": lambda source, target: state_store.import_state(
        source, state_store.open(str(source)), target
    ),
    "export": lambda source, target: state_store.export(source, target),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["", "  ", "/", "///", "file:///"])
def test_an_empty_target_and_the_root_are_refused(source: Path, way: str, target: str) -> None:
    with pytest.raises(OptionError, match="target is"):
        WAYS[way](source, target)


@pytest.mark.parametrize("way", WAYS)
def test_targets_inside_of_the_checkpoint_and_around_it_are_refused(source: Path, way: str) -> None:
    before = _files(source)
    for target in (source, source / "state/copy", source / ".." / source.name / "x", source.parent):
        with pytest.raises((OptionError, ConflictError), match=r"checkpoint itself|inside"):
            WAYS[way](source, target)
    link = source.parent / "link"
    link.symlink_to(source)
    with pytest.raises(OptionError, match="inside the checkpoint"):
        WAYS[way](source, link / "copy")
    link.unlink()
    assert _files(source) == before


@pytest.mark.parametrize("way", WAYS)
def test_targets_inside_of_a_checkpoint_with_any_name_are_refused(source: Path, way: str) -> None:
    place = source.rename(source.with_name("über a b%20#"))
    with pytest.raises(OptionError, match="inside the checkpoint"):
        WAYS[way](place, place / "state/copy")
    assert not (place / "state/copy").exists()


@pytest.mark.parametrize("way", WAYS)
def test_targets_that_cannot_be_directories_are_refused(source: Path, way: str) -> None:
    root = source.parent
    (root / "file").touch()
    (root / "dead").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    before = sorted(root.iterdir())
    for target in ("file", "file/below", "dead", "dead/below", "loop", "loop/below"):
        refused = (
            r"is a file|link that leads nowhere|exists already" if target == "file" else "cannot be made"
        )
        with pytest.raises((OptionError, ConflictError), match=refused):
            WAYS[way](source, str(root / target))
    assert sorted(root.iterdir()) == before
    assert main(["cp", str(source), str(root / "loop")]) == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("~/copy", "shell alone"),
        ("~", "shell alone"),
        ("file:copy", "root of its path"),
        ("s3:copy", "bucket"),
    ],
)
def test_targets_that_would_be_another_place_are_refused(
    source: Path, way: str, target: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    with pytest.raises(OptionError, match=says):
        WAYS[way](source, target)
    assert [path.name for path in source.parent.iterdir()] == [source.name]


def _files(source: Path) -> list[Path]:
    return sorted(path for path in source.rglob("*") if path.is_file() and path.parent.name != "lease")


def test_locations_of_other_storages_are_compared_by_name() -> None:
    refuse_nested("s3://bucket/a", "s3://bucket/ab")
    for target in ("s3://bucket//a/b", "S3://bucket/a", "s3://bucket", "s3a://bucket/a/b"):
        with pytest.raises(OptionError, match="the target"):
            refuse_nested("s3://bucket/a", target)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("failure", [DamagedError("lost"), KeyboardInterrupt(), OSError(28, "full")])
def test_a_failure_leaves_nothing_except_a_copy_to_continue(
    source: Path, way: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    if way == "export":
        monkeypatch.setattr(export, "_write", _raising(failure, export._write, after=1))
    elif way == "copy":
        monkeypatch.setattr(copying, "_copy_store", _raising(failure, copying._copy_store, after=1))
    else:
        monkeypatch.setattr(copying, "copy_logs", _raising(failure))
    with pytest.raises((StateStoreError, OSError, Interrupted)) as raised:
        WAYS[way](source, target)
    monkeypatch.undo()
    assert list(tmp_path.glob(".*")) == []
    if way != "copy":
        assert not target.exists()
        if isinstance(failure, KeyboardInterrupt):
            assert "nothing is left" in str(raised.value)
        WAYS[way](source, target)
        return
    if not isinstance(failure, OSError):
        assert "the same command goes on" in str(raised.value)
    with pytest.raises(MissingError, match="is incomplete"):
        state_store.open(str(target))
    with pytest.raises(ConflictError, match=r"what copy of .* has written so far"):
        state_store.repartition(source, target, 3)
    assert state_store.copy(source, target).present > 0
    assert state_store.verify(str(target)).ok


def _raising(failure: BaseException, original=None, after: int = 0):
    calls: list[object] = []

    def act(*arguments, **named):
        calls.append(arguments)
        if len(calls) <= after:
            return original(*arguments, **named) if original else 0
        raise failure

    return act


@pytest.mark.parametrize("kind", ["delta", "snapshot", "shared"])
def test_a_copy_compares_checksums_on_the_way(source: Path, tmp_path: Path, kind: str) -> None:
    state_store.full_checkpoint(str(source))
    if kind == "delta":
        for path in (source / "state/0/0/snapshot").iterdir():
            path.unlink()
    damaged = max((source / f"state/0/0/{kind}").iterdir())
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.unlink()
    damaged.write_bytes(bytes(data))
    with pytest.raises(StateStoreError, match="damaged") as raised:
        state_store.copy(source, tmp_path / "target")
    assert damaged.name in str(raised.value)
    with pytest.raises(MissingError, match="is incomplete"):
        state_store.open(str(tmp_path / "target"))


@pytest.mark.tier("more")
def test_a_killed_writer_leaves_a_marker_that_every_reader_refuses(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "broken-off"
    program = (
        "import os, sys, state_store\n"
        "from state_store.data.dataset.rewriting import copying\n"
        "copying.copy_logs = lambda *given, **named: os._exit(9)\n"
        "state_store.repartition(sys.argv[1], sys.argv[2], 3)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, source, target], check=False).returncode == 9
    marker = json.loads((target / MARKER).read_text())
    assert (marker["operation"], marker["source"]) == ("repartition", str(source))
    found = readers(tmp_path)
    assert len(found) >= 20
    for name, read in found.items():
        with pytest.raises(MissingError, match=r"incomplete: repartition of .* remove the directory"):
            read(str(target))
            pytest.fail(f"{name} has read it")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken-off", "flights"]


@pytest.mark.parametrize("way", ["repartition", "import_state"])
@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_query_that_runs_meanwhile_is_refused(
    source: Path, tmp_path: Path, way: str, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Stopped.check
    newest = max((source / log).glob("[0-9]*"), key=lambda path: int(path.name))

    def after_a_batch(stopped: Stopped) -> None:
        shutil.copyfile(newest, newest.with_name(str(int(newest.name) + 1)))
        check(stopped)

    monkeypatch.setattr(Stopped, "check", after_a_batch)
    with pytest.raises(ConflictError, match=r"has gone on meanwhile, to batch .*: stop it first"):
        WAYS[way](source, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("way", ["repartition", "import_state"])
def test_a_batch_that_ends_as_the_work_begins_is_noticed(
    source: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest_batch, calls = Query.newest_batch, []

    def before_the_next_one(query: Query) -> int:
        """Return the newest batch; the next one ends after it was asked for to be rewritten."""
        batch = newest_batch(query)
        if sys._getframe(1).f_code.co_name == "rewrite":
            calls.append(batch)
            for log in ("offsets", "commits"):
                shutil.copyfile(source / log / str(batch), source / log / str(batch + 1))
        return batch

    monkeypatch.setattr(Query, "newest_batch", before_the_next_one)
    with pytest.raises(ConflictError, match="has gone on meanwhile"):
        WAYS[way](source, tmp_path / "target")
    assert len(calls) == 1 and not (tmp_path / "target").exists()


def test_a_batch_that_ends_as_a_migration_begins_is_noticed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signs of life are taken before the batch whose versions are copied; no JVM copies them here."""
    newest_batch, calls = Query.newest_batch, []

    def before_the_next_one(query: Query) -> int:
        batch = newest_batch(query)
        if not calls:
            calls.append(batch)
            for log in ("offsets", "commits"):
                shutil.copyfile(source / log / str(batch), source / log / str(batch + 1))
        return batch

    monkeypatch.setattr(Query, "newest_batch", before_the_next_one)
    monkeypatch.setattr(migration, "JvmProgram", lambda *_given, **_named: nullcontext())
    monkeypatch.setattr(migration, "_followed", lambda *_given: [])
    with pytest.raises(ConflictError, match="has gone on meanwhile"):
        state_store.migrate(source, tmp_path / "target", to="rocksdb")
    assert len(calls) == 1 and not (tmp_path / "target").exists()


@pytest.mark.parametrize("way", ["repartition", "import_state"])
def test_a_query_that_removes_the_version_meanwhile_is_named(
    source: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = max((source / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))

    def lose(*_given: object) -> None:
        shutil.copyfile(newest, newest.with_name(str(int(newest.name) + 1)))
        raise MissingError("the version is gone")

    monkeypatch.setattr(copying.StoreWriter, "write", lose)
    with pytest.raises(ConflictError, match="has gone on meanwhile"):
        WAYS[way](source, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("way", ["repartition", "import_state"])
def test_a_batch_that_is_on_its_way_is_noticed_by_the_files_of_its_tasks(
    source: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch began before the work and commits after it, so Spark's logs stay the same meanwhile."""
    check = Stopped.check
    delta = next((source / "state/0/1/delta").iterdir())

    def after_a_task(stopped: Stopped) -> None:
        shutil.copyfile(delta, delta.with_name(f"{9:020}_task_0_0.sst"))
        check(stopped)

    monkeypatch.setattr(Stopped, "check", after_a_task)
    with pytest.raises(ConflictError, match=r"is running: it has written 'state/0/1/delta/.*Stop it first"):
        WAYS[way](source, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("number", [4, 9])
@pytest.mark.parametrize("way", ["repartition", "import_state"])
def test_a_snapshot_that_maintenance_makes_late_is_no_sign_of_a_running_query(
    source: Path, tmp_path: Path, way: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Stopped.check
    delta = next((source / "state/0/1/delta").iterdir())

    def after_maintenance(stopped: Stopped) -> None:
        shutil.copyfile(delta, source / f"state/0/1/{number}_late.zip")
        check(stopped)

    monkeypatch.setattr(Stopped, "check", after_maintenance)
    WAYS[way](source, tmp_path / "target")
    assert (tmp_path / "target").exists()


@pytest.mark.tier("more")
def test_a_batch_that_has_not_ended_is_noted(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offsets = source / "offsets/4"
    header, described, *more = offsets.read_text().splitlines()
    for age_s, is_noted in ((10, True), (36_000, False)):
        began_ms = int(time.time() * 1000) - age_s * 1000
        entry = json.dumps({**json.loads(described), "batchTimestampMs": began_ms})
        offsets.write_text("\n".join([header, entry, *more]))
        target = tmp_path / f"target-{age_s}"
        assert main(["repartition", str(source), str(target), "--partitions", "3"]) == 0
        assert ("note: batch 4 began " in capsys.readouterr().err) == is_noted


@pytest.mark.parametrize("written", range(1, 3))
def test_an_export_to_another_storage_that_was_killed_is_refused(
    source: Path, tmp_path: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill cleans nothing up: some or all files of the partitions are there, and `_SUCCESS` is not."""
    target = tmp_path / "exported"
    monkeypatch.setattr(export, "local_path", lambda _: None)
    with monkeypatch.context() as killed:
        killed.setattr(NewDirectory, "remove", lambda _: None)
        killed.setattr(export, "store_in_directory", _killed_after(written, export.store_in_directory))
        killed.setattr(NewDirectory, "finish", _killed_after(0, NewDirectory.finish))
        with pytest.raises(_Killed):
            state_store.export(source, target)
    assert len(list(target.glob("*.parquet"))) == written
    with pytest.raises(OptionError, match=r"interrupted.*'_SUCCESS'.*remove the directory, and export again"):
        state_store.import_state(source, target, tmp_path / "imported")
    with pytest.raises(
        ConflictError, match=r"interrupted.*'_SUCCESS'.*remove the directory, or give another"
    ):
        state_store.export(source, target)
    shutil.rmtree(target)
    assert state_store.export(source, target) == rows_of(source).num_rows
    state_store.import_state(source, target, tmp_path / "imported")


@pytest.mark.parametrize("ends", [False, True])
def test_an_export_that_begins_beside_another_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Both found no file; the one that came second to `_SUCCESS` removed the files of both."""
    target = tmp_path / "exported"
    monkeypatch.setattr(export, "local_path", lambda _: None)
    list_files, entered = LocalStorage.list_files, ExitStack()

    def another_meanwhile(storage: LocalStorage, directory: str) -> list[Entry]:
        files = list_files(storage, directory)
        if directory == "exported":
            monkeypatch.setattr(LocalStorage, "list_files", list_files)
            other = entered.enter_context(new_directory(str(target), ["part-00000.parquet"]))
            (target / "part-00000.parquet").write_bytes(b"of the other")
            if ends:
                other.finish(b"{}")
        return files

    monkeypatch.setattr(LocalStorage, "list_files", another_meanwhile)
    with pytest.raises(ConflictError, match="exists already" if ends else "still goes on"):
        state_store.export(source, target)
    assert (target / "part-00000.parquet").read_bytes() == b"of the other"
    entered.close()
    left = {path.name for path in target.iterdir()}
    assert left == {"part-00000.parquet", "_SUCCESS" if ends else "_started"}


class _Killed(BaseException):
    """The end of a process."""


def _killed_after(count: int, store: Callable[..., None]) -> Callable[..., None]:
    stored: list[object] = []

    def stored_or_killed(place: object, content: object) -> None:
        if len(stored) == count:
            raise _Killed
        stored.append(content)
        store(place, content)

    return stored_or_killed


def test_an_existing_empty_directory_stays_after_a_failure(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(DamagedError), new_checkpoint("import", None, target) as (storage, _):
        storage.write("metadata", b"x")
        storage.write("state/0/0/delta/x.sst", b"x")
        raise DamagedError("x")
    assert list(target.iterdir()) == []
    (target / "file").write_text("x")
    with pytest.raises(ConflictError, match="is not empty"), new_checkpoint("import", None, target):
        pass
    with pytest.raises(OptionError, match="is a file"), new_checkpoint("import", None, target / "file"):
        pass
    assert (target / "file").read_text() == "x"


def rows_of(source: Path) -> pa.Table:
    with state_store.open(str(source)) as state:
        return state.to_arrow()


def test_unknown_and_double_columns_are_refused(source: Path, tmp_path: Path) -> None:
    rows = rows_of(source)
    wrong = rows.rename_columns(["Flights" if name == "flights" else name for name in rows.column_names])
    with pytest.raises(OptionError, match="column 'Flights', which 'default' does not have; is it 'flights'"):
        state_store.import_state(source, wrong, tmp_path / "target")
    with pytest.raises(OptionError, match="column 'zzz'"):
        state_store.import_state(source, rows.append_column("zzz", rows["flights"]), tmp_path / "target")
    with pytest.raises(OptionError, match="two columns 'flights'"):
        state_store.import_state(source, rows.append_column("flights", rows["flights"]), tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_duplicate_key_is_named(source: Path, tmp_path: Path) -> None:
    rows = rows_of(source)
    first = rows["carrier"][0].as_py()
    with pytest.raises(OptionError, match=f"a key twice: carrier = '{first}'"):
        state_store.import_state(source, pa.concat_tables([rows, rows.slice(0, 1)]), tmp_path / "target")


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"", b"PAR1garbagePAR1"])
@pytest.mark.parametrize("name", ["rows.parquet", "directory/rows.parquet", "directory/rows.csv"])
def test_files_that_are_no_parquet_are_refused(
    source: Path, tmp_path: Path, content: bytes, name: str
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    with pytest.raises(OptionError, match="is not a Parquet file"):
        state_store.import_state(source, tmp_path / name.split("/")[0], tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_partial_exports_are_refused(source: Path, tmp_path: Path) -> None:
    exported, target = tmp_path / "exported", tmp_path / "target"
    state_store.export(source, exported)
    assert json.loads((exported / "_SUCCESS").read_text())["lost"] == []
    with pytest.raises(OptionError, match="is one of the 2 files of an export"):
        state_store.import_state(source, exported / "part-00000.parquet", target)
    (exported / "part-00001.parquet").rename(tmp_path / "kept")
    with pytest.raises(OptionError, match=r"lacks files of its export, such as 'part-00001.parquet'"):
        state_store.import_state(source, exported, target)
    (tmp_path / "kept").rename(exported / "part-00001.parquet")
    (exported / "_SUCCESS").rename(tmp_path / "kept")
    with pytest.raises(OptionError, match="is an export that was interrupted, or still goes on"):
        state_store.import_state(source, exported, target)
    (tmp_path / "kept").rename(exported / "_SUCCESS")
    (exported / "_temporary").mkdir()
    (exported / "_temporary/0").write_text("")
    with pytest.raises(OptionError, match="a write that is not finished"):
        state_store.import_state(source, exported, target)
    shutil.rmtree(exported / "_temporary")
    assert state_store.import_state(source, exported, target).rows == len(rows_of(source))


def test_an_export_that_breaks_off_leaves_no_file(source: Path, tmp_path: Path) -> None:
    damaged = max((source / "state/0/1/delta").glob("*"))
    damaged.unlink()
    with pytest.raises(StateStoreError):
        state_store.export(source, tmp_path / "exported")
    assert not [path for path in tmp_path.iterdir() if "exported" in path.name]
    rows = state_store.export(source, tmp_path / "exported", on_damage="skip")
    assert json.loads((tmp_path / "exported/_SUCCESS").read_text()) == {"rows": rows, "lost": [1]}
    assert pq.read_table(tmp_path / "exported").num_rows == rows


@pytest.mark.parametrize(
    ("named", "option"),
    [
        ({"to": "mysql"}, "to"),
        ({"to": "hdfs", "memory": "abc"}, "memory"),
        ({"to": "hdfs", "memory": "1k"}, "memory"),
        ({"to": "hdfs", "memory": 4}, "memory"),
        ({"to": "hdfs", "threads": 0}, "threads"),
        ({"to": "hdfs", "checkpoint_format": 3}, "checkpoint_format"),
        ({"to": "hdfs", "conf": {"a": 1}}, "conf"),
    ],
)
def test_arguments_of_a_migration_are_checked_before_anything_is_written(
    source: Path, tmp_path: Path, named: dict[str, object], option: str
) -> None:
    with pytest.raises(OptionError) as raised:
        state_store.migrate(source, tmp_path / "target", **named)  # type: ignore[arg-type]
    assert raised.value.option == option
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("ends", [False, True])
def test_a_writer_that_begins_beside_another_is_refused(tmp_path, monkeypatch, ends):
    """Both found the directory empty; the second removed what the first had written."""
    target = tmp_path / "target"
    is_begun_now = targets._is_begun

    def another_meanwhile(*arguments):
        is_begun = is_begun_now(*arguments)
        monkeypatch.undo()
        with new_checkpoint("import", None, target, ends=ends) as (storage, _):
            storage.write("state/0/0/x", b"rows")
            storage.write("metadata", b"{}")
            if not ends:
                storage.delete("metadata")
        return is_begun

    monkeypatch.setattr(targets, "_is_begun", another_meanwhile)
    words = "is not written over" if ends else "another process has just begun"
    with pytest.raises(ConflictError, match=words), new_checkpoint("import", None, target):
        raise AssertionError("both write")
    assert (target / "state/0/0/x").read_bytes() == b"rows"
    assert (target / MARKER).exists() is not ends


def test_no_process_takes_over_what_another_has_just_completed(tmp_path, monkeypatch):
    target = tmp_path / "target"
    is_begun_now = targets._is_begun
    with new_checkpoint("copy", None, target, goes_on=True, ends=False) as (storage, _):
        storage.write("metadata", b"{}")

    def another_meanwhile(*arguments):
        is_begun = is_begun_now(*arguments)
        monkeypatch.undo()
        with new_checkpoint("copy", None, target, goes_on=True):
            pass
        return is_begun

    monkeypatch.setattr(targets, "_is_begun", another_meanwhile)
    with (
        pytest.raises(ConflictError, match=r"was completed meanwhile, by another process$"),
        new_checkpoint("copy", None, target, goes_on=True),
    ):
        raise AssertionError("it goes on")
    assert sorted(path.name for path in target.iterdir()) == ["commits", "metadata"]
    assert not list((target / "commits").iterdir())


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_marker_that_finds_no_room_leaves_nothing(tmp_path, monkeypatch, goes_on, is_new):
    target = tmp_path / "target"
    if not is_new:
        target.mkdir()

    def full(*arguments, **named):
        (target / "commits").mkdir(parents=True)
        raise StorageError("cannot write: No space left on device", file="x")

    monkeypatch.setattr(LocalStorage, "write", full)
    with pytest.raises(StorageError, match="No space"), new_checkpoint("copy", None, target, goes_on=goes_on):
        raise AssertionError("it is not marked")
    monkeypatch.undo()
    assert target.exists() is not is_new
    with new_checkpoint("import", None, target):
        pass
