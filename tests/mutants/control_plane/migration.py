"""Breaks of `state_store/data/migration` and of the logs that it rewrites."""

from __future__ import annotations

from mutants.mutant import Mutant

TESTS = ("tests/cli/test_migrate.py",)
MIGRATE = "state_store/data/migration/migrate.py"
TARGETS = "state_store/data/query/targets.py"
LOGS = "state_store/data/dataset/rewriting/spark_files.py"

MUTANTS = [
    Mutant(
        "a migration writes into a used directory",
        TARGETS,
        "if names or _has_files(storage, location):",
        "if False:",
        TESTS,
    ),
    Mutant(
        "a migration begins with a deleted version",
        MIGRATE,
        "        check_present(self._query, self._from, self._versions)\n",
        "",
        TESTS,
    ),
    Mutant(
        "a version may lack its files",
        "state_store/data/migration/state_stores.py",
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
        "column families are migrated to a store without them",
        MIGRATE,
        "if operator.schema_files:",
        "if False:",
        TESTS,
    ),
    Mutant(
        "the time index of a join has a single value for each key",
        MIGRATE,
        "for side in _SIDES), *_INDEXES)",
        "for side in _SIDES),)",
        TESTS,
    ),
    Mutant(
        "the index of times of a join counts as keys",
        MIGRATE,
        "internal=_INDEXES",
        "internal=()",
        TESTS,
    ),
    Mutant(
        "checksums of rows are asked of a store that refuses them",
        MIGRATE,
        'pins[_ROW_CHECKSUMS] = "false"',
        "pass",
        TESTS,
    ),
    Mutant(
        "ids of versions that were left behind stay in the commit log",
        LOGS,
        "text = _patched(text, lambda entry: entry.pop(_IDS, None))",
        "pass",
        TESTS,
    ),
    Mutant(
        "the commit log has the other checkpoint format",
        LOGS,
        'text = b"v%d\\n" % checkpoint_format + rest',
        "pass",
        TESTS,
    ),
    Mutant(
        "a copy reads the schemas of the original",
        LOGS,
        "f\"{hadoop_uri(target.location)}/state/{path.partition('/state/')[2]}\"",
        "path",
        TESTS,
    ),
    Mutant(
        "a heap that is too small is a defect",
        "state_store/session/program.py",
        "if code == _OUT_OF_MEMORY:",
        "if False:",
        TESTS,
    ),
]
