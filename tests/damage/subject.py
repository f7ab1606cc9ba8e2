"""A store with every kind of file, that is damaged again and again from the same state."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from agent.harness import InProcess, Job, rows_of

from state_store.core.checkpoint.names import SharedName, VersionId, lease_path, tombstone_path
from state_store.core.checkpoint.stored_documents import LeaseTerms, pack_tombstone, unpack
from state_store.core.storage.local import LocalStorage
from state_store.data.maintenance.verification import Verdict, verify_store
from state_store.data.query import StoreKey

NEWEST = 9
FULL_AT, INCREMENTAL_AT = 3, 6
KEY = StoreKey(0, 0)
_ROWS = 60
_FAMILIES = {"default": 0, "index": 1}


@dataclass
class Subject:
    """A store in `root`: `NEWEST` versions, a full snapshot of version `FULL_AT` and an incremental one of
    `INCREMENTAL_AT`, a lease, a tombstone. With `cleaned` only what the versions from `INCREMENTAL_AT` up
    need is left. `versions` are the rows of each version. With the `compression` lz4 each value is one byte,
    again and again.
    """

    root: Path
    ids: bool
    cleaned: bool
    seed: int = 0
    compression: str = "none"
    versions: dict[int, tuple[str | None, dict[bytes, bytes]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        job = Job(self._client("writer"), self.location, ids=self.ids, families=_FAMILIES)
        chance = random.Random(self.seed)
        for number in range(1, NEWEST + 1):
            job.commit(self._changes(number, chance))
            if number in (FULL_AT, INCREMENTAL_AT):
                job.merge("full" if number == FULL_AT else "incremental")
        self.versions = job.versions
        storage = LocalStorage(self.location)
        tables = sorted(path for path in (self.location / "shared").iterdir())
        held = [f"shared/{tables[0].name}"]
        storage.write(lease_path("0123456789abcdef"), LeaseTerms(frozenset(held), 3_600_000, 1).pack())
        storage.write(tombstone_path("fedcba9876543210"), pack_tombstone([SharedName(1, 5, 1).path]))
        if self.cleaned:
            self._clean()
        shutil.copytree(self.location, self.root / "pristine", copy_function=os.link)

    @property
    def location(self) -> Path:
        return self.root / "state"

    @property
    def restorable(self) -> list[int]:
        """The versions that the whole files can make."""
        return list(range(INCREMENTAL_AT if self.cleaned else 1, NEWEST + 1))

    def needs(self, table: Path) -> bool:
        """Return True if a snapshot needs the table: a lease may hold one that none needs."""
        snapshots = (self.root / "pristine").glob("snapshot/*")
        manifests = (unpack(path.read_bytes(), file=path.name).manifest for path in snapshots)
        return any(file.path == f"shared/{table.name}" for manifest in manifests for file in manifest.files)

    def files(self) -> dict[str, list[Path]]:
        """Return the files by kind, oldest first; two of a kind serve to be swapped."""
        pristine = self.root / "pristine"
        snapshots = sorted(pristine.glob("snapshot/*"))
        deltas = sorted(pristine.glob("delta/*"))
        return {
            "delta": [path for path in deltas if int(path.name[:20]) > INCREMENTAL_AT],
            "older delta": [path for path in deltas if int(path.name[:20]) <= INCREMENTAL_AT],
            "snapshot": snapshots[-1:],
            "older snapshot": snapshots[:-1],
            "shared": sorted(pristine.glob("shared/*"), reverse=True),
            "lease": list(pristine.glob("lease/*")),
            "tombstone": list(pristine.glob("tombstone/*")),
        }

    def reset(self) -> None:
        """Put every file back as it was."""
        shutil.rmtree(self.location)
        shutil.copytree(self.root / "pristine", self.location, copy_function=os.link)

    def in_place(self, path: Path) -> Path:
        """Return the file that is about to be harmed, of one in the pristine copy."""
        return self.location / path.relative_to(self.root / "pristine")

    def executor(self, name: str, *, local_files: bool = False, retain: int = 100) -> Job:
        """Another executor at version 0; with `local_files` it has those that the writer kept."""
        local = self.root / name
        shutil.rmtree(local, ignore_errors=True)
        if local_files:
            shutil.copytree(self.root / "writer/kept", local / "kept", copy_function=os.link)
        job = Job(self._client(name), self.location, ids=self.ids, families=_FAMILIES, retain=retain)
        job.versions = dict(self.versions)
        return job

    def restored(self, job: Job, version: int) -> dict[bytes, bytes]:
        """The rows that it finds, verified as a whole at once, and block by block. Raises what the restore
        does.
        """
        answer = job.restore(version)
        try:
            rows = rows_of(answer)
        finally:
            job.call("release", directory=answer["directory"])
        assert job.rows(version) == rows
        return rows

    def verify(self, newest: VersionId | None = None) -> Verdict:
        """Return the problems that `state-store verify` finds."""
        newest = newest or VersionId(NEWEST, self.versions[NEWEST][0])
        return verify_store(KEY, LocalStorage(self.location), lambda: newest, every=True)

    def _client(self, name: str) -> InProcess:
        return InProcess(self.root / name, size_amplification_percent=1000, compression=self.compression)

    def _changes(self, number: int, chance: random.Random) -> dict[bytes, bytes | None]:
        rows: dict[bytes, bytes | None] = {
            b"\0\0%02d-%03d" % (number, row): self._value(chance) for row in range(_ROWS)
        }
        rows |= {b"\0\1%03d" % row: chance.randbytes(4) for row in range(number * 5, number * 5 + 10)}
        if number > 1:
            rows |= {b"\0\0%02d-%03d" % (number - 1, row): None for row in range(0, _ROWS, 7)}
        return rows

    def _value(self, chance: random.Random) -> bytes:
        length = chance.randrange(100)
        return chance.randbytes(length) if self.compression == "none" else chance.randbytes(1) * length

    def _clean(self) -> None:
        """Delete the deltas and snapshots below `INCREMENTAL_AT`, as a clean-up does."""
        needed = {entry.name for entry in self.location.glob("shared/*")}
        for path in (*self.location.glob("delta/*"), *self.location.glob("snapshot/*")):
            if int(path.name[:20]) < INCREMENTAL_AT and path.name not in needed:
                path.unlink()
