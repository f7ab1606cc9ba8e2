"""What all tests share: where the checkout is, and workers of Spark that run this Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from minihdfs import hdfs_cluster  # noqa: F401 -- a fixture

CHECKOUT = Path(__file__).resolve().parent.parent

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The directory of the checkout that the tests run in."""
    return CHECKOUT
