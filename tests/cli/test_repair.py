"""`state-store repair`: damaged files are made anew if they can be, leaks go, the rest stays."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest
from damage.harms import flips, replacements, truncations
from damage.subject import FULL_AT, INCREMENTAL_AT, KEY, NEWEST, Subject
from faults import FAULTS, FaultyStorage, once
from query_directory import QueryDirectory, rows

from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.checkpoint.names import SharedName, VersionId, lease_path
from state_store.core.checkpoint.stored_documents import LeaseTerms
from state_store.core.storage import Storage
from state_store.core.storage.local import LocalStorage
from state_store.data.maintenance.repair import DISCARD, REBUILD, REMOVE, Repair, repair_store
from state_store.data.query import StoreKey
from state_store.errors import StateStoreError, StorageError

DAY_MS = 86_400_000
OLD_S = time.time() - 3 * DAY_MS / 1000
SAMPLE = 3
STORE = StoreKey(0, 0)


@pytest.fixture(scope="module", params=[True, False], ids=["ids", "no-ids"])
def subject(request, tmp_path_factory) -> Subject:
    return Subject(tmp_path_factory.mktemp("repair") / "store", request.param, cleaned=False)


def repaired(subject: Subject, *, apply: bool = True, discard: bool = False) -> Repair:
    newest = VersionId(NEWEST, subject.versions[NEWEST][0])
    storage = LocalStorage(subject.location)
    return repair_store(KEY, storage, lambda: newest, apply=apply, older_than_ms=DAY_MS, discard=discard)


def restorable(subject: Subject) -> dict[int, dict[bytes, bytes]]:
    """The rows of each version that can be restored."""
    reader, found = subject.executor("reader"), {}
    for version in subject.restorable:
        try:
            found[version] = subject.restored(reader, version)
        except StateStoreError:
            continue
        assert found[version] == subject.versions[version][1], f"WRONG ROWS of version {version}"
    return found


@pytest.mark.parametrize("kind", ["snapshot", "older snapshot", "shared"])
@pytest.mark.tier("more")
def test_damaged_snapshots_are_made_anew(subject, kind):
    chance = random.Random(kind)
    harms = [
        (path, harm)
        for path in subject.files()[kind]
        for harm in (*flips(path, chance, in_each=1), *truncations(path, chance, count=2), *replacements([]))
        if not (harm.kind == "deleted" and kind != "shared")
    ]
    for path, harm in chance.sample(harms, SAMPLE):
        subject.reset()
        broken = subject.in_place(path)
        harm.do(broken)
        if not subject.verify().findings:
            continue  # a byte that nobody reads
        planned = repaired(subject, apply=False)
        done = repaired(subject)
        label = f"{kind} {path.name}: {harm.text}: {done}"
        assert [step for step in planned.steps if step.action == REBUILD], label
        assert [step.file for step in planned.steps if step.action == REBUILD] == [
            step.file for step in done.steps if step.action == REBUILD
        ], label
        assert done.left == planned.left == (), label
        assert subject.verify().findings == (), label
        assert list(restorable(subject)) == subject.restorable, label


def test_a_dry_run_writes_nothing(subject):
    subject.reset()
    snapshot = subject.in_place(subject.files()["snapshot"][0])
    snapshot.unlink()
    snapshot.write_bytes(b"nothing")
    before = {path: path.stat().st_mtime_ns for path in subject.location.rglob("*") if path.is_file()}
    assert repaired(subject, apply=False).steps
    assert {p: p.stat().st_mtime_ns for p in subject.location.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("kind", ["delta", "older delta"])
def test_a_file_that_cannot_be_mended_stays_and_is_named(subject, kind):
    subject.reset()
    path = subject.in_place(subject.files()[kind][1])
    next(flips(path, random.Random(1), in_each=1)).do(path)
    before = restorable(subject)
    done = repaired(subject)
    if subject.ids or "_" in path.name:
        assert path.name in "".join(found.file for found in done.left)
    assert path.exists()
    assert restorable(subject) == before
    assert set(before) >= set(range(FULL_AT if kind == "older delta" else 1, INCREMENTAL_AT))


@pytest.mark.tier("more")
def test_a_file_that_cannot_be_mended_is_discarded_if_the_newest_version_needs_none(subject):
    subject.reset()
    damaged = subject.in_place(subject.files()["older delta"][INCREMENTAL_AT - 2])
    next(flips(damaged, random.Random(1), in_each=1)).do(damaged)
    before = restorable(subject)
    assert NEWEST in before
    assert len(before) < NEWEST
    planned = repaired(subject, apply=False, discard=True)
    done = repaired(subject, discard=True)
    assert planned.steps == done.steps
    discarded = [Path(step.file).name for step in done.steps if step.action == DISCARD]
    assert discarded == [damaged.name]
    assert done.left == ()
    assert not damaged.exists()
    assert subject.verify().findings == ()
    assert restorable(subject) == before


def test_nothing_is_discarded_that_the_newest_version_needs(subject):
    subject.reset()
    damaged = subject.in_place(subject.files()["delta"][0])
    damaged.unlink()
    damaged.write_bytes(b"nothing")
    before = {path for path in subject.location.rglob("*") if path.is_file()}
    done = repaired(subject, discard=True)
    assert done.skipped is not None
    assert done.left
    assert {path for path in subject.location.rglob("*") if path.is_file()} == before


def test_damage_in_two_snapshots_is_mended_from_the_first_deltas(subject):
    subject.reset()
    for kind in ("snapshot", "older snapshot"):
        path = subject.in_place(subject.files()[kind][0])
        path.unlink()
        path.write_bytes(b"")
    assert [found.action for found in repaired(subject).steps].count(REBUILD) == 2
    assert subject.verify().findings == ()
    assert list(restorable(subject)) == subject.restorable


@pytest.fixture
def query(tmp_path) -> QueryDirectory:
    """A store of six versions, of which the first four are gone, with what the dead may leave."""
    made = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
    for batch in range(6):
        made.commit(rows(batch * 10, 20))
        if batch == 4:
            made.merge(StoreKey(0, 0), "full")
    return made


def leave(query: QueryDirectory, path: str, data: bytes, *, young: bool = False) -> Path:
    file = query.root / StoreKey(0, 0).path / path
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    if not young:
        os.utime(file, (OLD_S, OLD_S))
    return file


@pytest.mark.parametrize("prefix", ["delta", "shared", "snapshot"])
@pytest.mark.parametrize("fault", ["unavailable", "damaged-read", "short-read"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_file_that_is_not_read_well_is_not_discarded(query, prefix, fault, nth):
    """Neither a storage that does not answer nor a bit that flips on its way is damage."""
    files = {path: path.read_bytes() for path in query.files(STORE)}
    operation = "read" if prefix == "snapshot" else "download"
    storage = FaultyStorage(query.store(STORE), once(operation, prefix, FAULTS[fault].fault, nth=nth))
    try:
        done = discarded(query, storage)
        assert done.steps == ()
        assert all(not finding.is_bad for finding in done.left)
    except StorageError:
        assert (fault, prefix) == ("unavailable", "snapshot")  # then nothing at all is known
    assert storage.faults == 1 or nth == 2
    assert {path: path.read_bytes() for path in query.files(STORE)} == files


def test_nothing_is_discarded_while_another_file_cannot_be_read(query):
    harmed = next(path for path in query.files(STORE) if path.name.startswith(f"{3:020}"))
    next(flips(harmed, random.Random(1), in_each=1)).do(harmed)
    other = f"delta/{6:020}"
    storage = FaultyStorage(query.store(STORE), once("download", other, FAULTS["unavailable"].fault))
    done = discarded(query, storage)
    assert done.steps == ()
    assert done.undecided is not None and other in done.undecided
    assert harmed.exists()
    assert [step.action for step in discarded(query, query.store(STORE)).steps] == [DISCARD]
    assert not harmed.exists()


def discarded(query: QueryDirectory, storage: Storage) -> Repair:
    newest = query.newest[STORE]
    return repair_store(STORE, storage, lambda: newest, apply=True, older_than_ms=DAY_MS, discard=True)


def test_leaks_go_once_they_are_old(query, capsys):
    for path in query.files(StoreKey(0, 0)):
        if int(path.name[:20]) < 5:
            path.unlink()
    needed = {path: path.read_bytes() for path in query.files(StoreKey(0, 0))}
    lease = LeaseTerms(frozenset(), 3_600_000, 1)
    old = [
        leave(query, f"delta/{6:020}_x.sst.1234.tmp", b"x" * 10),
        leave(query, SharedName(2, 7, 1).path, b"x" * 20),
        leave(query, lease_path("dead"), lease.pack()),
        leave(query, lease_path("torn"), b""),
        leave(query, "tombstone/torn.json", b""),
    ]
    young = [
        leave(query, f"delta/{6:020}_y.sst.1234.tmp", b"y", young=True),
        leave(query, SharedName(2, 8, 1).path, b"y", young=True),
        leave(query, lease_path("live"), lease.pack(), young=True),
    ]
    arguments = ["repair", str(query.root), "--json"]
    assert main(arguments) == ExitCode.OK  # all that is wrong would go
    planned = json.loads(capsys.readouterr().out)
    assert all(path.exists() for path in old)
    assert main([*arguments, "--apply"]) == ExitCode.OK
    done = json.loads(capsys.readouterr().out)
    assert done["ok"] and done["applied"] and not planned["applied"]
    (store,) = done["stores"]
    removed = {found["file"]: found["bytes"] for found in store["steps"] if found["action"] == REMOVE}
    sizes = (10, 20, len(lease.pack()), 0, 0)
    names = [f"{path.parent.name}/{path.name}" for path in old]
    assert removed == dict(zip(names, sizes, strict=True))
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in young)
    assert {path: path.read_bytes() for path in needed} == needed
    assert main(["verify", str(query.root)]) == ExitCode.OK
    assert query.restored(StoreKey(0, 0)) == query.state[StoreKey(0, 0)]


def test_an_age_of_less_than_an_hour_is_refused(query, capsys):
    assert main(["repair", str(query.root), "--older-than", "59min"]) == ExitCode.USAGE
    assert "'59min' is too young: 1h or more is needed" in capsys.readouterr().err
    assert main(["repair", str(query.root), "--older-than", "old"]) == ExitCode.USAGE
    assert "'old' is not an age: a duration with its unit is needed" in capsys.readouterr().err


def test_a_table_shows_each_file(query, capsys):
    leave(query, f"delta/{6:020}_x.sst.1234.tmp", b"x" * 10)
    assert main(["repair", str(query.root), "--leaks-only"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "an unfinished write" in out and "10 bytes" in out and "nothing was written" in out
    assert main(["repair", str(query.root), "--leaks-only", "--apply"]) == ExitCode.OK
    assert main(["repair", str(query.root)]) == ExitCode.OK
    assert capsys.readouterr().out.endswith("\nnothing to do\n")
