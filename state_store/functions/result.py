"""The result of a vectorised function, and the changes that are made of it: one per group."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclasses.dataclass
class Result:
    """The result of a call. A group that no part names keeps its state and its timeout.

    output
        Rows to emit, with the columns of the output schema: a table (or frame, as the function's `frame`
        says), or `None` for none.
    state
        New states. Without a `__group` column: one row for each row of `states`, in its order. With it:
        rows for the groups that it names. Columns of `states` that are no state columns may stay in and are
        not read.
    remove
        Groups whose state is removed: group indexes, or one boolean for each row of `states`.
    timeout
        New timeouts, one for each row of `states`, null for none: integers are milliseconds since the
        epoch, as are timestamps; durations count from the start of the batch and need
        `ProcessingTimeTimeout`. A group that gets a new state or is removed, and no timeout, has none
        afterwards, as with `GroupState`.
    """

    output: Any = None
    state: Any = None
    remove: Any = None
    timeout: Any = None


@dataclasses.dataclass
class Changes:
    """A checked result for `n` groups.

    `updated` and `removed` are boolean arrays of length n, `timeout` an int64 array of length n (-1:
    none set), `state` a struct array with the new states of the updated groups in ascending order,
    `output` a struct array.
    """

    updated: np.ndarray
    removed: np.ndarray
    timeout: np.ndarray
    state: pa.StructArray
    output: pa.StructArray
