"""A processor with a large group, which shows how much memory its worker has used at most."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

OUTPUT = "n long, peak_kb long"


class LargeGroup(StatefulProcessor):
    """Counts rows; shows their number and the peak of the worker's resident memory."""

    def init(self, handle: Any) -> None:
        self.text = handle.getValueState("text", "s string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = 0
        for row in rows:
            count += row.v >= 0
        self.text.update((str(count),))
        yield Row(n=count, peak_kb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    def close(self) -> None:
        pass
