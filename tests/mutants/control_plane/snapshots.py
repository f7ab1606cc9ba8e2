"""Breaks of `state_store/core/snapshots`: a snapshot is announced, uploaded, verified and published in that
order, and an attempt looks at storage around its upload.
"""

from __future__ import annotations

from mutants.mutant import Mutant

_SNAPSHOTS = "state_store/core/snapshots"

_BY_BLOCKS = ("tests/core/snapshots/test_restore_by_blocks.py",)

_STREAMED = ("tests/agent/lazy/test_streamed_merges.py",)

MUTANTS = [
    Mutant(
        "a rewritten file is not verified before",
        f"{_SNAPSHOTS}/merge.py",
        "    _check_again(context, base, new)\n",
        "",
        _BY_BLOCKS,
    ),
    Mutant(
        "any file of the same size is accepted",
        "state_store/core/files/transfer.py",
        " and hashlib.sha256(end).hexdigest() == wanted_file.tail_sha256\n",
        "\n",
        _BY_BLOCKS,
    ),
    Mutant(
        "damage that the data plane found is forgotten",
        "state_store/agent/restores.py",
        "    store.damage_reports.add(store.store_id.location)\n",
        "",
        _BY_BLOCKS,
    ),
    Mutant(
        "a merge continues from a damaged base",
        "state_store/agent/restores.py",
        "    store.damage_reports.add(store.store_id.location)\n    store.head.forget_directory(directory)\n",
        "    store.damage_reports.add(store.store_id.location)\n",
        _BY_BLOCKS,
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
        f"{_SNAPSHOTS}/context.py",
        "if metadata.version_id != version:",
        "if False:",
        ("tests/core/snapshots/test_restore.py",),
    ),
    Mutant(
        "a full merge from storage to storage that loses a row is published",
        f"{_SNAPSHOTS}/streamed_merge.py",
        "            check_rows(database, version, keys, self._context.storage, are_current=True)\n",
        "",
        _STREAMED,
    ),
    Mutant(
        "a full merge that loses a row is published",
        f"{_SNAPSHOTS}/merge.py",
        "                check_rows(database, version, keys, context.storage, are_current=kind == FULL)\n",
        "                pass\n",
        ("tests/core/snapshots/test_merge.py",),
    ),
    Mutant(
        "a full merge that makes a row twice is published",
        f"{_SNAPSHOTS}/merge.py",
        "are_current=kind == FULL)",
        "are_current=False)",
        ("tests/core/snapshots/test_merge.py",),
    ),
    Mutant(
        "a merge of young runs that loses rows is published",
        f"{_SNAPSHOTS}/streamed_merge.py",
        "        check_rows(database, result.version, keys, context.storage, are_current=False)\n",
        "",
        _STREAMED,
    ),
    Mutant(
        "a full merge from storage to storage is published after its time",
        f"{_SNAPSHOTS}/streamed_merge.py",
        "keys)\n            context.deadline.check()\n",
        "keys)\n",
        _STREAMED,
    ),
    Mutant(
        "a reader of rows that begins again gives some of them twice",
        f"{_SNAPSHOTS}/streamed_merge.py",
        'start, last + b"\\0" if last else b"", self',
        "start, last, self",
        (f"{_STREAMED[0]}::test_the_disk_is_bounded_and_the_rows_are_right",),
    ),
    Mutant(
        "windows of rows that were read stay on the disk",
        f"{_SNAPSHOTS}/streamed_merge.py",
        "            self._evict(windows.popleft(), window)\n",
        "            windows.popleft()\n",
        (f"{_STREAMED[0]}::test_the_disk_is_bounded_and_the_rows_are_right",),
    ),
    Mutant(
        "runs that do not fit on the disk are merged",
        f"{_SNAPSHOTS}/streamed_merge.py",
        "return sum(1 for size_bytes in sizes if size_bytes <= room_bytes)",
        "return len(list(sizes))",
        (f"{_STREAMED[0]}::test_young_runs_that_do_not_fit_are_merged_in_parts",),
    ),
    Mutant(
        "a merge does not verify the deltas",
        f"{_SNAPSHOTS}/merge.py",
        "        context.verify(wanted_files)\n",
        "        pass\n",
        ("tests/core/snapshots/test_merge.py",),
    ),
    Mutant(
        "a snapshot of the same version is replaced",
        f"{_SNAPSHOTS}/merge.py",
        "overwrite=full)",
        "overwrite=True)",
        ("tests/core/snapshots/test_publish.py",),
    ),
    Mutant(
        "new files are not announced before their upload",
        f"{_SNAPSHOTS}/merge.py",
        "    lease.announce(str(file.path) for file in new.values())\n",
        "",
        ("tests/core/snapshots/test_publish.py",),
    ),
    Mutant(
        "a snapshot is published whatever its lease holds",
        f"{_SNAPSHOTS}/merge.py",
        "            _check_leased(manifest, lease)\n",
        "",
        ("tests/agent/test_invariants.py",),
    ),
    Mutant(
        "an attempt that is refused is not marked",
        "state_store/core/checkpoint/lineage.py",
        "        refuse(storage, delta.version_id, objection)\n",
        "",
        ("tests/core/snapshots/test_attempt_interleavings.py",),
    ),
    Mutant(
        "a refused attempt deletes its delta",
        "state_store/core/checkpoint/lineage.py",
        "        refuse(storage, delta.version_id, objection)\n",
        "        storage.delete(delta.path)\n",
        ("tests/core/snapshots/test_attempt_interleavings.py",),
    ),
    Mutant(
        "an attempt lists deltas before it stores its own",
        "state_store/core/checkpoint/lineage.py",
        "    store()\n    attempts = list_attempts(storage, delta.version - 1)\n",
        "    attempts = list_attempts(storage, delta.version - 1)\n    store()\n",
        ("tests/core/snapshots/test_attempt_interleavings.py",),
    ),
    Mutant(
        "a task that begins late stores its delta",
        "state_store/core/checkpoint/lineage.py",
        "    if overtaken is not None:",
        "    if False:",
        ("tests/core/snapshots/test_attempt_interleavings.py",),
    ),
]
