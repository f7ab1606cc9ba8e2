"""Fixtures of the tests of storage: JVMs that serve files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from minihdfs import HdfsCluster

from state_store.core.storage.hadoop import StoreFiles

from .file_server import serving


@pytest.fixture(scope="session")
def hdfs_jvm(hdfs_cluster: HdfsCluster) -> Iterator[StoreFiles]:
    """Yield a JVM that serves the files of the cluster, as its superuser."""
    with serving(hdfs_cluster.uri, configuration=hdfs_cluster.configuration) as jvm:
        yield jvm
