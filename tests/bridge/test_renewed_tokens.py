"""New connections take renewed delegation tokens: stores of two users on an HDFS that asks for Kerberos.

The JVM has tokens and nothing else, as an executor has. It gets new ones as Spark hands them over, the old
ones expire, and the NameNode restarts: from then on each thread of the stores needs a connection that was
made with a new token.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import minikerberos
import pytest
from driver import DriverError, Jvm
from waiting import awaited

pytestmark = [pytest.mark.spark, pytest.mark.hdfs, pytest.mark.tier("long")]

TOKEN_LIFE_S = 60
OPTIONS = {
    "localRecovery": "false",
    "maxDeltas": "2",
    "minPauseBetweenMerges": "0",
    "retainedCheckpoints": "2",
    "fullAfterMerges": "1",
}
FULL = "Merge (full) of"
OPENED_FOR = {"alice": None, "hdfs": "hdfs"}
"""The owner of each store, and the user that opens it, if that is another one than the user of the JVM."""


class _Store:
    """A store in the home of a user, with the rows that it should have."""

    def __init__(self, jvm: Jvm, cluster: minikerberos.SecureCluster, uri: str, owner: str) -> None:
        self.jvm, self.owner, self.user = jvm, owner, OPENED_FOR[owner]
        self.home = f"/user/{owner}/state"
        self.location = f"{uri}{self.home}"
        self.files: Callable[[], set[str]] = lambda: cluster.files_below(self.home)
        self.rows: dict[str, str] = {}
        self.newest: tuple[int, str | None] = (0, None)
        self.provider = ""

    def open(self, provider: str) -> None:
        self.jvm.provider(provider, self.location, self.user, **OPTIONS)
        self.provider = provider

    def commit(self, batches: int) -> None:
        for _ in range(batches):
            row = {f"k{self.newest[0] % 4}": f"{self.newest[0]}"}
            self.newest = self.jvm.batch(self.provider, *self.newest, **row)
            self.rows |= row

    def restore(self, provider: str) -> None:
        """Close the store, and open it with a new provider, which has to read its files."""
        self.jvm("close", provider=self.provider)
        self.open(provider)
        assert self.jvm.rows(self.provider, *self.newest) == self.rows

    def merge_and_clean(self) -> None:
        """Commit and maintain until there is a new full checkpoint, and files from before are gone."""
        before, fulls = self.files(), self.jvm.log.count(FULL)

        def is_done() -> bool:
            self.commit(1)
            self.jvm("maintain", provider=self.provider)
            return self.jvm.log.count(FULL) > fulls and not before <= self.files()

        awaited(is_done, f"no full checkpoint, or no clean-up, of the store of {self.owner}")


def test_new_connections_take_renewed_tokens(driver_class_path: str, tmp_path: Path) -> None:
    with minikerberos.running(TOKEN_LIFE_S) as cluster:
        class_path = os.pathsep.join([driver_class_path, str(cluster.configuration)])
        uri = f"hdfs://localhost:{cluster.mini.getNameNodePort(0)}"
        options = ("-Xmx512m", f"-Djava.security.krb5.conf={cluster.krb5}")
        jvm = Jvm(class_path, tmp_path, heap=options, spark_user="alice")
        try:
            _use(jvm, cluster, uri, tmp_path)
        finally:
            jvm.kill()
            shutil.rmtree(jvm.tmp, ignore_errors=True)


def _use(jvm: Jvm, cluster: minikerberos.SecureCluster, uri: str, directory: Path) -> None:
    stores = [_Store(jvm, cluster, uri, owner) for owner in OPENED_FOR]
    files = {store: (directory / f"{store.owner}-1", directory / f"{store.owner}-2") for store in stores}
    with pytest.raises(DriverError, match="cannot authenticate via"):
        stores[0].open("no-token")
        stores[0].commit(1)
    first = [cluster.write_tokens(store.owner, files[store][0]) for store in stores]
    with cluster.renewing(*first):
        for store in stores:
            jvm.take_tokens(files[store][0], store.user)
            store.open(f"{store.owner}-1")
            store.commit(5)
            store.merge_and_clean()
    second = [cluster.write_tokens(store.owner, files[store][1]) for store in stores]
    with cluster.renewing(*second):
        for store in stores:
            jvm.take_tokens(files[store][1], store.user)
        for token in first:
            cluster.wait_until_expired(token)
        cluster.restart_namenode()
        jvm.take_tokens(files[stores[0]][0], "late")  # an old token, which opens no connection any more
        with pytest.raises(DriverError, match=r"Token .*(expired|be found)"):
            jvm.provider("late", stores[0].location, "late", **OPTIONS)
            jvm.rows("late", *stores[0].newest)
        for store in stores:
            store.commit(5)
            store.merge_and_clean()
            store.restore(f"{store.owner}-2")
            store.commit(1)
