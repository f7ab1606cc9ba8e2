"""A repartition beside a running query: in the end what a repartition of the stopped query makes."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest
from waiting import awaited, paths_below

import state_store
from running.running_query import RunningQuery, described
from state_store.cli.main import main
from state_store.core.checkpoint.names import tombstone_path
from state_store.core.checkpoint.stored_documents import MARKER, LeaseTerms, pack_tombstone
from state_store.core.runtime import SYSTEM
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset.partitions import Partitions
from state_store.data.dataset.rewriting import beside as module
from state_store.data.dataset.rewriting import catching_up, store_writer
from state_store.data.dataset.rewriting.beside import HeldDeltas
from state_store.data.dataset.rewriting.copying import repartition
from state_store.data.dataset.views import views
from state_store.data.jobs import Threads
from state_store.data.query import Query, StoreKey
from state_store.data.query.targets import Owner
from state_store.errors import BusyError, ConflictError, DamagedError, MissingError, StorageError

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SOURCES = {
    "flights": GOLDEN / "states" / "flights",
    "types": GOLDEN / "states" / "types",
    "ids": GOLDEN / "release-0.2.0" / "ids",
    "no-ids": GOLDEN / "release-0.2.0" / "no-ids",
    "lists": GOLDEN / "lists-of-spark-4.1" / "incremental",
}


def running(name: str, directory: Path, seed: int = 0) -> RunningQuery:
    return RunningQuery(Path(shutil.copytree(SOURCES[name], directory / "source")), seed)


@pytest.fixture
def meanwhile(monkeypatch):
    """Run batches of a query before each look at its newest version but the first."""

    def goes_on(query: RunningQuery, *batches: int) -> None:
        todo = [0, *batches]
        look = HeldDeltas.look

        def looked(held: HeldDeltas) -> module.Look:
            if threading.current_thread() is threading.main_thread():
                for _ in range(todo.pop(0) if todo else 0):
                    query.batch()
            return look(held)

        monkeypatch.setattr(module, "FEW_VERSIONS", 1)

        monkeypatch.setattr(HeldDeltas, "look", looked)

    return goes_on


def families(target: str) -> dict[str, dict[str, tuple[bool, int]]]:
    """Return the column families of each store of the newest version, as its files describe them."""
    query = Query.open(target)
    found = {}
    for operator in query.operators:
        for view in views(query, operator).values():
            with closing(Partitions(query, view, query.newest_batch() + 1)) as partitions:
                for number in partitions.numbers:
                    described_families = partitions.described_families(number)
                    found[partitions.key(number).path] = {
                        name: (family.internal, family.keys) for name, family in described_families.items()
                    }
    return found


def check_equal(query: RunningQuery, target: str, root: Path, partitions: int) -> None:
    """Compare with a repartition of the stopped query, and go on with the target."""
    plain = str(root / "plain")
    done = repartition(str(query.root), plain, partitions)
    rows = described(plain)
    assert described(target) == rows
    assert families(target) == families(plain)
    assert sum(keys for store in families(target).values() for _, keys in store.values()) == done.rows
    assert not (Path(target) / MARKER).exists() and not (Path(target) / "_written").exists()
    for path in ("metadata", "offsets", "state/0/_metadata"):
        assert _texts(Path(target) / path, target) == _texts(Path(plain) / path, plain)
    assert sorted(path.name for path in Path(target, "commits").iterdir()) == sorted(
        path.name for path in Path(plain, "commits").iterdir()
    )
    assert state_store.verify(target, all_versions=True, leave_result=False).ok
    state_store.full_checkpoint(target)
    assert described(target) == rows
    RunningQuery(Path(target), 99).batch()
    assert state_store.verify(target, leave_result=False).ok


def _texts(path: Path, location: str) -> dict[str, str]:
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {file.relative_to(location).as_posix(): file.read_text().replace(location, "") for file in files}


def more(*given: object) -> object:
    return pytest.param(*given, marks=pytest.mark.tier("more"))


@pytest.mark.dear("all that a repartition makes is compared, and used")
@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        ("flights", 4),
        *itertools.starmap(
            more, [("ids", 3), ("no-ids", 4), ("lists", 3), ("types", 1), ("flights", 3), ("no-ids", 1)]
        ),
    ],
)
def test_the_target_is_that_of_a_repartition_of_the_stopped_query(name, partitions, tmp_path, meanwhile):
    query, target = running(name, tmp_path), str(tmp_path / "target")
    query.batch()
    before = Query.open(str(query.root)).newest_batch() + 1
    meanwhile(query, 3, 2, 1)
    so_far = repartition(str(query.root), target, partitions, running=True)
    assert not so_far.is_complete and so_far.version == before + 5
    assert (Path(target) / MARKER).exists()
    for _ in range(2):
        query.batch()
    done = repartition(str(query.root), target, partitions)
    assert done.is_complete and done.version == before + 8
    check_equal(query, target, tmp_path, partitions)


def test_a_second_call_with_running_only_catches_up(tmp_path):
    query, target = running("flights", tmp_path), tmp_path / "target"
    first = repartition(str(query.root), str(target), 4, running=True)
    first_tables = tables(target)
    again = repartition(str(query.root), str(target), 4, running=True)
    assert (again, tables(target)) == (first, first_tables)
    query.batch()
    later = repartition(str(query.root), str(target), 4, running=True)
    assert later.version == first.version + 1 and later.rows == rows_of(query)
    assert first_tables < tables(target)
    repartition(str(query.root), str(target), 4)
    check_equal(query, str(target), tmp_path, 4)
    with pytest.raises(ConflictError, match="is not empty"):
        repartition(str(query.root), str(target), 4)


def test_other_partitions_and_other_sources_are_refused(tmp_path):
    query, target = running("flights", tmp_path), str(tmp_path / "target")
    repartition(str(query.root), target, 4, running=True)
    other = str(shutil.copytree(query.root, tmp_path / "other"))
    for source, partitions, is_running in ((query.root, 3, True), (other, 4, True), (query.root, 3, False)):
        with pytest.raises(ConflictError, match="4 partitions beside the running query of"):
            repartition(str(source), target, partitions, running=is_running)
    with pytest.raises(MissingError, match="the same command continues it"):
        state_store.open(target)


def test_a_store_with_no_change_gets_no_file_before_the_end(tmp_path):
    query, target = running("flights", tmp_path), tmp_path / "target"
    repartition(str(query.root), str(target), 4, running=True)
    first_tables = tables(target)
    query.batch(0)
    assert repartition(str(query.root), str(target), 4, running=True).version == 5
    assert tables(target) == first_tables
    query.batch(0)
    repartition(str(query.root), str(target), 4)
    assert len(tables(target)) == 2 * len(first_tables)
    check_equal(query, str(target), tmp_path, 4)


def test_leases_hold_what_the_rounds_need_while_a_query_retires_versions(tmp_path, monkeypatch):
    query, target = running("flights", tmp_path), tmp_path / "target"
    held: list[HeldDeltas] = []
    written = module._write_first_tables

    def written_meanwhile(*given: object) -> None:
        written(*given)
        for _ in range(3):
            query.batch()
            held[0].look()
            query.retire(2)

    monkeypatch.setattr(HeldDeltas, "follow", lambda own: held.append(own))
    monkeypatch.setattr(module, "_write_first_tables", written_meanwhile)
    so_far = repartition(str(query.root), str(target), 4, running=True)
    assert so_far.version == 4 + 2 * 3 and len(tables(target)) == 2 * 4  # no first table was written anew
    assert not list(query.root.rglob("lease/*.json"))
    repartition(str(query.root), str(target), 4)
    check_equal(query, str(target), tmp_path, 4)


def test_the_follower_takes_leases_on_what_comes(tmp_path, monkeypatch):
    query = running("flights", tmp_path)
    monkeypatch.setattr(module, "_LOOK_S", 0.05)
    with HeldDeltas(str(query.root), lambda key: 4, SYSTEM) as held:
        assert held.look().version == 4
        fail = [PermissionError(13, "Permission denied"), RuntimeError("a client of others")]
        look = held.look
        monkeypatch.setattr(held, "look", lambda: look() if not fail else raised(fail.pop()))
        held.follow()
        query.batch()
        newest = set(query.root.rglob("delta/*5_*.sst"))
        awaited(lambda: newest <= leased(query.root), "a lease on the new deltas")
        assert newest
    assert not leased(query.root)


def raised(error: Exception) -> None:
    raise error


def leased(root: Path) -> set[Path]:
    found = set()
    for lease in (path for path in paths_below(root, "*.json") if path.parent.name == "lease"):
        with contextlib.suppress(FileNotFoundError):
            terms = LeaseTerms.unpack(lease.read_bytes(), file=str(lease))
            found |= {lease.parent.parent / file for file in terms.files}
    return found


@pytest.mark.parametrize("form", ["flights", more("no-ids")])
def test_a_query_that_ran_on_for_too_long_is_caught_up_with_by_another_call(form, tmp_path):
    query, target = running(form, tmp_path), tmp_path / "target"
    so_far = repartition(str(query.root), str(target), 4, running=True)
    first_tables = tables(target)
    for _ in range(3):
        query.batch(4)
        query.retire(2)
    for _ in range(2):
        with pytest.raises(MissingError, match=rf"has version {so_far.version} .* \(--running\) once more"):
            repartition(str(query.root), str(target), 4)
    assert tables(target) == first_tables and (target / MARKER).exists()
    again = repartition(str(query.root), str(target), 4, running=True)
    assert again.version == so_far.version + 3
    assert not tables(target) & first_tables and len(tables(target)) == len(first_tables)
    repartition(str(query.root), str(target), 4)
    check_equal(query, str(target), tmp_path, 4)


@pytest.mark.parametrize("form", ["flights", more("no-ids")])
def test_a_version_that_was_made_anew_is_not_taken_for_the_one_that_was_copied(form, tmp_path):
    """Someone removed Spark's last commit, and the query made that batch again."""
    query, target = running(form, tmp_path), tmp_path / "target"
    aside = tmp_path / "aside"
    shutil.copytree(query.root, aside)
    query.batch()
    so_far = repartition(str(query.root), str(target), 4, running=True)
    shutil.rmtree(query.root)
    shutil.copytree(aside, query.root)
    again = RunningQuery(query.root, seed=5)
    again.batch()
    again.batch()
    with pytest.raises(MissingError, match=f"has version {so_far.version} of store"):
        repartition(str(query.root), str(target), 4)
    repartition(str(query.root), str(target), 4, running=True)
    repartition(str(query.root), str(target), 4)
    check_equal(again, str(target), tmp_path, 4)


def test_a_query_that_runs_on_is_noticed_at_the_end(tmp_path, meanwhile, monkeypatch):
    query, target = running("flights", tmp_path), str(tmp_path / "target")
    repartition(str(query.root), target, 4, running=True)
    finish = module.Beside.finish

    def finished(own: module.Beside, *given: object, **named: object) -> object:
        done = finish(own, *given, **named)
        query.batch()
        return done

    with monkeypatch.context() as patches:
        patches.setattr(module.Beside, "finish", finished)
        with pytest.raises(ConflictError, match=r"has gone on meanwhile.* the same command goes on"):
            repartition(str(query.root), target, 4)
    assert not (tmp_path / "target" / "metadata").exists()
    repartition(str(query.root), target, 4)
    check_equal(query, target, tmp_path, 4)


def test_the_end_is_refused_before_all_stores_are_written(tmp_path, monkeypatch):
    query, target = running("flights", tmp_path), str(tmp_path / "target")
    with monkeypatch.context() as patches:
        patches.setattr(module, "_write_first_tables", _fails_at(module._write_first_tables, 1))
        with pytest.raises(BusyError, match="the same command goes on with it"):
            repartition(str(query.root), target, 4, running=True)
    with pytest.raises(ConflictError, match=r"has 2 of 4 stores so far.*\(--running\) first"):
        repartition(str(query.root), target, 4)
    written = tables(tmp_path / "target")
    query.batch()
    so_far = repartition(str(query.root), target, 4, running=True)
    assert so_far.version == 5 and written < tables(tmp_path / "target")
    repartition(str(query.root), target, 4)
    check_equal(query, target, tmp_path, 4)


def _fails_at(work, number: int):
    calls = itertools.count()

    def tried(*given: object) -> object:
        if next(calls) == number:
            raise BusyError("a task meets trouble")
        return work(*given)

    return tried


def test_a_round_that_fails_in_the_middle_is_made_again(tmp_path, monkeypatch):
    query, target = running("flights", tmp_path), str(tmp_path / "target")
    repartition(str(query.root), target, 4, running=True)
    query.batch()
    for work in ("_advance", "_finish"):
        with monkeypatch.context() as patches:
            patches.setattr(module, work, _fails_at(getattr(module, work), 1))
            with pytest.raises(BusyError, match="the same command goes on with it"):
                repartition(str(query.root), target, 4, running=work == "_advance")
    query.batch()
    repartition(str(query.root), target, 4)
    check_equal(query, target, tmp_path, 4)


def test_stores_are_written_anew_if_a_state_variable_is_removed_meanwhile(tmp_path):
    query, target = running("lists", tmp_path), tmp_path / "target"
    (key,) = Query.open(str(query.root)).stores()
    repartition(str(query.root), str(target), 2, running=True)
    first_tables = tables(target)
    query.remove_family(key)
    with pytest.raises(MissingError, match=r"up to version 4, remove a part of .* \(--running\) once more"):
        repartition(str(query.root), str(target), 2)
    assert repartition(str(query.root), str(target), 2, running=True).version == 4
    assert not tables(target) & first_tables
    repartition(str(query.root), str(target), 2)
    assert families(str(target)) == families_of_plain(query, tmp_path, 2)


def test_a_store_that_is_given_up_loses_its_receipt_before_its_files(tmp_path, monkeypatch):
    query, target = running("lists", tmp_path), tmp_path / "target"
    (key,) = Query.open(str(query.root)).stores()
    repartition(str(query.root), str(target), 2, running=True)
    first_tables = tables(target)
    query.remove_family(key)
    forget = store_writer.Receipts.forget

    def refused(own: store_writer.Receipts, store: StoreKey) -> None:
        if store.partition == 0:
            raise StorageError("no receipt is removed")
        forget(own, store)

    with monkeypatch.context() as patches:
        patches.setattr(store_writer.Receipts, "forget", refused)
        with pytest.raises(StorageError, match="no receipt is removed"):
            repartition(str(query.root), str(target), 2, running=True)
    kept_tables = {path for path in first_tables if path.startswith("state/0/0/")}
    assert tables(target) == kept_tables and kept_tables < first_tables
    assert repartition(str(query.root), str(target), 2, running=True).version == 4
    assert not tables(target) & first_tables
    repartition(str(query.root), str(target), 2)
    assert families(str(target)) == families_of_plain(query, tmp_path, 2)


def families_of_plain(query: RunningQuery, root: Path, partitions: int) -> object:
    repartition(str(query.root), str(root / "plain"), partitions)
    return families(str(root / "plain"))


@pytest.mark.parametrize("shown", ["--json", None])
def test_the_command_says_what_to_do_next(shown, tmp_path, capsys):
    query, target = running("flights", tmp_path), str(tmp_path / "target")
    command = ["repartition", str(query.root), target, "--partitions", "3", *([shown] if shown else [])]
    assert main([*command, "--running"]) == 0
    so_far = capsys.readouterr().out
    assert main(command) == 0
    ended = capsys.readouterr().out
    if shown:
        assert [json.loads(text)["complete"] for text in (so_far, ended)] == [False, True]
    else:
        assert "stop the query" in so_far and "without --running" in so_far and "stop" not in ended
    check_equal(query, target, tmp_path, 3)


def tables(target: Path) -> set[str]:
    return {path.relative_to(target).as_posix() for path in target.rglob("shared/*.sst")}


def rows_of(query: RunningQuery) -> int:
    with state_store.open(query.root) as state:
        return state.count()


def test_a_delta_whose_records_do_not_all_come_is_an_error(tmp_path, monkeypatch):
    query, target = running("flights", tmp_path), str(tmp_path / "target")
    repartition(str(query.root), target, 4, running=True)
    query.batch()
    pages = catching_up.pages
    monkeypatch.setattr(
        catching_up, "pages", lambda *place: (page.take(slice(1, None)) for page in pages(*place))
    )
    with pytest.raises(DamagedError, match="records of column families, and says that it has"):
        repartition(str(query.root), target, 4)


def test_a_disk_without_room_is_said_before_changes_are_read(tmp_path, monkeypatch):
    query, target = running("flights", tmp_path), str(tmp_path / "target")
    repartition(str(query.root), target, 4, running=True)
    query.batch()
    monkeypatch.setattr(store_writer, "free_bytes", lambda directory: 100)
    with pytest.raises(StorageError, match="has 0 MiB free"):
        repartition(str(query.root), target, 4)


def test_fewer_rows_than_none_are_an_error(tmp_path):
    query, target = running("flights", tmp_path), tmp_path / "target"
    repartition(str(query.root), str(target), 4, running=True)
    document = target / "_written" / "reached.json"
    reached = json.loads(document.read_text())
    for store in reached["stores"].values():
        store["families"]["default"]["keys"] = 0
    document.chmod(0o600)
    document.write_text(json.dumps(reached))
    query.batch(100, puts=0)
    with pytest.raises(DamagedError, match=r"would have -\d+ rows of column family 'default' in version 5"):
        repartition(str(query.root), str(target), 4)


def test_condemned_deltas_are_not_built_on_and_condemned_tables_not_shared(tmp_path):
    query, target = running("flights", tmp_path), tmp_path / "target"
    repartition(str(query.root), str(target), 4, running=True)
    query.batch()
    (first, *_) = query.root.glob("state/0/0/delta/*5_*.sst")
    mark = query.root / "state/0/0" / tombstone_path("cleaner")
    condemn(mark, f"delta/{first.name}")
    with pytest.raises(MissingError, match="are not all there any more"):
        repartition(str(query.root), str(target), 4)
    mark.unlink()
    (table,) = target.glob("state/0/0/shared/*.sst")
    condemn(mark := target / "state/0/0" / tombstone_path("cleaner"), f"shared/{table.name}")
    with pytest.raises(ConflictError, match="was removed: something else works there"):
        repartition(str(query.root), str(target), 4)
    mark.unlink()
    repartition(str(query.root), str(target), 4)
    check_equal(query, str(target), tmp_path, 4)


def condemn(mark: Path, path: str) -> None:
    mark.parent.mkdir(exist_ok=True)
    mark.write_bytes(pack_tombstone([path]))


def test_a_query_that_retires_versions_too_soon_is_not_copied_for_ever(tmp_path, monkeypatch):
    query, target = running("flights", tmp_path), str(tmp_path / "target")
    monkeypatch.setattr(module.Beside, "_lost", lambda own, look: list(own._stores))
    with pytest.raises(ConflictError, match="minBatchesToRetain"):
        repartition(str(query.root), target, 4, running=True)


def test_a_round_does_not_go_on_with_what_another_process_has_completed(tmp_path, monkeypatch):
    query, target = running("flights", tmp_path), tmp_path / "target"
    repartition(str(query.root), str(target), 4, running=True)
    query.batch()
    advance = module.Beside._round

    def completed_meanwhile(own: module.Beside, look: module.Look) -> None:
        advance(own, look)
        repartition(str(query.root), str(target), 4)

    monkeypatch.setattr(module.Beside, "_round", completed_meanwhile)
    with pytest.raises(ConflictError, match="was completed meanwhile"):
        repartition(str(query.root), str(target), 4, running=True)
    monkeypatch.undo()
    check_equal(query, str(target), tmp_path, 4)


def test_the_first_of_two_stops_when_the_second_has_taken_its_place(tmp_path, monkeypatch):
    """Each wrote the document over that of the other, and removed stores that the other went on from."""
    query, target = running("flights", tmp_path), tmp_path / "target"
    repartition(str(query.root), str(target), 4, running=True)
    query.batch()
    advance, documents = module.Beside._round, []

    def taken_meanwhile(own: module.Beside, look: module.Look) -> None:
        advance(own, look)
        monkeypatch.undo()
        repartition(str(query.root), str(target), 4, running=True)
        documents.append((target / "_written/reached.json").read_bytes())

    monkeypatch.setattr(module.Beside, "_round", taken_meanwhile)
    with pytest.raises(ConflictError, match=r"not written by this process any more.*Another process"):
        repartition(str(query.root), str(target), 4, running=True)
    assert documents == [(target / "_written/reached.json").read_bytes()]
    repartition(str(query.root), str(target), 4)
    check_equal(query, str(target), tmp_path, 4)


def test_an_end_that_another_process_has_taken_over_removes_nothing(tmp_path, monkeypatch):
    query, target = running("flights", tmp_path), tmp_path / "target"
    repartition(str(query.root), str(target), 4, running=True)
    run, removed = Threads.run, []

    def taken_meanwhile(*arguments, **named):
        results = list(run(*arguments, **named))
        Owner().take(LocalStorage(target), str(target))
        return results

    monkeypatch.setattr(Threads, "run", taken_meanwhile)
    monkeypatch.setattr(module.Receipts, "remove_orphans", lambda *arguments, **_: removed.append(arguments))
    with pytest.raises(ConflictError, match="Another process, which was started later, goes on"):
        repartition(str(query.root), str(target), 4)
    assert not removed and (target / MARKER).exists()
    monkeypatch.undo()
    repartition(str(query.root), str(target), 4)
    check_equal(query, str(target), tmp_path, 4)
