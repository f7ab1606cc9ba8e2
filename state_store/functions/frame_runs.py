"""Concatenation of the many small frames that a function returns, as by `pd.concat`, in a tenth of its time.

Frames that one function returns mostly have the same columns, in blocks of the same types. Of these only the
values are kept, which are joined block by block; where a frame differs from the one before, a new run begins,
and `pd.concat` joins the runs. As a run has the blocks of each of its frames, the types that come out are
those that `pd.concat` of all the frames gives.

The blocks of a frame are internals of pandas, which have been the same since pandas 2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from state_store.core.compat import zip


class FrameRuns:
    """Frames with at least one row, in the order in which they were added; their indexes are not kept.

    Args:
        taken: the function that gives what is kept of the values of a block; by default these themselves,
            so that a frame must not change before `runs`.
    """

    def __init__(self, taken: Callable[[Any], Any] = lambda values: values) -> None:
        self.rows = 0
        self._taken = taken
        self._done: list[Any] = []
        self._first: Any = None
        self._labels: list[Any] = []
        self._layout: list[Any] = []
        self._values: list[list[Any]] = []

    def add(self, frame: Any) -> None:
        """Append the rows of `frame`, a pandas frame."""
        blocks = frame._mgr.blocks
        layout = [
            (block.dtype, place if isinstance(place := block.mgr_locs.indexer, slice) else place.tolist())
            for block in blocks
        ]
        taken = [self._taken(block.values) for block in blocks]
        if self._fits(frame.columns, layout):
            for values, of_block in zip(self._values, taken, strict=True):
                values.append(of_block)
        else:
            self._end_run()
            self._first = _frame(frame, taken) if taken else frame.copy()
            self._labels, self._layout = frame.columns.tolist(), layout
            self._values = [[of_block] for of_block in taken]
        self.rows += len(frame)

    def runs(self) -> list[Any]:
        """Return all frames as few frames, one below the other."""
        self._end_run()
        return self._done

    def _fits(self, columns: Any, layout: list[Any]) -> bool:
        if self._first is None or layout != self._layout or not layout:
            return False
        try:
            return columns.tolist() == self._labels
        except (TypeError, ValueError):  # labels that cannot be compared, such as pandas.NA
            return False

    def _end_run(self) -> None:
        if self._first is None:
            return
        if not self._values or len(self._values[0]) == 1:
            self._done.append(self._first)
        else:
            self._done.append(_frame(self._first, [_joined(values) for values in self._values]))
        self._first = None


def _frame(like: Any, values: list[Any]) -> Any:
    manager = like._mgr
    blocks = tuple(b.make_block(v) for b, v in zip(manager.blocks, values, strict=True))
    axes = [like.columns, pd.RangeIndex(blocks[0].shape[1])]
    return pd.DataFrame._from_mgr(type(manager)(blocks, axes), axes=axes)


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(values, axis=1)
    if first.ndim == 2:
        return type(first)._concat_same_type(values, axis=1)
    return type(first)._concat_same_type(values)
