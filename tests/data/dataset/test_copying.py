"""Command `state-store cp`: a copy is the same query at a version, also after an interruption."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark import cloudpickle

import state_store
from dataset.golden_states import VERSIONS, checkpoint, clean_up, expected, in_order, shown
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.checkpoint.stored_documents import MARKER
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.rewriting import copying
from state_store.data.dataset.rewriting.copying import copy, repartition
from state_store.data.jobs import Threads
from state_store.data.query import Query
from state_store.data.query.targets import new_checkpoint
from state_store.errors import ConflictError, DamagedError, MissingError, StorageError

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0"


def rows(directory: str) -> list[dict]:
    with state_store.open(directory) as state:
        return in_order(shown(row) for row in state.to_arrow().to_pylist())


@pytest.mark.parametrize("name", ["types", "flights"])
def test_a_copy_is_the_query(name, tmp_path, capsys):
    source, target = str(checkpoint(name, tmp_path)), str(tmp_path / "target")
    assert main(["cp", source, target, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == VERSIONS[-1] and document["files"] > 0 and document["present"] == 0
    assert rows(target) == expected(name, VERSIONS[-1])
    assert main(["verify", target]) == 0
    for log in ("offsets", "commits"):  # the query had begun a batch
        names = sorted(path.name for path in (Path(target) / log).iterdir())
        assert names == sorted(path.name for path in (Path(source) / log).glob("[0-9]*"))
    assert Query.open(target).committed() == Query.open(source).committed()
    assert main(["cp", source, target]) == ExitCode.RETRY
    assert not list(Path(source).glob("state/0/*/lease/*.json"))


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_a_copy_of_a_join_has_the_same_rows(form, tmp_path):
    source, target = str(shutil.copytree(JOIN / form, tmp_path / form)), str(tmp_path / "target")
    copy(source, target)
    for side in ("left", "right"):
        with state_store.open(source, store=side) as before, state_store.open(target, store=side) as after:
            assert in_order(after.to_arrow().to_pylist()) == in_order(before.to_arrow().to_pylist())
    assert main(["verify", target]) == 0


def test_the_last_commit_is_written_after_all_other_entries_of_logs(tmp_path, monkeypatch):
    source, target = checkpoint("flights", tmp_path), tmp_path / "target"
    last = f"commits/{VERSIONS[-1] - 1}"
    written: list[str] = []
    write = LocalStorage.write

    def slow(self, path, *rest, **how):
        if path.startswith(("commits/", "offsets/")) and path != last:
            time.sleep(0.05)
        write(self, path, *rest, **how)
        written.append(path)

    monkeypatch.setattr(LocalStorage, "write", slow)
    copy(str(source), str(target))
    of_logs = [path for path in written if path[-1].isdigit()]
    assert of_logs[-1] == last and len(of_logs) == len(set(of_logs)) > 4
    assert rows(str(target)) == expected("flights", VERSIONS[-1])


def test_an_interrupted_copy_continues(tmp_path, monkeypatch):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    copy_store = copying._copy_store
    calls = []

    def fails(pin, *rest):
        if calls:
            raise ConflictError("broke off")
        calls.append(pin)
        return copy_store(pin, *rest)

    monkeypatch.setattr(copying, "_copy_store", fails)
    with pytest.raises(ConflictError, match="broke off"):
        copy(source, str(target))
    monkeypatch.undo()
    with pytest.raises(MissingError, match=r"incomplete: copy of .* the same command continues it"):
        state_store.open(str(target))
    done = copy(source, str(target))
    assert done.present > 0 and done.files > 0
    assert rows(str(target)) == expected("flights", VERSIONS[-1])


def test_clean_ups_delete_nothing_meanwhile(tmp_path, monkeypatch):
    """The query runs on, and a clean-up starts after the choice of files and before their copies."""
    source, target = checkpoint("flights", tmp_path), str(tmp_path / "target")
    for log in ("offsets", "commits"):
        for number in (2, 3):
            (source / log / str(number)).rename(tmp_path / f"{log}-{number}")
    copy_store = copying._copy_store

    def after_a_clean_up(pin, *rest):
        for log in ("offsets", "commits"):
            for number in (2, 3):
                if (tmp_path / f"{log}-{number}").exists():
                    (tmp_path / f"{log}-{number}").rename(source / log / str(number))
        clean_up(str(source))
        return copy_store(pin, *rest)

    monkeypatch.setattr(copying, "_copy_store", after_a_clean_up)
    assert copy(str(source), target).version == 2
    assert rows(target) == expected("flights", 2)


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_copy_has_the_logs_that_the_query_removes_meanwhile(tmp_path, monkeypatch, has_begun):
    """Spark keeps the entries of 100 batches, which may take less time than the copy of a large store."""
    source, target = checkpoint("flights", tmp_path), tmp_path / "target"
    if not has_begun:
        (source / f"offsets/{VERSIONS[-1]}").unlink()
    logs = [path for log in ("offsets", "commits") for path in (source / log).glob("[0-9]*")]
    texts = {path.relative_to(source): path.read_bytes() for path in logs}
    copy_store = copying._copy_store

    def after_many_batches(pin, *rest):
        for path in logs:
            if path.exists():
                path.rename(path.with_name(str(int(path.name) + 100)))
        return copy_store(pin, *rest)

    monkeypatch.setattr(copying, "_copy_store", after_many_batches)
    assert copy(str(source), str(target)).version == VERSIONS[-1]
    assert rows(str(target)) == expected("flights", VERSIONS[-1])
    found = [path for log in ("offsets", "commits") for path in (target / log).glob("[0-9]*")]
    assert {path.relative_to(target): path.read_bytes() for path in found} == texts


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_checkpoint_whose_last_entries_are_gone_is_not_copied(tmp_path, monkeypatch, log):
    source, target = checkpoint("flights", tmp_path), tmp_path / "target"
    monkeypatch.setattr(Query, "newest_batch", lambda self: self.logs.newest_committed() - 1)
    (source / log / str(VERSIONS[-1] - 2)).unlink()
    with pytest.raises(MissingError, match=rf"{log}/{VERSIONS[-1] - 2}' is missing, .* try again"):
        copy(str(source), str(target))
    assert not target.exists()


def test_a_copy_compares_the_sizes_of_files_that_were_there(tmp_path):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    copy(source, target)
    (target / "commits").rename(tmp_path / "kept")
    (target / "commits").mkdir()
    marker = {"operation": "copy", "source": source}
    (target / "commits/_incomplete.json").write_text(json.dumps(marker))
    cut = next((target / "state/0/1").rglob("*.sst"))
    content = cut.read_bytes()
    cut.unlink()  # the source may have the same file, by a link
    cut.write_bytes(content[:-1])
    with pytest.raises(DamagedError, match=rf"'{cut}' has \d+ bytes, and what it is a copy of \d+: remove"):
        copy(source, target)
    cut.unlink()
    assert copy(source, target).files == 1
    assert rows(str(target)) == expected("flights", VERSIONS[-1])


def _interrupted(source: Path, target: Path) -> None:
    """Copy a checkpoint up to its log, as a process does that is killed then."""
    copy(str(source), str(target))
    newest = target / "commits" / str(VERSIONS[-1] - 1)
    newest.unlink()
    with new_checkpoint("copy", str(source), str(target.with_name("other")), goes_on=True, ends=False):
        pass
    shutil.copy(target.with_name("other") / MARKER, target / MARKER)


def test_a_copy_of_another_query_does_not_go_on_with_what_was_copied(tmp_path):
    source, target = checkpoint("flights", tmp_path), tmp_path / "target"
    _interrupted(source, target)
    id_ = json.loads((source / "metadata").read_text())["id"]
    (source / "metadata").write_text(json.dumps({"id": "another"}))
    with pytest.raises(ConflictError, match=f"another query then, {id_}: remove '{target}'"):
        copy(str(source), str(target))
    (source / "metadata").write_text(json.dumps({"id": id_}))
    assert copy(str(source), str(target)).files == 0


def test_a_copy_goes_on_from_the_directory_that_it_was_begun_with(tmp_path, monkeypatch):
    """A relative path is another directory for a process that runs elsewhere."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    source, target = checkpoint("flights", tmp_path / "first"), tmp_path / "target"
    checkpoint("flights", tmp_path / "second")
    _interrupted(source, target)
    monkeypatch.chdir(tmp_path / "second")
    with pytest.raises(ConflictError, match=f"what copy of '{source}' has written"):
        copy("flights", str(target))
    monkeypatch.chdir(tmp_path / "first")
    assert copy("flights", str(target)).files == 0


class _Elsewhere(Threads):
    """Work on pickles in another working directory, as that of an executor."""

    are_elsewhere = True

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def run(self, work, items, **named):
        sent, before = cloudpickle.dumps(work), Path.cwd()
        os.chdir(self._directory)
        try:
            return super().run(cloudpickle.loads(sent), items, **{**named, "meter": None})
        finally:
            os.chdir(before)


def test_executors_find_relative_paths_where_their_driver_does(tmp_path, monkeypatch):
    source, elsewhere = checkpoint("flights", tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(copying, "workers", lambda *_: _Elsewhere(elsewhere))
    copy(str(source), "copied")
    copy("flights", "copied-too")
    repartition("flights", "repartitioned", 3)
    assert list(elsewhere.iterdir()) == []
    assert rows("copied") == rows("copied-too") == expected("flights", VERSIONS[-1])
    assert len(rows("repartitioned")) == len(rows("copied"))


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_copy_stops_when_one_that_was_started_later_goes_on(tmp_path, monkeypatch, is_interrupted):
    """It wrote its logs into a checkpoint that was complete, on which a query may run."""
    source, target = checkpoint("flights", tmp_path), tmp_path / "target"
    real = copying._copy_store

    def stops(*arguments):
        raise StorageError("no answer", file="x")

    def another_meanwhile(*arguments):
        monkeypatch.setattr(copying, "_copy_store", stops if is_interrupted else real)
        with suppress(StorageError):
            copy(str(source), str(target))
        monkeypatch.setattr(copying, "_copy_store", real)
        return real(*arguments)

    monkeypatch.setattr(copying, "_copy_store", another_meanwhile)
    words = "any more.*Another process" if is_interrupted else "was completed meanwhile, by another process$"
    with pytest.raises(ConflictError, match=words):
        copy(str(source), str(target))
    assert (target / MARKER).exists() is is_interrupted
    if is_interrupted:
        assert not list(target.glob("offsets/*"))
        copy(str(source), str(target))
    assert rows(str(target)) == expected("flights", VERSIONS[-1])
    assert not (target / "_written").exists()
