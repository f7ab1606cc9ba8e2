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

_HOLE = b"\0"
"""No table of the model has this byte."""

_TRIES = 3
_EVICTIONS = 50

Ask = Callable[[str, int, int], None]
"""For the bytes of a sparse file: its name, an offset, a length. Raises StateStoreError."""


def rows_of(answer: dict[str, Any], version: int, ask: Ask) -> Rows:
    """Return the rows of a restored version, whose files name it. Raises DamagedError, and as `ask` does."""
    directory = Path(answer["directory"])
    pages = {}
    for name in answer["sparse"]:
        if answer["page_bytes"]:
            pages[directory / name] = _read_pages(directory / name, name, answer, ask)
        else:
            _complete(directory / name, name, ask)
    rows: Rows = {}
    at = VersionId(answer["base"]["version"], answer["base"]["id"])
    if at.number or not answer["loose_deltas"]:
        rows = engine.records_of(directory, pages)
        _check_version(at, rows.get(META_KEY))
    for delta in answer["loose_deltas"]:
        path = Path(delta["path"])
        changes = engine.unpack_table(pages.get(path) or path.read_bytes(), str(path))
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


def _read_pages(path: Path, name: str, answer: dict[str, Any], ask: Ask) -> bytes:
    """Return a file whose pages may be evicted at any moment. Wrong bytes are fetched again, as often as in
    the JVM.
    """
    step = max(answer["page_bytes"], answer["pages_at_once"])
    size = path.stat().st_size
    for tries in range(_TRIES):
        places = [(at, min(step, size - at)) for at in range(0, size, step)]
        pieces = [_read_piece(path, name, at, length, ask, tries > 0) for at, length in places]
        with contextlib.suppress(DamagedError):
            engine.unpack_table(data := b"".join(pieces), str(path))
            _note_uses(path)
            return data
    raise DamagedError(f"'{path}' is damaged: it stays so when it is fetched again", file=str(path))


def _read_piece(path: Path, name: str, offset: int, length: int, ask: Ask, again: bool) -> bytes:
    for _ in range(_EVICTIONS):
        data = path.read_bytes()[offset : offset + length]
        if _HOLE not in data and not again:
            return data
        again = False
        ask(name, offset, length)
    raise AssertionError(f"'{path}' never has its pages from {offset} on")


def _note_uses(path: Path) -> None:
    """Note that all pages were read."""
    with contextlib.suppress(FileNotFoundError), path.with_name(f"{path.name}.uses").open("r+b") as uses:
        pages = len(uses.read())
        uses.seek(0)
        uses.write(b"\1" * pages)


def _check_version(expected: VersionId, record: bytes | None) -> None:
    """Raise DamagedError if the file is of another version."""
    if engine.version_of(record) != expected:
        raise DamagedError(f"a file says that it is {engine.version_of(record)}, not {expected}")
