"""Spark's daemon of Python workers, which has imported what they need before it forks them.

A session of the tests names it in `spark.python.daemon.module`. Else each worker imports it for itself,
which takes longer than all that most of them do.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow  # noqa: F401
from pyspark import (
    daemon,
    worker,  # noqa: F401
)

if __name__ == "__main__":
    daemon.manager()
