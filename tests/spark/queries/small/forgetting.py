"""`applyInPandasWithState`, small, with removals: totals by key, forgotten at a value of 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState


def remember(key: tuple, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    values = pd.concat(list(frames))["value"]
    if (values == 0).any():
        state.remove()
    else:
        state.update(((state.get[0] if state.exists else 0) + int(values.sum()),))
    yield pd.DataFrame({"key": [key[0]], "seen": [len(values)]})


def remembered(records: DataFrame) -> DataFrame:
    return records.groupBy("key").applyInPandasWithState(
        remember, "key string, seen long", "total long", "update", "NoTimeout"
    )
