"""Breaks of `state_store/core/checkpoint`: an attempt that lost is refused, and a manifest names only its
own files.
"""

from __future__ import annotations

from mutants.mutant import Mutant

_CHECKPOINT = "state_store/core/checkpoint"

MUTANTS = [
    Mutant(
        "a manifest may name any path",
        f"{_CHECKPOINT}/stored_documents.py",
        "if not is_sst_path(entry.path):",
        "if False:",
        ("tests/core/checkpoint/test_stored_documents.py",),
    ),
    Mutant(
        "an archive may have members of any name",
        f"{_CHECKPOINT}/stored_documents.py",
        "if name != MANIFEST_NAME and _DATABASE_FILE.fullmatch(name) is None:",
        "if False:",
        ("tests/core/checkpoint/test_stored_documents.py",),
    ),
    Mutant(
        "a file that another checkpoint keeps is listed as freed",
        f"{_CHECKPOINT}/registry.py",
        "return [file for path, file in going.files().items() if path not in kept_files]",
        "return list(going.files().values())",
        ("tests/core/checkpoint/test_registry.py",),
    ),
    Mutant(
        "an attempt is not refused because of one that it has not seen",
        f"{_CHECKPOINT}/lineage.py",
        "if at.number == own.number and (theirs is None or mine is None or theirs >= mine):",
        "if False:",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
    Mutant(
        "an attempt is not refused although the query has continued",
        f"{_CHECKPOINT}/lineage.py",
        "            if at.number > own.number:\n",
        "            if False:\n",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
    Mutant(
        "a version builds on a recommitted one",
        f"{_CHECKPOINT}/lineage.py",
        "if theirs is not None and base is not None and theirs > base:",
        "if False:",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
    Mutant(
        "a refused attempt is resolved",
        f"{_CHECKPOINT}/lineage.py",
        "        candidates = self._at(number) - self._refused\n",
        "        candidates = self._at(number)\n",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
]
