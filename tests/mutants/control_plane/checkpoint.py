"""Breaks of `state_store/core/checkpoint`."""

from __future__ import annotations

from mutants.mutant import Mutant

_CHECKPOINT = "state_store/core/checkpoint"

MUTANTS = [
    Mutant(
        "a snapshot that shares older files cuts the chain",
        f"{_CHECKPOINT}/registry.py",
        "and all(file.origin >= version.number for file in needs.base.files.values())",
        "",
        ("tests/core/deletion/test_retention.py",),
    ),
    Mutant(
        "a delta that started from nothing has a parent",
        f"{_CHECKPOINT}/names.py",
        "if self.version == 1 or self.parent == EMPTY_PARENT:",
        "if self.version == 1:",
        ("tests/core/checkpoint/test_names.py",),
    ),
    Mutant(
        "a plan from a named snapshot takes a newer one",
        f"{_CHECKPOINT}/lineage.py",
        "if current in self._snapshots and start in (None, current):",
        "if current in self._snapshots:",
        ("tests/core/checkpoint/test_lineage.py",),
    ),
    Mutant(
        "the first of two deltas of a version is used",
        f"{_CHECKPOINT}/lineage.py",
        "if len(deltas) > 1:",
        "if len(deltas) > 2:",
        ("tests/core/checkpoint/test_lineage.py",),
    ),
    Mutant(
        "versions without their parent count as restorable",
        f"{_CHECKPOINT}/lineage.py",
        "if base is None or base in known:",
        "if True:",
        ("tests/core/checkpoint/test_lineage.py",),
    ),
    Mutant(
        "a manifest may name any path",
        f"{_CHECKPOINT}/manifest.py",
        "if not is_sst_path(entry.path):",
        "if False:",
        ("tests/core/checkpoint/test_documents.py",),
    ),
    Mutant(
        "a manifest may name a file twice",
        f"{_CHECKPOINT}/manifest.py",
        "if len(set(values)) < len(values):",
        "if False:",
        ("tests/core/checkpoint/test_documents.py",),
    ),
    Mutant(
        "a file of the database may be called anything",
        f"{_CHECKPOINT}/manifest.py",
        "if _DATABASE_NAME.fullmatch(entry.name) is None:",
        "if False:",
        ("tests/core/checkpoint/test_documents.py",),
    ),
    Mutant(
        "two column families may have one id",
        f"{_CHECKPOINT}/metadata.py",
        "if family.id >= RESERVED_FAMILY or family.id in used:",
        "if family.id >= RESERVED_FAMILY:",
        ("tests/core/checkpoint/test_documents.py",),
    ),
    Mutant(
        "an archive may have members of any name",
        f"{_CHECKPOINT}/archive.py",
        "if name != MANIFEST_NAME and _DATABASE_FILE.fullmatch(name) is None:",
        "if False:",
        ("tests/core/checkpoint/test_documents.py",),
    ),
    Mutant(
        "a snapshot with a file of another size counts as complete",
        f"{_CHECKPOINT}/registry.py",
        "sizes.get(entry.path) == entry.size_bytes for entry",
        "entry.path in sizes for entry",
        ("tests/core/checkpoint/test_registry.py",),
    ),
    Mutant(
        "the oldest version that stays is retired, too",
        f"{_CHECKPOINT}/registry.py",
        "return self.retire([version for version in self._needs if version.number < floor])",
        "return self.retire([version for version in self._needs if version.number <= floor])",
        ("tests/core/checkpoint/test_registry.py",),
    ),
    Mutant(
        "a file that another checkpoint keeps is listed as freed",
        f"{_CHECKPOINT}/registry.py",
        "return [file for path, file in going.files().items() if path not in left]",
        "return list(going.files().values())",
        ("tests/core/checkpoint/test_registry.py",),
    ),
    Mutant(
        "an attempt is not refused because of one that it has not seen",
        f"{_CHECKPOINT}/attempts.py",
        "if at.number == own.number and (theirs is None or mine is None or theirs >= mine):",
        "if False:",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
    Mutant(
        "an attempt is not refused although the query has continued",
        f"{_CHECKPOINT}/attempts.py",
        "            if at.number > own.number:\n",
        "            if False:\n",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
    Mutant(
        "a version builds on a recommitted one",
        f"{_CHECKPOINT}/attempts.py",
        "if theirs is not None and base is not None and theirs > base:",
        "if False:",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
    Mutant(
        "a refused attempt is resolved",
        f"{_CHECKPOINT}/attempts.py",
        "        found = self._at(number) - self._refused\n",
        "        found = self._at(number)\n",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
    Mutant(
        "of equal attempts the last is meant",
        f"{_CHECKPOINT}/attempts.py",
        "first_ms = min(times.values(), default=0)",
        "first_ms = max(times.values(), default=0)",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
    Mutant(
        "the version that the query continued from is ignored",
        f"{_CHECKPOINT}/attempts.py",
        "best = (best & self._continued(number)) or best",
        "best = best",
        ("tests/core/checkpoint/test_attempts.py",),
    ),
]
