"""All rows of a range of keys of a local database, page by page.

The oldest sorted run has most of the rows. What younger runs say of keys is kept in memory, where it is
little; otherwise RocksDB merges all runs first, in the same directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.engine.database import Database, TableFile
from state_store.engine.pages import Page, Stretches, pages
from state_store.engine.settings import DatabaseSettings

if TYPE_CHECKING:
    import pyarrow

_MOST_YOUNG_BYTES = 8 << 20
"""Of the younger runs, above which RocksDB merges all."""


def rows(directory: Path, settings: DatabaseSettings, start: bytes, end: bytes) -> Iterator[Page]:
    """The rows with keys from `start` up to `end` (excluded), both of two bytes; no page has a removal.

    Those of the oldest run come first, in order of their keys, then those that are in younger ones. Nobody
    else uses the directory. Raises DamagedError for a damaged file, FormatError for one that is not known.
    """
    *young, oldest = _runs(directory, settings)
    changed = _last_changes(directory, young, start, end)
    keys_by_length = _by_length(changed)
    for file in oldest:
        for page in pages(directory / file.name, start, end):
            stays = ~page.removed & ~_among(page.keys, keys_by_length)
            yield page if stays.all() else page.taken(stays)
    if changed:
        yield _page({key: value for key, value in changed.items() if value is not None})


def _runs(directory: Path, settings: DatabaseSettings) -> list[list[TableFile]]:
    with Database(directory, settings) as database:
        runs = database.runs()
        if sum(file.size_bytes for run in runs[:-1] for file in run) > _MOST_YOUNG_BYTES:
            database.compact_all()
            runs = database.runs()
    return runs or [[]]


def _last_changes(
    directory: Path, young: list[list[TableFile]], start: bytes, end: bytes
) -> dict[bytes, bytes | None]:
    """What the younger runs say of each of their keys; None: it was removed."""
    changed: dict[bytes, bytes | None] = {}
    for run in reversed(young):
        for file in run:
            for page in pages(directory / file.name, start, end):
                values = zip(page.values.texts(), page.removed.tolist(), strict=True)
                changed.update(
                    (key, None if removed else value)
                    for key, (value, removed) in zip(page.keys.texts(), values, strict=True)
                )
    return changed


def _by_length(keys: Mapping[bytes, object]) -> dict[int, pyarrow.Array]:
    import pyarrow

    found: dict[int, list[bytes]] = {}
    for key in keys:
        found.setdefault(len(key), []).append(key)
    return {length: pyarrow.array(some, pyarrow.binary(length)) for length, some in found.items()}


def _among(keys: Stretches, wanted: Mapping[int, pyarrow.Array]) -> Any:
    """Which of the keys are wanted; these are given by their lengths."""
    import numpy
    import pyarrow
    import pyarrow.compute

    found = numpy.zeros(len(keys.starts), bool)
    for length, some in wanted.items():
        candidates = numpy.flatnonzero(keys.lengths == length)
        if len(candidates):
            table = keys.data[keys.starts[candidates][:, None] + numpy.arange(length)]
            buffer = pyarrow.py_buffer(numpy.ascontiguousarray(table))
            array = pyarrow.Array.from_buffers(pyarrow.binary(length), len(candidates), [None, buffer])
            found[candidates] = pyarrow.compute.is_in(array, some).to_numpy(zero_copy_only=False)
    return found


def _page(rows: Mapping[bytes, bytes]) -> Page:
    import numpy

    keys, values = (_stretches(list(parts)) for parts in (rows.keys(), rows.values()))
    return Page(keys, values, numpy.zeros(len(rows), bool))


def _stretches(parts: list[bytes]) -> Stretches:
    import numpy

    lengths = numpy.fromiter(map(len, parts), numpy.int64, len(parts))
    data = numpy.frombuffer(b"".join(parts), numpy.uint8)
    return Stretches(data, numpy.cumsum(lengths) - lengths, lengths)
