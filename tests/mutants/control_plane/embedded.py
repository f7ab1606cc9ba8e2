"""Breaks of `state_store/data/embedded`."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "each commit leaves a file open",
        "state_store/data/embedded/store.py",
        "if sorted_runs(self._open.files()) > MOST_RUNS:",
        "if False:",
        (
            "tests/data/embedded/test_embedded.py::test_many_commits_and_checkpoints_leave_few_files_and_one_directory",
        ),
    ),
    Mutant(
        "a key that is put again is counted again",
        "state_store/data/embedded/write_buffer.py",
        "+ (value is not None) - was_there",
        "+ (value is not None)",
        ("tests/data/embedded/test_embedded.py",),
    ),
    Mutant(
        "a removed row comes back in scans",
        "state_store/data/embedded/write_buffer.py",
        "            if change[1] is not None:\n                yield key, change[1]\n",
        "            yield key, change[1] or value\n",
        ("tests/data/embedded/test_embedded.py",),
    ),
]
