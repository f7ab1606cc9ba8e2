"""Breaks of the order in which `state_store/core/deletion` and `publish` do things, one for each rule of
docs/deletion.md.
"""

from __future__ import annotations

from mutants.mutant import Mutant

_DELETION = "state_store/core/deletion"
_EVERY = "tests/core/deletion/test_interleavings.py::TestNoNeededFileIsDeleted"
_FAULTS = "tests/core/deletion/test_interleavings_with_faults.py"
_A_WRITER_AND_A_CLEANER = (f"{_EVERY}::test_a_writer_and_a_cleaner_leave_whole_snapshots_and_nothing_else",)
_READERS = "tests/core/deletion/test_interleavings_of_readers.py::TestReadFilesStay"
_PUBLISH = (f"{_FAULTS}::TestACallFails::test_a_call_of_publish_or_of_a_cleaner_fails",)

MUTANTS = [
    Mutant(
        "a writer lists files before it writes its lease",
        f"{_DELETION}/lease.py",
        "        self._write(self._existing | self._announced)\n        lost = self._lost()\n",
        "        lost = self._lost()\n        self._write(self._existing | self._announced)\n",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "a writer does not read the tombstones",
        f"{_DELETION}/lease.py",
        "if path in condemned or path not in existing)",
        "if path not in existing)",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "a writer does not notice deleted files",
        f"{_DELETION}/lease.py",
        "if path in condemned or path not in existing)",
        "if path in condemned)",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "a writer releases its lease before it publishes",
        f"{_DELETION}/lease.py",
        "        self._storage.write(snapshot.path, archive, overwrite=overwrite)\n",
        "        self.release()\n        self._storage.write(snapshot.path, archive, overwrite=overwrite)\n",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "the files of an archive are deleted when the answer to its write is lost",
        f"{_DELETION}/lease.py",
        "        self._storage.write(snapshot.path, archive, overwrite=overwrite)\n",
        "        try:\n            self._storage.write(snapshot.path, archive, overwrite=overwrite)\n"
        "        except StateStoreError:\n            for path in self._announced:\n"
        "                self._storage.delete(path)\n            raise\n",
        _PUBLISH,
    ),
    Mutant(
        "a writer continues without its lease",
        f"{_DELETION}/lease.py",
        "        self._storage.write(path, terms.pack())\n",
        "        try:\n            self._storage.write(path, terms.pack())\n"
        "        except StateStoreError:\n            pass\n",
        _PUBLISH,
    ),
    Mutant(
        "a reader gives the lease before back although a file is condemned",
        f"{_DELETION}/lease.py",
        "            if not lost or age_ms >= self._expiry_ms:\n",
        "            if True:\n",
        (f"{_READERS}::test_a_reader_that_renews_its_lease",),
    ),
    Mutant(
        "a reader gives its lease back before it has another",
        f"{_DELETION}/lease.py",
        "        held, before = frozenset(self._existing), list(self._written)\n",
        "        held, before = frozenset(self._existing), []\n        self.release()\n"
        "        self._existing |= held\n",
        (f"{_READERS}::test_a_reader_that_renews_its_lease",),
    ),
    Mutant(
        "a reader does not hold what is condemned any more",
        f"{_DELETION}/lease.py",
        "        self._existing |= held\n        failures = Failures()\n",
        "        failures = Failures()\n",
        (f"{_READERS}::test_a_reader_and_two_cleaners",),
    ),
    Mutant(
        "a cleaner condemns after it has read the leases",
        f"{_DELETION}/retention.py",
        "        written = self._write_tombstone(candidates - plan.condemned)\n"
        "        leases = Leases.read(self._storage)\n",
        "        leases = Leases.read(self._storage)\n"
        "        written = self._write_tombstone(candidates - plan.condemned)\n",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "a cleaner does not condemn",
        f"{_DELETION}/retention.py",
        "        self._storage.write(path, pack_tombstone(paths))\n        return path\n",
        "        return path\n",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "a cleaner continues without its tombstone",
        f"{_DELETION}/retention.py",
        "        self._storage.write(path, pack_tombstone(paths))\n        return path\n",
        "        try:\n            self._storage.write(path, pack_tombstone(paths))\n"
        "        except Exception:\n            pass\n        return path\n",
        _PUBLISH,
    ),
    Mutant(
        "leases hold nothing",
        f"{_DELETION}/retention.py",
        "*(candidates if lease.terms is None else lease.terms.files for lease in live.values())",
        "*(frozenset() for lease in live.values())",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "a cleaner does not list the snapshots again",
        f"{_DELETION}/retention.py",
        "in_use = self._referenced_files(contents, candidates).union(",
        "in_use = set().union(",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "a cleaner lists the snapshots again before it reads the leases",
        f"{_DELETION}/retention.py",
        "        leases = Leases.read(self._storage)\n",
        "        early = self._referenced_files(contents, candidates)\n"
        "        self._referenced_files = lambda contents, candidates: early\n"
        "        leases = Leases.read(self._storage)\n",
        _A_WRITER_AND_A_CLEANER,
    ),
    Mutant(
        "a tombstone is removed before its files",
        f"{_DELETION}/retention.py",
        "if written and condemned - plan.condemned <= deleted:",
        "if written:",
        (f"{_EVERY}::test_a_writer_and_two_cleaners_leave_whole_snapshots[few-switches]",),
    ),
    Mutant(
        "tombstones of others are removed before their files",
        f"{_DELETION}/retention.py",
        "            if not files & remaining:\n",
        "            if True:\n",
        (f"{_EVERY}::test_a_writer_and_two_cleaners_leave_whole_snapshots[few-switches]",),
    ),
    Mutant(
        "tombstones are read after the files",
        f"{_DELETION}/lease.py",
        "        tombstones = Tombstones.read(storage)\n"
        "        entries |= _entries(storage, names.DELTA_DIRECTORY)\n"
        "        entries |= _entries(storage, names.SHARED_DIRECTORY)\n",
        "        entries |= _entries(storage, names.DELTA_DIRECTORY)\n"
        "        entries |= _entries(storage, names.SHARED_DIRECTORY)\n"
        "        tombstones = Tombstones.read(storage)\n",
        (f"{_EVERY}::test_retained_versions_survive_damage_to_a_snapshot_that_is_being_read",),
    ),
    Mutant(
        "a clean-up sweeps no leases of the dead",
        f"{_DELETION}/retention.py",
        "        self._deletions.delete(expired | dead)\n",
        "        self._deletions.delete(dead)\n",
        (f"{_FAULTS}::TestSomebodyStopsForGood",),
    ),
    Mutant(
        "the tombstones of the dead stay",
        f"{_DELETION}/retention.py",
        "            if not files & remaining:\n",
        "            if False:\n",
        (f"{_FAULTS}::TestSomebodyStopsForGood",),
    ),
    Mutant(
        "files of a dead writer stay",
        f"{_DELETION}/retention.py",
        "        return known_files | (self._orphans(orphaned_before_ms) - named)\n",
        "        return known_files\n",
        (f"{_FAULTS}::TestSomebodyStopsForGood",),
    ),
    Mutant(
        "the storage's clock alone expires a lease",
        f"{_DELETION}/lease.py",
        "has_run_out(min(storage_age_ms, wall_ms - self.terms.written_ms)",
        "has_run_out(storage_age_ms",
        (f"{_FAULTS}::TestAClockJumps",),
    ),
    Mutant(
        "the machines' clocks alone expire a lease",
        f"{_DELETION}/lease.py",
        "has_run_out(min(storage_age_ms, wall_ms - self.terms.written_ms)",
        "has_run_out(wall_ms - self.terms.written_ms",
        (f"{_FAULTS}::TestAClockJumps",),
    ),
]
