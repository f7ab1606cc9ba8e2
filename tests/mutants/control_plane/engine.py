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
    Mutant(
        "files of a large store are as small as others",
        "state_store/core/engine/settings.py",
        "return replace(self, file_bytes=max(self.file_bytes, by_size))",
        "return self",
        ("tests/core/snapshots/test_merge.py",),
    ),
]
