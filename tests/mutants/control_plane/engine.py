"""Breaks of `state_store/core/engine`."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = [
    Mutant(
        "a delta lacks its reserved record",
        "state_store/core/engine/delta_writer.py",
        "        writer[META_KEY] = metadata.to_json()\n",
        "",
        ("tests/data/embedded/test_embedded.py",),
    ),
]
