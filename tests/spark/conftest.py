"""Fixtures of the tests with a real Spark; STATE_STORE_TEST_PROVIDER=rocksdb|hdfs runs Spark's own stores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYSPARK_PYTHON"] = sys.executable

import scala_jars
from queries import session_settings


@pytest.fixture(scope="session")
def provider() -> str:
    return session_settings.provider_name()


@pytest.fixture(scope="session")
def scala_jar() -> Path:
    return scala_jars.queries_jar()


@pytest.fixture(scope="session")
def spark(provider: str, scala_jar: Path) -> Iterator:
    """Yield the local session of all tests that need no separate process."""
    from pyspark.sql import SparkSession

    os.environ["PYTHONPATH"] = session_settings.python_path()
    options = session_settings.spark_options(provider, 1 if provider == "hdfs" else 2, [scala_jar])
    session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
