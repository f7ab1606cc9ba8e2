"""Functions that open a state, ask it one question, and close it: those behind commands of the same names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from state_store.data.dataset.history import KeyVersion
from state_store.data.dataset.keys import Key
from state_store.data.dataset.moments import Moment
from state_store.data.dataset.opening import open
from state_store.data.dataset.stats import RECENT, SAMPLE, Statistics
from state_store.data.query import ProgressOption, reporting
from state_store.data.query.arguments import Location

if TYPE_CHECKING:
    import pyarrow


def get(
    checkpoint: Location,
    key: Key,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
) -> dict[str, Any] | None:
    """Return the row of a key as Python values by column; None without one.

    Only the partition that the key is in is read.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        key: a value if keys have one column, else a sequence of values in the order of the columns, or a
            mapping from their names.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: as for `open`.
        batch: as for `open`.
        at: as for `open`.

    Raises:
        OptionError: the key has other columns or types, or has several rows (`State.rows_of` has them all).
        StateStoreError: as for `open`.
    """
    with open(checkpoint, operator, store, version, batch=batch, at=at) as state:
        return state.get(key)


def diff(
    checkpoint: Location,
    since: int | Moment,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
) -> pyarrow.Table:
    """Return the changes from version `since` up to another one.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        since: a version (0: the empty state), or a moment: the newest version then.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: the later version, as for `open`.
        batch: as for `open`.
        at: as for `open`.

    Returns:
        A row for each key that differs: `change` (added, changed, removed), the columns of the key, and its
        values `before` and `after`. `State.diff` gives them in batches.

    Raises:
        MissingError: `since` is not there any more.
        StateStoreError: as for `open`.
    """
    with open(checkpoint, operator, store, version, batch=batch, at=at) as state:
        return state.diff(since).read_all()


def history(
    checkpoint: Location, key: Key, operator: int = 0, store: str | None = None, version: int | None = None
) -> list[KeyVersion]:
    """Return the state of a key at every version that is still there, oldest first.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        key: as for `get`.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: the last version, as for `open`.

    Raises:
        OptionError: the key has other columns or types.
        StateStoreError: as for `open`.
    """
    with open(checkpoint, operator, store, version) as state:
        return state.history(key)


def stats(
    checkpoint: Location,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    sample: int | None = SAMPLE,
    recent: int = RECENT,
    progress: ProgressOption = None,
) -> Statistics:
    """Return the sizes of a state: of partitions, keys and values; and its changes and expired rows.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: as for `open`.
        batch: as for `open`.
        at: as for `open`.
        sample: partitions whose rows are read, evenly chosen; None: all.
        recent: versions whose changes are counted.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        StateStoreError: as for `open`.
    """
    with open(checkpoint, operator, store, version, batch=batch, at=at) as state:
        chosen = len(state.partitions) if sample is None else min(sample, len(state.partitions))
        with reporting(progress, "read", chosen) as meter:
            if meter is not None:
                state.follow(meter)
            return state.stats(sample=sample, recent=recent)


def export(
    checkpoint: Location,
    target: Location,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    partitions: Iterable[int] | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    on_damage: str = "raise",
    progress: ProgressOption = None,
) -> int:
    """Write a state as Parquet files into a new directory, one for each partition; return the number of rows.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        target: a path or a URI; it must not exist. If the export fails, nothing is left.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: as for `open`.
        partitions: as for `open`.
        batch: as for `open`.
        at: as for `open`.
        on_damage: as for `open`.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        ConflictError: the target exists.
        OptionError: Parquet does not have a type, or the target is inside of the checkpoint.
        StateStoreError: as for `open`.
    """
    with open(
        checkpoint, operator, store, version, partitions, batch=batch, at=at, on_damage=on_damage
    ) as state:
        return state.export(target, progress=progress)
