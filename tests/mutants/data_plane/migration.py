"""Migration: a list is never read past its end, and a copy is compared with its source."""

from __future__ import annotations

from mutants.data_plane.places import COPIES, ROOT
from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "a value of a list is longer than the list",
        f"{ROOT}/rows/RowCodec.scala",
        "if (size < 1 || at > bytes.length)",
        "if (size < 1)",
        COPIES,
    ),
    Mutant(
        "values without a delimiter are read as if they had one",
        f"{ROOT}/rows/RowCodec.scala",
        "if (delimiterBytes > 0 && bytes(at.toInt) != RowCodec.Delimiter)",
        "if (false)",
        COPIES,
    ),
    Mutant(
        "a copy with other rows counts as its source if it has as many",
        f"{ROOT}/migration/StoreCopy.scala",
        "count == other.count && checksum == other.checksum",
        "count == other.count",
        COPIES,
    ),
    Mutant(
        "the values of a list may change places",
        f"{ROOT}/migration/StoreCopy.scala",
        "hash(keys(key), position)",
        "hash(keys(key), 0)",
        COPIES,
    ),
]
