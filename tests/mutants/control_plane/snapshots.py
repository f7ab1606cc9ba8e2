"""Breaks of `state_store/core/snapshots`."""

from __future__ import annotations

from mutants.mutant import Mutant

_SNAPSHOTS = "state_store/core/snapshots"

_BY_BLOCKS = ("tests/core/snapshots/test_restore_by_blocks.py",)

MUTANTS = [
    Mutant(
        "a rewritten file is not verified before",
        f"{_SNAPSHOTS}/publish.py",
        "    _check_again(context, base, new)\n",
        "",
        _BY_BLOCKS,
    ),
    Mutant(
        "any file of the same size is accepted",
        "state_store/core/files/transfer.py",
        " or sha256(end).hexdigest() != wanted.tail_sha256:\n        return False\n    if on_tail",
        ":\n        return False\n    if on_tail",
        _BY_BLOCKS,
    ),
    Mutant(
        "damage that the data plane found is forgotten",
        "state_store/agent/restoring.py",
        "    store.suspicions.raised(store.store_id.location)\n",
        "",
        _BY_BLOCKS,
    ),
    Mutant(
        "a merge continues from a damaged base",
        "state_store/agent/restoring.py",
        "    store.suspicions.raised(store.store_id.location)\n    store.head.forget_directory(directory)\n",
        "    store.suspicions.raised(store.store_id.location)\n",
        _BY_BLOCKS,
    ),
    Mutant(
        "a restore that leaves its bytes is predicted to fetch them",
        "state_store/core/planning/cost.py",
        "        ends_bytes = work.files * policy.end_bytes(work.size_bytes // work.files)\n",
        "        ends_bytes = work.size_bytes\n",
        ("tests/core/planning/test_cost.py",),
    ),
    Mutant(
        "a lazy restore is predicted by the requests of an eager one",
        "state_store/core/planning/cost.py",
        "            return remote.ends_ms(*work.sizes, policy.end_bytes, self._stream_mib_ms(remote))\n",
        "            return self._fetch_all_ms(work)\n",
        ("tests/agent/test_predicted_restores.py",),
    ),
    Mutant(
        "a prediction knows the result of its own restore",
        "state_store/core/planning/cost.py",
        "times=self._remote.times.copy())",
        "times=self._remote.times)",
        ("tests/core/planning/test_request_costs.py",),
    ),
    Mutant(
        "uploads of a cancelled merge stay",
        f"{_SNAPSHOTS}/publish.py",
        "                _take_back(context, uploaded)\n",
        "",
        ("tests/agent/test_files.py",),
    ),
    Mutant(
        "the full snapshot is not read after a restart",
        f"{_SNAPSHOTS}/stored_chain.py",
        "if name not in listing.snapshots:",
        "if True:",
        ("tests/core/snapshots/test_stored_chain.py",),
    ),
    Mutant(
        "a restore does not look again when files have vanished",
        f"{_SNAPSHOTS}/restore.py",
        "_TRIES = 3\n",
        "_TRIES = 1\n",
        ("tests/core/snapshots/test_publish.py",),
    ),
    Mutant(
        "a database may have another version",
        f"{_SNAPSHOTS}/ingestion.py",
        "if metadata.version_id != version:",
        "if False:",
        ("tests/core/snapshots/test_restore.py",),
    ),
    Mutant(
        "a snapshot that cannot be read stops the restore",
        f"{_SNAPSHOTS}/restore.py",
        "if plan.snapshot is None or start is not None or _is_delta_at_fault(error, plan):",
        "if True:",
        ("tests/core/snapshots/test_restore.py",),
    ),
    Mutant(
        "a merge does not verify the deltas",
        f"{_SNAPSHOTS}/merge.py",
        "        context.verify(wanted)\n",
        "",
        ("tests/core/snapshots/test_merge.py",),
    ),
    Mutant(
        "a failed merge leaves its directory",
        f"{_SNAPSHOTS}/merge.py",
        "    except BaseException:\n        shutil.rmtree(directory, ignore_errors=True)\n        raise\n",
        "    except BaseException:\n        raise\n",
        ("tests/core/snapshots/test_merge.py", "tests/agent/test_life.py"),
    ),
    Mutant(
        "a snapshot of the same version is replaced",
        f"{_SNAPSHOTS}/publish.py",
        "overwrite=full)",
        "overwrite=True)",
        ("tests/core/snapshots/test_publish.py",),
    ),
    Mutant(
        "new files are not announced before their upload",
        f"{_SNAPSHOTS}/publish.py",
        "    lease.announce(str(file.path) for file in new.values())\n",
        "",
        ("tests/core/snapshots/test_publish.py",),
    ),
    Mutant(
        "a full merge counts as one more since the last full",
        f"{_SNAPSHOTS}/publish.py",
        "merges_since_full=0 if not shares else",
        "merges_since_full=",
        ("tests/core/snapshots/test_merge.py", "tests/agent/test_walkthrough.py"),
    ),
    Mutant(
        "a snapshot is published whatever its lease holds",
        f"{_SNAPSHOTS}/publish.py",
        "            _check(manifest, lease)\n",
        "",
        ("tests/agent/test_invariants.py",),
    ),
    Mutant(
        "an attempt that is refused is not marked",
        f"{_SNAPSHOTS}/attempt.py",
        "        refuse(storage, delta.version_id, objection)\n",
        "",
        ("tests/core/snapshots/test_attempts.py",),
    ),
    Mutant(
        "a refused attempt deletes its delta",
        f"{_SNAPSHOTS}/attempt.py",
        "        refuse(storage, delta.version_id, objection)\n",
        "        storage.delete(delta.path)\n",
        ("tests/core/snapshots/test_attempts.py",),
    ),
    Mutant(
        "an attempt lists deltas before it stores its own",
        f"{_SNAPSHOTS}/attempt.py",
        "    store()\n    attempts = look(storage, delta.version - 1)\n",
        "    attempts = look(storage, delta.version - 1)\n    store()\n",
        ("tests/core/snapshots/test_attempts.py",),
    ),
    Mutant(
        "a task that begins late stores its delta",
        f"{_SNAPSHOTS}/attempt.py",
        "    if overtaken is not None:",
        "    if False:",
        ("tests/core/snapshots/test_attempts.py",),
    ),
    Mutant(
        "a number means any attempt",
        f"{_SNAPSHOTS}/restore.py",
        "        version = listing.attempts.resolve(version.number) or version\n",
        "        pass\n",
        ("tests/agent/test_attempts_without_ids.py",),
    ),
    Mutant(
        "a delta keeps the time at which its bytes were written",
        f"{_SNAPSHOTS}/attempt.py",
        "            os.utime(local)\n",
        "            pass\n",
        ("tests/agent/test_attempts_without_ids.py",),
    ),
    Mutant(
        "a table that is too large for a mapping is mapped",
        f"{_SNAPSHOTS}/assembly.py",
        "file.size_bytes > MOST_MAPPED_BYTES\n        or ",
        "",
        ("tests/core/snapshots/test_restore_by_blocks.py",),
    ),
]
