"""Breaks of `state_store/core/deletion` and of the tools that delete: leases and tombstones keep a file that
somebody needs, whatever clocks, damage and late writers do.
"""

from __future__ import annotations

from mutants.mutant import Mutant

_DELETION = "state_store/core/deletion"
_INTERLEAVINGS = "tests/core/deletion/test_interleavings.py::TestNoNeededFileIsDeleted"

_CLEANUPS = ("tests/core/deletion/test_retention.py", "tests/core/deletion/test_caution.py")
_SWEEP = ("tests/core/deletion/test_sweep.py",)

MUTANTS = [
    Mutant(
        "a renewed lease is as old as the check that followed",
        "state_store/core/deletion/lease.py",
        "        self._valid_from_ms = now_ms\n        return lost\n",
        "        self._valid_from_ms = self._clocks_ms()\n        return lost\n",
        ("tests/core/deletion/test_lease.py",),
    ),
    Mutant(
        "a lease of half its age is not checked again",
        f"{_DELETION}/lease.py",
        "if self._age_ms() >= self._expiry_ms / 2:",
        "if False:",
        ("tests/core/deletion/test_lease.py",),
    ),
    Mutant(
        "a lease does not name future files",
        f"{_DELETION}/lease.py",
        "        self._announced |= fresh\n        self._write(fresh)\n",
        "        self._announced |= fresh\n",
        ("tests/core/deletion/test_lease.py", "tests/core/deletion/test_interleavings.py"),
    ),
    Mutant(
        "snapshots are listed before deltas",
        f"{_DELETION}/lease.py",
        "(names.DELTA_DIRECTORY, names.SNAPSHOT_DIRECTORY)",
        "(names.SNAPSHOT_DIRECTORY, names.DELTA_DIRECTORY)",
        ("tests/core/snapshots/test_publish.py",),
    ),
    Mutant(
        "a snapshot in doubt is counted on",
        f"{_DELETION}/retention.py",
        "if self.condemned.isdisjoint([name.path, *(entry.path for entry in manifest.files)])",
        "if True",
        _CLEANUPS,
    ),
    Mutant(
        "orphans go although an archive that may name them is damaged",
        f"{_DELETION}/retention.py",
        "if any(snapshots[name].manifest is None for name in snapshots.keys() - self._going):",
        "if False:",
        _CLEANUPS,
    ),
    Mutant(
        "a sweep deletes young files",
        f"{_DELETION}/retention.py",
        "if entries[path].modified_ms < before_ms}\n        manifests",
        "if True}\n        manifests",
        _SWEEP,
    ),
    Mutant(
        "a sweep condemns the files of a young snapshot",
        f"{_DELETION}/retention.py",
        "        return old - named_files\n",
        "        return old\n",
        _SWEEP,
    ),
    Mutant(
        "a sweep trusts the tombstone of a dead clean-up",
        f"{_DELETION}/retention.py",
        "for delta in contents.listing.deltas if delta.path not in everything.condemned]",
        "for delta in contents.listing.deltas]",
        _SWEEP,
    ),
    Mutant(
        "a sweep deletes young leases",
        f"{_DELETION}/retention.py",
        "for path, entry in dead.items() if entry.modified_ms < marks_ms}",
        "for path, entry in dead.items()}",
        _SWEEP,
    ),
    Mutant(
        "a snapshot that was replaced after its reading is deleted",
        f"{_DELETION}/retention.py",
        "if name.path in candidates and is_known:",
        "if name.path in candidates:",
        (
            f"{_INTERLEAVINGS}::test_retained_versions_survive_the_replacement_of_a_snapshot_that_is_being_read",
        ),
    ),
    Mutant(
        "a single fast clock expires a live lease",
        f"{_DELETION}/lease.py",
        "has_run_out(min(storage_age_ms, wall_ms - self.terms.written_ms)",
        "has_run_out(max(storage_age_ms, wall_ms - self.terms.written_ms)",
        _CLEANUPS,
    ),
    Mutant(
        "a young damaged tombstone does not stop a clean-up",
        f"{_DELETION}/retention.py",
        "if not has_run_out(now_ms - entry.modified_ms, self._policy.lease_expiry_ms):",
        "if False:",
        _CLEANUPS,
    ),
    Mutant(
        "a young damaged tombstone does not keep a writer from sharing",
        f"{_DELETION}/lease.py",
        "            condemned |= self._existing\n",
        "            pass\n",
        ("tests/core/deletion/test_lease.py",),
    ),
    Mutant(
        "a snapshot that was stored too late is trusted",
        f"{_DELETION}/lease.py",
        "if self._age_ms() >= self._expiry_ms and (lost := self._renew_and_check()):",
        "if False and (lost := self._renew_and_check()):",
        ("tests/core/deletion/test_lease.py",),
    ),
    Mutant(
        "a clean-up deletes without a last check",
        f"{_DELETION}/retention.py",
        "        _check(deletable, plan)\n",
        "",
        ("tests/agent/test_invariants.py",),
    ),
    Mutant(
        "a file that could not be read is discarded",
        "state_store/data/maintenance/repair.py",
        "    if unread:\n",
        "    if False:\n",
        ("tests/cli/test_repair.py",),
    ),
    Mutant(
        "a reader holds no lease",
        "state_store/data/dataset/partitions.py",
        "        lost = self._hold(paths, spared=past)\n",
        "        lost: frozenset[str] = frozenset()\n",
        ("tests/data/dataset/test_state.py::test_a_lease_protects_files_from_clean_ups",),
    ),
    Mutant(
        "the machine's clock alone retires versions by age",
        f"{_DELETION}/retention.py",
        "        now_ms = _agreed_ms(contents, self._runtime)\n        floor",
        "        now_ms = self._runtime.wall_ms()\n        floor",
        ("tests/core/deletion/test_retention.py",),
    ),
    Mutant(
        "a jump of the clock ends a lease of the same machine",
        f"{_DELETION}/lease.py",
        "self.terms.uptime_ms if self._is_of_this_start(runtime) else None",
        "None",
        ("tests/core/deletion/test_retention.py",),
    ),
    Mutant(
        "an error of another kind ends the renewal of all leases",
        "state_store/core/deletion/lease.py",
        "            except Exception as error:  # of a storage of others",
        "            except ArithmeticError as error:  # of a storage of others",
        ("tests/data/dataset/test_pinned_versions.py",),
    ),
]
