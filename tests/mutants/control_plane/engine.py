"""Breaks of `state_store/core/engine`: a wrong number in a table is refused, a failed compaction seen."""

from __future__ import annotations

from mutants.mutant import Mutant

_TABLE, _ROWS = "state_store/core/engine/table.py", "state_store/core/engine/rows.py"
_TESTS = ("tests/core/engine/test_damaged_tables.py",)
_DATABASE = "state_store/core/engine/database.py"
_DATABASE_TESTS = ("tests/core/engine/test_database.py",)

MUTANTS = [
    Mutant(
        "a value ends beyond its block",
        _TABLE,
        "shared > len(key) or at + fresh + length > end",
        "shared > len(key)",
        _TESTS,
    ),
    Mutant(
        "a key shares more than the key before has, record by record",
        _TABLE,
        "shared > len(key) or at + fresh + length > end",
        "at + fresh + length > end",
        _TESTS,
    ),
    Mutant(
        "LZ4 makes any number of bytes of a few, in Python",
        _TABLE,
        "if length > _MAX_LZ4_RATIO * size:",
        "if False:",
        _TESTS,
    ),
    Mutant(
        "a key shares more than the key before has, page by page",
        _ROWS,
        " or (walk.shared[1:] > key_bytes[:-1]).any()",
        "",
        _TESTS,
    ),
    Mutant(
        "restarts of a block are in any order",
        _ROWS,
        " or (restarts > limits).any()",
        "",
        _TESTS,
    ),
    Mutant(
        "the first restart of a block is not its begin",
        _ROWS,
        "(restarts[lasts - counts + 1] != begins).any() or ",
        "",
        _TESTS,
    ),
    Mutant(
        "the first and last key of a damaged table are in any order",
        _TABLE,
        "if not keys or keys != sorted(keys) or first != sorted(first) or last != sorted(last):",
        "if not keys:",
        _TESTS,
    ),
    Mutant(
        "a compaction that has met a full disk passes for one that was made",
        _DATABASE,
        'if not self._property("rocksdb.background-errors"):',
        "if True:",
        _DATABASE_TESTS,
    ),
    Mutant(
        "an old file makes an incremental merge rewrite everything",
        _DATABASE,
        ', "periodic_compaction_seconds": "0", "ttl": "0"}',
        "}",
        _DATABASE_TESTS,
    ),
]
