"""Every kind of file in checkpoint storage, damaged in every way: exact all the same, or an error that says.

Of each case: a restore on a machine without local files gives exactly the rows of the version asked, or an
error that names the file and says what can be restored; `state-store verify` finds it; and where a merge can
heal it, the next one does.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.harness import Job

from damage import tally
from damage.harms import Harm, flips, replacements, truncations
from damage.subject import INCREMENTAL_AT, NEWEST, Subject
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import LeaseTerms, unpack
from state_store.errors import StateStoreError

REMEDIES = ("versions that can be restored", "no version of this store can be restored", "newer one")
VARIANTS = ["everything", "cleaned"]
KINDS = ["delta", "older delta", "snapshot", "older snapshot", "shared", "lease", "tombstone"]
IDS = [True, False]


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, str], list[Subject]]:
    """Make two stores of each variety: one to be harmed, and one whose files replace those of the first."""
    root = tmp_path_factory.mktemp("damage")
    return {
        (ids, variant): [
            Subject(root / f"{ids}-{variant}-{seed}", ids, variant == "cleaned", seed) for seed in (1, 2)
        ]
        for ids in IDS
        for variant in VARIANTS
    }


def cases(
    subject: Subject, stranger: Subject, kind: str, chance: random.Random, *, in_each: int, cuts: int
) -> Iterator[tuple[Path, Harm]]:
    """Harms to one file of the kind; to every file of it where there are many of each."""
    files = subject.files()[kind]
    for path in files if in_each > 1 else files[:1]:
        others = [other for other in files if other != path][:1] + _told_apart(
            path, stranger.files()[kind][:1]
        )
        yield from ((path, harm) for harm in flips(path, chance, in_each=in_each))
        yield from ((path, harm) for harm in truncations(path, chance, count=cuts))
        yield from ((path, harm) for harm in replacements(others))


def _told_apart(path: Path, others: list[Path]) -> list[Path]:
    """Return the files of another store that must be told from `path`; a lease of its says nothing here."""
    return [] if path.suffix == ".json" else others


class Case:
    """A harm to a file, with the answers of a restore, of `verify` and of a merge."""

    def __init__(self, subject: Subject, kind: str, path: Path, harm: Harm) -> None:
        self.subject, self.kind, self.harm, self.pristine = subject, kind, harm, path
        subject.reset()
        self.path = subject.in_place(path)
        harm.do(self.path)
        self.label = f"{kind} {self.path.name}: {harm.text}"
        tally.harms[kind, harm.kind] += 1

    def check(self, *, healing: bool) -> None:
        """Check everything; with `healing` also that a merge heals it, which takes longest."""
        self.check_verify(self.check_restores())
        if healing:
            self.check_healing()

    def check_restores(self) -> bool:
        """Return True if the newest version could be restored."""
        newest = False
        of = 1 if self.kind in ("lease", "tombstone") else int(self.path.name[:20])
        of = max(of, INCREMENTAL_AT) if self.subject.cleaned else of
        reader = self.subject.executor("reader")
        for version in sorted({of, NEWEST}):
            try:
                rows = self.subject.restored(reader, version)
            except StateStoreError as error:
                self._check_message(error)
                tally.outcomes["refused"] += 1
            else:
                assert rows == self.subject.versions[version][1], f"WRONG ROWS: {self.label}"
                tally.outcomes["exact"] += 1
                newest |= version == NEWEST
        return newest

    def _check_message(self, error: StateStoreError) -> None:
        assert error.kind in ("damaged", "missing", "format"), f"{self.label}: {error!r}"
        assert error.file, f"{self.label}: {error!r} names no file"
        named = Path(error.file).name.partition("*")[0]
        is_named = self.path.name.startswith(named) or self.path.name in error.message
        assert is_named or self._is_missed(error.message), f"{self.label}: {error}"
        assert any(remedy in error.message for remedy in REMEDIES), f"{self.label}: {error}"

    def _is_missed(self, message: str) -> bool:
        """Nothing says how an archive that is gone was called: what is missed are the deltas before it."""
        gone = self.harm.kind == "deleted" and "snapshot" in self.kind
        return gone and "and no snapshot at or" in message

    def check_verify(self, newest_is_there: bool) -> None:
        """It finds what is damaged; of a file that is gone it can know only if something needs it."""
        found = self.subject.verify().findings
        if self.harm.kind == "deleted" and newest_is_there and self.kind != "shared":
            return
        if not found and self.kind == "shared" and not self.subject.needs(self.path):
            tally.outcomes["of no version"] += 1
            return
        if not found and self._says_the_same():
            tally.outcomes["harmless"] += 1
            return
        said = [f"{problem.file} {problem.problem}" for problem in found]
        named = [Path(problem.file).name.partition("*")[0] for problem in found]
        is_named = any(self.path.name.startswith(name or "?") for name in named)
        assert is_named or any(self._is_missed(sentence) for sentence in said), f"{self.label}: {said}"
        tally.outcomes["found by verify"] += 1

    def _says_the_same(self) -> bool:
        """Return True if a reader finds the written rows: a file may have bytes that nobody reads."""
        read = {
            ".zip": lambda data: unpack(data, file=""),
            ".json": lambda data: LeaseTerms.unpack(data, file=""),
        }.get(self.path.suffix, bytes)
        return read(self.path.read_bytes()) == read(self.pristine.read_bytes())

    def check_healing(self) -> None:
        """An executor that has local files, or can restore, goes on; what it merges others can restore."""
        writer = self.subject.executor("healer", local_files=True, retain=2)
        try:
            writer.restore(NEWEST)
        except StateStoreError:
            tally.outcomes["lost"] += 1
            return
        writer.commit({b"\0\0healed": b"1"})
        writer.merge("full")
        self._check_exact(writer)
        for number in range(2):
            writer.commit({b"\0\0healed": b"%d" % number})
        writer.merge("full")
        writer.commit({})
        for mark in (*self.subject.location.glob("lease/*"), *self.subject.location.glob("tombstone/*")):
            os.utime(mark, (0, 0))  # as old as what a dead writer left
        writer.cleanup()
        self._check_exact(writer)
        newest = VersionId(writer.version, writer.id)
        assert self.subject.verify(newest).findings == (), self.label
        tally.outcomes["healed"] += 1

    def _check_exact(self, writer: Job) -> None:
        reader = self.subject.executor("reader")
        reader.versions = writer.versions
        answer = reader.restore(writer.version)
        assert answer["warnings"] == [], self.label
        reader.call("release", directory=answer["directory"])
        assert self.subject.restored(reader, writer.version) == writer.state, self.label


SAMPLE = 5
"""Harms of a kind of file in a variety of store, of all that the long form does."""


@pytest.mark.tier("more")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "ids", [IDS[0], pytest.param(IDS[1], marks=pytest.mark.tier("more"))], ids=["ids", "no-ids"]
)
def test_no_damage_gives_wrong_rows(subjects, ids: bool, variant: str, kind: str) -> None:
    """A sample: the first is followed until it is healed."""
    subject, stranger = subjects[ids, variant]
    chance = random.Random(f"{ids} {variant} {kind}")
    found = list(cases(subject, stranger, kind, chance, in_each=1, cuts=2))
    for number, (path, harm) in enumerate(chance.sample(found, min(SAMPLE, len(found)))):
        Case(subject, kind, path, harm).check(healing=number == 0)


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    root = tmp_path_factory.mktemp("compressed")
    made = [Subject(root / f"{seed}", True, False, seed, compression="lz4") for seed in (1, 2)]
    assert not any(b"NoCompression" in path.read_bytes() for path in made[0].location.glob("shared/*"))
    return made


@pytest.mark.parametrize(
    "kind", ["shared", "snapshot", pytest.param("delta", marks=pytest.mark.tier("long"))]
)
def test_no_damage_of_compressed_tables_gives_wrong_rows(compressed: list[Subject], kind: str) -> None:
    chance = random.Random(f"compressed {kind}")
    found = list(cases(*compressed, kind, chance, in_each=1, cuts=2))
    for number, (path, harm) in enumerate(chance.sample(found, min(SAMPLE, len(found)))):
        Case(compressed[0], kind, path, harm).check(healing=number == 0)


@pytest.mark.tier("long")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ids", IDS, ids=["ids", "no-ids"])
def test_no_damage_anywhere_gives_wrong_rows(subjects, ids: bool, variant: str, kind: str) -> None:
    """Several bytes of every class, of every file of the kind; every tenth is followed until it is healed."""
    subject, stranger = subjects[ids, variant]
    chance = random.Random(f"long {ids} {variant} {kind}")
    found = cases(subject, stranger, kind, chance, in_each=6, cuts=30)
    for number, (path, harm) in enumerate(found):
        Case(subject, kind, path, harm).check(healing=number % 10 == 0)
