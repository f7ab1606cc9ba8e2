"""Storage that a URI opens, and the error for an unknown one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from state_store.core.storage import open as open_module
from state_store.core.storage import open_storage
from state_store.core.storage.hadoop import HadoopStorage
from state_store.core.storage.local import LocalStorage
from state_store.core.storage.objects import Container, container_of
from state_store.core.storage.webhdfs import webhdfs_endpoints
from state_store.errors import OptionError, StorageError


@pytest.mark.parametrize(
    ("uri", "directory"),
    [
        ("/a/b c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b%20c"),
        ("FILE:///a", "/a"),
        ("file://localhost/a/b", "/a/b"),
        ("relative/x", "relative/x"),
    ],
)
def test_local_paths_in_all_spellings_open_the_same_directory(uri: str, directory: str) -> None:
    storage = open_storage(uri)
    assert isinstance(storage, LocalStorage)
    assert storage.directory == Path(directory)


def test_a_file_uri_with_a_host_is_refused() -> None:
    with pytest.raises(OptionError, match="names the host 'server'"):
        open_storage("file://server/a")


def test_an_unknown_scheme_names_itself_and_what_is_known() -> None:
    with pytest.raises(OptionError, match=r"'ftp'.*supported are .*webhdfs"):
        open_storage("ftp://server/a")


def test_the_jvm_opens_whatever_is_not_local() -> None:
    class Jvm:
        def fs(self, operation, body):
            raise AssertionError("no call before the first use")

    assert isinstance(open_storage("ftp://server/a", jvm=Jvm()), HadoopStorage)
    assert isinstance(open_storage("file:/a", jvm=Jvm()), LocalStorage)


def test_a_webhdfs_uri_names_its_host() -> None:
    storage = open_storage("swebhdfs://node:9871/a/b")
    assert storage.location == "swebhdfs://node:9871/a/b"


def _configure(directory: Path, **files: dict[str, str]) -> dict[str, str]:
    for name, properties in files.items():
        items = "".join(
            f"<property><name>{k}</name><value>{v}</value></property>" for k, v in properties.items()
        )
        (directory / f"{name}-site.xml").write_text(f"<configuration>{items}</configuration>")
    return {"HADOOP_CONF_DIR": str(directory)}


class TestEndpoints:
    def test_the_port_has_a_default(self) -> None:
        assert webhdfs_endpoints("node:8020", {}) == ["http://node:9870"]

    def test_the_configuration_has_the_address(self, tmp_path: Path) -> None:
        environment = _configure(tmp_path, hdfs={"dfs.namenode.http-address": "0.0.0.0:5000"})
        assert webhdfs_endpoints("node:8020", environment) == ["http://node:5000"]

    def test_a_cluster_may_allow_https_only(self, tmp_path: Path) -> None:
        environment = _configure(tmp_path, hdfs={"dfs.http.policy": "HTTPS_ONLY"})
        assert webhdfs_endpoints("node:8020", environment) == ["https://node:9871"]

    def test_a_name_service_has_several_hosts(self, tmp_path: Path) -> None:
        environment = _configure(
            tmp_path,
            core={"fs.defaultFS": "hdfs://ours"},
            hdfs={
                "dfs.ha.namenodes.ours": "a, b",
                "dfs.namenode.http-address.ours.a": "one:9870",
                "dfs.namenode.http-address.ours.b": "two:9870",
            },
        )
        assert webhdfs_endpoints("", environment) == ["http://one:9870", "http://two:9870"]

    def test_observers_are_refused(self, tmp_path: Path) -> None:
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider"
        environment = _configure(tmp_path, hdfs={"dfs.client.failover.proxy.provider.ours": provider})
        with pytest.raises(OptionError, match=r"'ours' is read from observers.*name the active one"):
            webhdfs_endpoints("ours", environment)

    def test_a_uri_without_a_host_is_refused(self) -> None:
        with pytest.raises(OptionError, match=r"fs\.defaultFS"):
            webhdfs_endpoints("", {})

    def test_an_unreadable_configuration_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "hdfs-site.xml").write_text("<configuration>")
        with pytest.raises(OptionError, match=r"hdfs-site\.xml"):
            webhdfs_endpoints("node", {"HADOOP_CONF_DIR": str(tmp_path)})


@pytest.mark.parametrize("location", ["/data/\ud800", "/data/\0", "s3://bucket/\0"])
def test_a_location_that_no_file_can_have_is_refused(location: str) -> None:
    with pytest.raises(OptionError, match=r"(ud800|x00)' is not a path or URI"):
        open_storage(location)


def test_a_service_of_google_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself its client would go on for 15 minutes."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(open_module, "_FIRST_ANSWER_S", 1)
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"gs://anonymous@bucket/dir/a"):
        open_storage("gs://anonymous@bucket/dir").read("a")


def test_a_wrong_connection_string_of_azure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.storage.blob")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=TOPSECRET")
    with pytest.raises(OptionError, match="AZURE_STORAGE_CONNECTION_STRING cannot be used") as raised:
        open_storage("abfs://c/a")
    assert "TOPSECRET" not in raised.value.message


def test_azure_without_its_packages_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.storage.blob", None)
    with pytest.raises(StorageError, match=r"pip install azure-storage-blob azure-identity"):
        open_storage("abfss://container@account.dfs.core.windows.net/dir")


@pytest.mark.parametrize(
    ("uri", "container"),
    [
        (
            "abfss://c@account.dfs.core.windows.net/a/b",
            Container("c", "account", None, "https://account.blob.core.windows.net", "a/b"),
        ),
        (
            "abfs://account:k%2Fy@c/a",
            Container("c", "account", "k/y", "https://account.blob.core.windows.net", "a"),
        ),
        (
            "abfs://account.blob.core.windows.net/c/a",
            Container("c", "account", None, "https://account.blob.core.windows.net", "a"),
        ),
        (
            "abfs://c/a",
            Container("c", "ours", None, "https://ours.blob.core.windows.net", "a"),
        ),
    ],
)
def test_a_container_of_azure_in_each_form_of_its_uri(uri: str, container: Container) -> None:
    assert container_of(uri, {"AZURE_STORAGE_ACCOUNT": "ours"}) == container


@pytest.mark.parametrize(
    ("uri", "missing"), [("abfs://c/a", "account"), ("abfs://account.blob.core.windows.net", "container")]
)
def test_a_uri_of_azure_without_a_part_says_which(uri: str, missing: str) -> None:
    with pytest.raises(OptionError, match=rf"names no {missing}: give abfss://container@account"):
        container_of(uri, {})


@pytest.mark.parametrize("uri", ["s3://", "s3a:///directory"])
def test_an_object_store_without_a_bucket_is_refused(uri: str) -> None:
    with pytest.raises(OptionError, match=r"names no bucket: give s3a?://bucket/directory"):
        open_storage(uri)
