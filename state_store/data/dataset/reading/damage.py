"""The loss behind a damaged file, in a reader's words: the partition, its rows, the keys in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from state_store.core.checkpoint.names import is_sst_path
from state_store.core.checkpoint.stored_documents import ColumnFamily
from state_store.core.compat import zip
from state_store.core.engine.table import key_bounds
from state_store.core.interruption import ScratchDirectory
from state_store.core.storage.contract import Storage
from state_store.data.dataset.layout.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.layout.views import View
from state_store.data.query.arguments import counted
from state_store.errors import DamagedError, MissingError, StateStoreError

T = TypeVar("T")


def lost_partition(
    error: DamagedError | MissingError,
    checkpoint: str,
    view: View,
    partition: int,
    version: int,
    storage: Storage,
    families: Callable[[], Mapping[str, ColumnFamily]],
) -> DamagedError | MissingError:
    """Return the error that a partition cannot be read at a version, with the loss and a remedy.

    Args:
        error: the reason.
        checkpoint: the query's checkpoint directory.
        view: the store.
        partition: the number of the partition.
        version: the version.
        storage: the store's directory.
        families: returns the column families of the version with their numbers of rows, or fails.
    """
    family = _attempted(lambda: families()[view.schema.family])
    rows = "its rows" if family is None else f"its {counted(family.keys, 'row')}"
    keys = None if family is None else _attempted(lambda: _keys_in(error.file, view, family, storage))
    where = f" ({keys})" if keys else ""
    message = (
        f"partition {partition} of store '{view.name}' of operator {view.operator.id} cannot be read at "
        f"version {version}, and {rows} are lost{where}: {error.message}. `state-store repair {checkpoint}` "
        "tells if it can be repaired. Read the other partitions with partitions=..., or all undamaged ones "
        "with on_damage='skip'"
    )
    return type(error)(message, file=error.file)


def _keys_in(file: str | None, view: View, family: ColumnFamily, storage: Storage) -> str | None:
    """Return a sentence on the keys of the rows in the file; None if they are not known."""
    path = "/".join((file or "").split("/")[-2:])
    if not is_sst_path(path):
        return None
    with ScratchDirectory("state-store-") as scratch:
        local = Path(scratch) / "table"
        storage.download(path, local)
        bounds = key_bounds(local)
    low, high = (int.from_bytes(bound[:FAMILY_BYTES], "big") for bound in bounds)
    if low > family.id or high < family.id:
        return "the damaged file has none of them, but the version cannot be made without it"
    texts = [
        f"{side} {shown_key(view, bound)}"
        for side, bound, family_id in zip(("from", "to"), bounds, (low, high), strict=True)
        if family_id == family.id
    ]
    return f"the damaged file has rows with keys {' '.join(texts)}" if texts else None


def shown_key(view: View, key: bytes) -> str:
    """Return a key, with the id of a column family in front, as a user writes it: `name = value`, ..."""
    columns = Columns(view)
    return ", ".join(
        f"{name} = {column[0].as_py()!r}"
        for name, column in zip(columns.key_names, columns.keys([key]), strict=True)
    )


def _attempted(get: Callable[[], T]) -> T | None:
    """Return the result of `get`, or None if it fails: around damage, reading may fail again."""
    try:
        return get()
    except (StateStoreError, KeyError, IndexError, ValueError, OSError):
        return None
