"""Reader of a restored version, as in the JVM: a base and its loose deltas, local or still remote."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulation import engine
from simulation.truth import Rows, changed
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import META_KEY
from state_store.errors import DamagedError

Ask = Callable[[str, int, int], None]
"""For the bytes of a sparse file: its name, an offset, a length. Raises StateStoreError."""


def rows_of(answer: dict[str, Any], version: int, ask: Ask) -> Rows:
    """Return the rows of a restored version, whose files name it. Raises DamagedError, and as `ask` does."""
    directory = Path(answer["directory"])
    for name in answer["sparse"]:
        _complete(directory / name, name, ask)
    rows: Rows = {}
    at = VersionId(answer["base"]["version"], answer["base"]["id"])
    if at.number or not answer["beside"]:
        rows = engine.records_of(directory)
        _check_version(at, rows.get(META_KEY))
    for delta in answer["beside"]:
        path = Path(delta["path"])
        changes = engine.unpack_table(path.read_bytes(), str(path))
        assert delta["version"] == at.number + 1, f"{delta} lies beside a base, after {at}"
        at = VersionId(delta["version"], delta["id"])
        _check_version(at, changes.get(META_KEY))
        rows = changed(rows, changes)
    assert at.number == version, f"version {at} was restored instead of {version}"
    rows.pop(META_KEY, None)
    return rows


def _complete(path: Path, name: str, ask: Ask) -> None:
    """Asks for what is not there of a file, in two pieces."""
    size = path.stat().st_size
    for offset in (0, size // 2):
        with contextlib.suppress(DamagedError):
            engine.unpack_table(path.read_bytes(), str(path))
            return
        ask(name, offset, size - size // 2)


def _check_version(expected: VersionId, record: bytes | None) -> None:
    """Raise DamagedError if the file is of another version."""
    if engine.version_of(record) != expected:
        raise DamagedError(f"a file says that it is {engine.version_of(record)}, not {expected}")
