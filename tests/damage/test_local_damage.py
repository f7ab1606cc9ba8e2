"""Every kind of file on an executor's own disk, damaged: nothing of it reaches checkpoint storage.

The agent's files: the copies that local recovery keeps, and a base (RocksDB's tables, MANIFEST, CURRENT,
OPTIONS) from which the next merge starts. Whatever the harm, that merge gives a right snapshot or an error,
and then the one after it does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.harness import Job, contents, rows_of

from damage import tally
from damage.harms import Harm, flips, replacements, truncations
from damage.subject import NEWEST, Subject
from state_store.errors import DamagedError, StateStoreError

KINDS = {
    "base table": "*.sst",
    "base MANIFEST": "MANIFEST-*",
    "base CURRENT": "CURRENT",
    "base OPTIONS": "OPTIONS-*",
}
SAMPLE = 6


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(tmp_path_factory.mktemp("local") / "a", ids=True, cleaned=False)


def executor(subject: Subject) -> tuple[Job, Path]:
    """Return a store that goes on from the newest version, and the base of its next merge."""
    subject.reset()
    job = subject.executor("executor", retain=2)
    directory = Path(job.restore(NEWEST)["directory"])
    return job, directory


def harms(path: Path, others: list[Path], chance: random.Random, in_each: int, cuts: int) -> Iterator[Harm]:
    yield from flips(path, chance, in_each=in_each)
    yield from truncations(path, chance, count=cuts)
    yield from replacements(others)


def check_base(subject: Subject, kind: str, chance: random.Random, number: int, in_each: int) -> bool:
    """Do the `number`-th harm to a base; false when there are no more."""
    job, directory = executor(subject)
    files = sorted(directory.glob(KINDS[kind]))
    others = [path for path in files[1:2] if path.stat().st_size != files[0].stat().st_size]
    found = list(harms(files[0], others, random.Random(chance.random()), in_each, 2 * in_each))
    if number >= len(found):
        return False
    harm = found[number]
    tally.harms[kind, harm.kind] += 1
    label = f"{kind}: {harm.text}"
    harm.do(files[0])
    job.commit({b"\0\0after": b"1"})
    try:
        directory = job.merge("full" if number % 2 else "incremental")["directory"]
    except StateStoreError as error:
        assert error.kind in ("damaged", "storage"), f"{label}: {error!r}"
        assert str(directory.parent) in error.message, f"{label}: {error}"
        tally.outcomes["the merge refused"] += 1
        directory = job.merge("full")["directory"]
    else:
        tally.outcomes["the merge was right"] += 1
    try:
        assert contents(directory) == job.state, f"WRONG ROWS: {label}"
    except DamagedError:
        tally.outcomes["the local reader refused"] += 1  # it links a table that no merge has read
    reader = subject.executor("reader")
    reader.versions = job.versions
    answer = reader.restore(job.version)
    assert rows_of(answer) == job.state, f"WRONG ROWS: {label}"
    assert answer["warnings"] == [], label
    return True


@pytest.mark.tier("more")
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_base_makes_no_wrong_snapshot(subject: Subject, kind: str) -> None:
    chance = random.Random(kind)
    for number in chance.sample(range(12), SAMPLE):
        check_base(subject, kind, chance, number, in_each=1)


@pytest.mark.tier("long")
@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_of_a_base_makes_a_wrong_snapshot(subject: Subject, kind: str) -> None:
    chance, number = random.Random(f"long {kind}"), 0
    while check_base(subject, kind, chance, number, in_each=8):
        number += 1


def check_kept(subject: Subject, chance: random.Random, path: Path, harm: Harm) -> None:
    subject.reset()
    job = subject.executor("executor", local_files=True)
    (kept,) = (subject.root / "executor/kept").glob(f"*/{path.name}")
    tally.harms["kept file", harm.kind] += 1
    harm.do(kept)
    answer = job.restore(NEWEST)
    assert rows_of(answer) == subject.versions[NEWEST][1], f"WRONG ROWS: {path.name}: {harm.text}"
    tally.outcomes["exact"] += 1


@pytest.mark.parametrize(
    "in_each", [pytest.param(5, marks=pytest.mark.tier("long")), 0], ids=["all", "sample"]
)
def test_damaged_kept_files_are_read_again(subject: Subject, in_each: int) -> None:
    chance = random.Random(7)
    files = sorted((subject.root / "writer/kept").glob("*/*.sst"))
    needed = [path for path in files if "shared" in path.name or int(path.name[6:26]) > 6]
    cases = [
        (path, harm)
        for path in needed
        for harm in harms(path, [other for other in needed if other != path][:1], chance, in_each or 1, 4)
    ]
    for path, harm in cases if in_each else chance.sample(cases, 10):
        check_kept(subject, chance, path, harm)
