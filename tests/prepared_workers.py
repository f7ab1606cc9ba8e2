"""Spark's daemon of Python workers, which imports their modules before it forks them.

A session of the tests names it in `spark.python.daemon.module`. Otherwise each worker imports the modules
itself, which takes longer than the rest of most workers' lives.
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
