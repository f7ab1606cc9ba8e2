"""Breaks of `state_store/core/deletion`."""

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
        "        self._valid_from_ms = self._runtime.uptime_ms()\n        return lost\n",
        ("tests/core/deletion/test_lease.py",),
    ),
    Mutant(
        "only the newest version is sure to stay",
        f"{_DELETION}/policy.py",
        "LEAST_CHECKPOINTS = 2\n",
        "LEAST_CHECKPOINTS = 1\n",
        _CLEANUPS,
    ),
    Mutant(
        "versions before a full snapshot go, however small they are",
        f"{_DELETION}/policy.py",
        "if older_bytes > self.older_bytes:",
        "if older_bytes >= 0:",
        _CLEANUPS,
    ),
    Mutant(
        "a large store keeps fewer than ten versions",
        f"{_DELETION}/policy.py",
        "cut = registry.last_cut(newest - LEAST_WHERE_LARGE + 1) or 0",
        "cut = registry.last_cut(newest) or 0",
        _CLEANUPS,
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
        f"{_DELETION}/reading.py",
        "(DELTA_DIRECTORY, SNAPSHOT_DIRECTORY)",
        "(SNAPSHOT_DIRECTORY, DELTA_DIRECTORY)",
        ("tests/core/snapshots/test_publish.py",),
    ),
    Mutant(
        "an archive of another version is accepted",
        f"{_DELETION}/reading.py",
        "if archive.manifest.version_id != snapshot.version_id:",
        "if False:",
        _CLEANUPS,
    ),
    Mutant(
        "a damaged archive stops the search for the newest snapshot",
        f"{_DELETION}/reading.py",
        "        except DamagedError as error:\n            warnings.append(",
        "        except ZeroDivisionError as error:\n            warnings.append(",
        ("tests/agent/test_damage.py",),
    ),
    Mutant(
        "a snapshot in doubt is counted on",
        f"{_DELETION}/deletion_plan.py",
        "if self.condemned.isdisjoint([name.path, *(entry.path for entry in manifest.files)])",
        "if True",
        _CLEANUPS,
    ),
    Mutant(
        "a snapshot whose archive is condemned is counted on",
        f"{_DELETION}/deletion_plan.py",
        "if self.condemned.isdisjoint([name.path, *(entry.path for entry in manifest.files)])",
        "if self.condemned.isdisjoint([entry.path for entry in manifest.files])",
        _CLEANUPS,
    ),
    Mutant(
        "orphans of versions whose snapshot may still be replaced go",
        f"{_DELETION}/deletion_plan.py",
        "            if name.version < self._oldest_version\n            and self",
        "            if self",
        _CLEANUPS,
    ),
    Mutant(
        "orphans go although an archive that may name them is damaged",
        f"{_DELETION}/deletion_plan.py",
        "if any(snapshots[name].manifest is None for name in snapshots.keys() - self._going):",
        "if False:",
        _CLEANUPS,
    ),
    Mutant(
        "a sweep deletes young files",
        f"{_DELETION}/deletion_plan.py",
        "if entries[path].modified_ms < before_ms}\n        manifests",
        "if True}\n        manifests",
        _SWEEP,
    ),
    Mutant(
        "a sweep deletes the files of a young snapshot",
        f"{_DELETION}/deletion_plan.py",
        "        return old - kept\n",
        "        return old\n",
        _SWEEP,
    ),
    Mutant(
        "a sweep retires versions",
        f"{_DELETION}/deletion_plan.py",
        "min((*(version.number for version in staying), *damaged), default=0)",
        "max((*(version.number for version in staying), *damaged), default=0)",
        _SWEEP,
    ),
    Mutant(
        "a sweep trusts the tombstone of a dead clean-up",
        f"{_DELETION}/deletion_plan.py",
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
        "a damaged snapshot is used to rebuild another",
        "state_store/data/maintenance/repair.py",
        "if bad_files.isdisjoint([name.path, *(entry.path for entry in manifest.files)])",
        "if True",
        ("tests/cli/test_repair.py",),
    ),
    Mutant(
        "a snapshot that was replaced after its reading is deleted",
        f"{_DELETION}/retention.py",
        "if name.path in candidates and is_known:",
        "if name.path in candidates:",
        (f"{_INTERLEAVINGS}::test_a_snapshot_that_is_replaced_while_a_cleaner_reads",),
    ),
    Mutant(
        "a single fast clock expires a live lease",
        f"{_DELETION}/markers.py",
        "has_run_out(min(storage_age_ms, wall_now_ms - self.terms.written_ms)",
        "has_run_out(max(storage_age_ms, wall_now_ms - self.terms.written_ms)",
        _CLEANUPS,
    ),
    Mutant(
        "the time in a lease is ignored",
        f"{_DELETION}/markers.py",
        "self.terms.written_ms), self.terms.expiry_ms)",
        "self.terms.written_ms), default_expiry_ms)",
        _CLEANUPS,
    ),
    Mutant(
        "an archive, lease or tombstone that was read wrongly once is damaged",
        f"{_DELETION}/reading.py",
        "        return read()\n    except DamagedError:\n        return read()\n",
        "        return read()\n    except DamagedError:\n        raise\n",
        ("tests/core/deletion/test_caution.py",),
    ),
    Mutant(
        "a lease from the future expires like any other",
        f"{_DELETION}/markers.py",
        "FUTURE_LEASE_FACTOR * self.terms.expiry_ms)",
        "self.terms.expiry_ms)",
        _CLEANUPS,
    ),
    Mutant(
        "a sweep deletes the files of a damaged archive",
        f"{_DELETION}/deletion_plan.py",
        "if read.error is not None]\n        return cls",
        "if False]\n        return cls",
        _SWEEP,
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
]
