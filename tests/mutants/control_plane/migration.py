"""Breaks of `state_store/data/migration`: a query moves exactly once, as a whole, while it does not run."""

from __future__ import annotations

from mutants.mutant import Mutant

TESTS = ("tests/cli/test_migrate.py",)
TARGETS = "state_store/data/query/targets.py"
REPARTITION = ("tests/data/dataset/test_repartition.py",)
BESIDE = ("tests/data/running/test_repartition_beside.py",)
REWRITING = "state_store/data/dataset/rewriting"
RECEIPTS = ("tests/data/test_receipts.py",)

MUTANTS = [
    Mutant(
        "changes are applied to a version that they do not build on",
        f"{REWRITING}/beside.py",
        "return deltas if chain[:-1] == builds_on and chain[-1] == self.version else None",
        "return deltas",
        BESIDE,
    ),
    Mutant(
        "a lease is given back while a round needs its deltas",
        f"{REWRITING}/beside.py",
        "needed = [segment for segment in segments if segment.version.number > since]",
        "needed: list[Segment] = []",
        BESIDE,
    ),
    Mutant(
        "each change of a key counts as a new row",
        f"{REWRITING}/catching_up.py",
        "(value is not None) - existed",
        "(value is not None)",
        BESIDE,
    ),
    Mutant(
        "a family that the query has removed is not missed",
        f"{REWRITING}/catching_up.py",
        "if any(found_ids.get(name) != id_ for name, id_ in families.items()):",
        "if False:",
        BESIDE,
    ),
    Mutant(
        "a key whose block is not there is taken for a new one",
        f"{REWRITING}/catching_up.py",
        "                if message:\n",
        "                if False:\n",
        ("tests/data/running/test_sparse_tables.py",),
    ),
    Mutant(
        "a round goes on with a checkpoint that is complete",
        TARGETS,
        """raise ConflictError(f"'{location}' was completed meanwhile, by another process", file=location)""",
        "pass",
        BESIDE,
    ),
    Mutant(
        "a migration writes into a used directory",
        TARGETS,
        "if names or root_files(storage, location):",
        "if False:",
        TESTS,
    ),
    Mutant(
        "a version may lack its files",
        "state_store/data/migration.py",
        'if f"{number}.{change}" not in names:',
        "if False:",
        TESTS,
    ),
    Mutant(
        "a query that runs is moved",
        TARGETS,
        "if started != self._started or self._query.logs.newest_committed() != self._committed:",
        "if False:",
        TESTS,
    ),
    Mutant(
        "a batch that is on its way is not noticed",
        TARGETS,
        "        if new:\n",
        "        if False:\n",
        ("tests/data/dataset/test_targets.py",),
    ),
    Mutant(
        "a second writer's delta stays beside the first one's",
        "state_store/data/dataset/rewriting/store_writer.py",
        "remove_files(storage, key, [path for path in written.paths if path not in counted.paths])\n",
        "pass\n",
        RECEIPTS,
    ),
    Mutant(
        "a task of a run that failed counts in the next one",
        "state_store/data/dataset/rewriting/store_writer.py",
        "            if marker_of(storage) is None or not self._goes_on(storage):",
        "            if marker_of(storage) is None:",
        RECEIPTS,
    ),
    Mutant(
        "tables of a snapshot that stays are removed",
        "state_store/data/dataset/rewriting/store_writer.py",
        'lambda path: path.rpartition("/")[0]):',
        'lambda path: ""):',
        RECEIPTS,
    ),
    Mutant(
        "what a killed task left stays in the new checkpoint",
        "state_store/data/dataset/rewriting/store_writer.py",
        "                    remove_files(storage, key, paths.difference(store.paths))\n",
        "                    pass\n",
        RECEIPTS,
    ),
    Mutant(
        "a job removes its receipts before Spark's logs name what they say",
        "state_store/data/dataset/rewriting/store_writer.py",
        "                    remove_files(storage, key, paths.difference(store.paths))\n",
        "                    storage.delete_directory(RECEIPTS)\n",
        ("tests/data/test_drivers_that_die.py",),
    ),
    Mutant(
        "the last commit may be in a copy before entries of Spark's logs",
        f"{REWRITING}/copying.py",
        "    parallel(_THREADS, write, others, runtime=runtime)\n    write(last)\n",
        "    parallel(_THREADS, write, [last, *others], runtime=runtime)\n",
        ("tests/data/dataset/test_copying.py",),
    ),
    Mutant(
        "a copy reads Spark's logs when its stores are there",
        f"{REWRITING}/copying.py",
        "        copy_logs(source, storage, batch, entries=entries, runtime=runtime)\n",
        "        copy_logs(source, storage, batch, runtime=runtime)\n",
        ("tests/data/dataset/test_copying.py",),
    ),
    Mutant(
        "rows that come back from the disk are not counted",
        "state_store/data/dataset/rewriting/store_writer.py",
        "    if count != expected:\n",
        "    if False:\n",
        REPARTITION,
    ),
    Mutant(
        "rows of a key are in two batches of a spool",
        "state_store/data/rows/batches.py",
        "            end = bisect.bisect_right(_Texts(batch[KEY]), key, lo=self._at)\n",
        "            end = bisect.bisect_left(_Texts(batch[KEY]), key, lo=self._at)\n",
        REPARTITION,
    ),
    Mutant(
        "a run is read at once",
        "state_store/data/rows/batches.py",
        "        rows = max(1, _CHUNK_BYTES * len(batch) // max(1, batch.nbytes))\n",
        "        rows = len(batch)\n",
        REPARTITION,
    ),
    Mutant(
        "a key that comes twice in the rows is taken",
        "state_store/data/dataset/rewriting/replacing.py",
        "        twice = (groups.sizes > 1).nonzero()[0]\n",
        "        twice = (groups.sizes > 2).nonzero()[0]\n",
        ("tests/data/dataset/test_importing.py",),
    ),
    Mutant(
        "rows of a frame are sent one encoded batch at a time",
        "state_store/data/jobs.py",
        "            if waiting_bytes >= _SENT_BYTES:\n",
        "            if True:\n",
        ("tests/data/test_rows_of_frames.py",),
    ),
    Mutant(
        "rows that a failed shuffle did not bring are not missed",
        "state_store/data/jobs.py",
        "    if len(sent) != sources or sum(sent.values()) != received:\n",
        "    if False:\n",
        ("tests/data/test_failures_of_tasks.py",),
    ),
    Mutant(
        "a large partition is one table",
        "state_store/data/dataset/rewriting/store_writer.py",
        "        return self._bytes[number] > MAX_DELTA_BYTES\n",
        "        return False\n",
        ("tests/data/running/test_large_partitions.py",),
    ),
    Mutant(
        "a new table is begun too late",
        "state_store/core/snapshots/streamed_merge.py",
        "        if writer.size_bytes >= table_bytes:\n",
        "        if writer.size_bytes >= 100 * table_bytes:\n",
        ("tests/data/running/test_large_partitions.py",),
    ),
    Mutant(
        "the index of a table is decoded at once",
        "state_store/core/engine/rows.py",
        "_blocks(index, entry, min(entry + _ENTRIES, high + 1))",
        "_blocks(index, 0, len(index)).between(entry, min(entry + _ENTRIES, high + 1))",
        ("tests/core/engine/test_rows.py",),
    ),
    Mutant(
        "a disk without room is found when it is full",
        "state_store/data/dataset/rewriting/store_writer.py",
        "    if free < needed_bytes:\n",
        "    if False:\n",
        REPARTITION,
    ),
]
