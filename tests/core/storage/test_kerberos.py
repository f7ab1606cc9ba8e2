"""Storage on a real HDFS that asks for Kerberos, by tickets and by delegation tokens, without a JVM."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import minikerberos
import pytest
from minikerberos import SecureCluster

from state_store.core.storage import open_storage
from state_store.core.storage.contract import AnsweringStorage, Storage
from state_store.core.storage.webhdfs import delegation_token, parse_tokens
from state_store.errors import OptionError, StorageError
from state_store.testing.storage import KilledWriters

pytest.importorskip("hdfs")
pytestmark = [pytest.mark.hdfs, pytest.mark.tier("more")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SecureCluster]:
    with minikerberos.running() as running:
        yield running


class OnSecureHdfs(KilledWriters):
    """The contract of a storage; a subclass says by which credentials."""

    USER = "alice"

    def uri(self, storage: Storage) -> str:
        return storage.location

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: SecureCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        for name, value in self.credentials(cluster, tmp_path).items():
            monkeypatch.setenv(name, value)

    def credentials(self, cluster: SecureCluster, directory: Path) -> dict[str, str]:
        raise NotImplementedError

    def make_storage(self, tmp_path: Path) -> Storage:
        opened = open_storage(f"webhdfs://{self.cluster.web}/user/{self.USER}/{uuid.uuid4()}")
        assert isinstance(opened, AnsweringStorage)
        return opened.inner

    def put_raw(self, storage: Storage, path: str, data: bytes) -> None:
        storage._client.write(storage._full(path), data=data)

    def get_raw(self, storage: Storage, path: str) -> bytes | None:
        client = storage._client
        if client.status(storage._full(path), strict=False) is None:
            return None
        with client.read(storage._full(path)) as reader:
            return reader.read()


@pytest.mark.tier("long")
class TestWithADelegationToken(OnSecureHdfs):
    USER = "hdfs"

    def credentials(self, cluster: SecureCluster, directory: Path) -> dict[str, str]:
        cluster.write_tokens("hdfs", directory / "tokens")
        return {"HADOOP_TOKEN_FILE_LOCATION": str(directory / "tokens")}


@pytest.mark.tier("long")  # its package is built from source, against the headers of Kerberos
class TestWithATicket(OnSecureHdfs):
    """A keytab stands for a ticket: the library of Kerberos gets one by itself."""

    @pytest.fixture(autouse=True)
    def _package(self) -> None:
        pytest.importorskip("requests_kerberos", reason="needs `pip install '.[kerberos]'`")

    def credentials(self, cluster: SecureCluster, directory: Path) -> dict[str, str]:
        return cluster.keytab_of("alice", directory)

    def test_the_configuration_says_so_too(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        storage.write("delta/a", b"abc")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(self.cluster.configuration))
        other = open_storage(f"hdfs:///user/alice/{storage.location.rpartition('/')[2]}")
        assert other.read("delta/a") == b"abc"


@pytest.mark.tier("long")
def test_a_service_acts_for_a_user(
    cluster: SecureCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("requests_kerberos", reason="needs `pip install '.[kerberos]'`")
    for name, value in cluster.keytab_of("gateway", tmp_path).items():
        monkeypatch.setenv(name, value)
    place = f"webhdfs://{cluster.web}/user/alice/{uuid.uuid4()}"
    with pytest.raises(StorageError, match=r"(?i)permission denied"):
        open_storage(place).write("a", b"abc")
    monkeypatch.setenv("HADOOP_PROXY_USER", "alice")
    open_storage(place).write("a", b"abc")
    assert open_storage(place).read("a") == b"abc"


def test_a_token_is_enough(cluster: SecureCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"webhdfs://{cluster.web}/user/hdfs/{uuid.uuid4()}"
    monkeypatch.setitem(sys.modules, "requests_kerberos", None)
    with pytest.raises(StorageError, match="asks for Kerberos"):
        open_storage(place).write("a", b"abc")
    cluster.write_tokens("hdfs", tmp_path / "tokens")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    open_storage(place).write("a", b"abc")
    assert open_storage(place).read("a") == b"abc"


def test_without_credentials_the_remedies_are_said(cluster: SecureCluster, tmp_path: Path) -> None:
    without_package = "import sys; sys.modules['requests_kerberos'] = None\n"
    program = without_package + "from state_store.cli.main import main; sys.exit(main(sys.argv[1:]))"
    for variables in ({}, {"HADOOP_CONF_DIR": str(cluster.configuration)}):
        ran = subprocess.run(
            [sys.executable, "-c", program, "verify", f"webhdfs://{cluster.web}/user/alice"],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **variables},
            capture_output=True,
            text=True,
        )
        assert ran.returncode != 0
        for word in ("requests-kerberos", "kinit", "HADOOP_TOKEN_FILE_LOCATION"):
            assert word in ran.stderr


def test_a_token_of_another_cluster_is_not_sent(cluster: SecureCluster, tmp_path: Path) -> None:
    cluster.write_tokens("hdfs", tmp_path / "tokens")
    environment = {"HADOOP_TOKEN_FILE_LOCATION": str(tmp_path / "tokens")}
    assert delegation_token([f"http://{cluster.web}"], environment)
    with pytest.raises(OptionError, match=r"none for http://192\.0\.2\.1:9870"):
        delegation_token(["http://192.0.2.1:9870"], environment)


def test_a_token_is_no_part_of_a_message(cluster: SecureCluster, tmp_path: Path, monkeypatch) -> None:
    cluster.write_tokens("hdfs", tmp_path / "tokens")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    secret = delegation_token([f"http://{cluster.web}"])
    assert secret is not None
    storage = open_storage("webhdfs://localhost:9/stores")
    with pytest.raises(StorageError) as raised:
        storage.read("delta/a")
    assert "9" in raised.value.message and secret not in raised.value.message


def test_a_file_that_is_cut_or_of_another_format_is_refused(cluster: SecureCluster, tmp_path: Path) -> None:
    cluster.write_tokens("hdfs", tmp_path / "tokens")
    content = (tmp_path / "tokens").read_bytes()
    (token,) = parse_tokens(content)
    assert token.kind == "HDFS_DELEGATION_TOKEN"
    for length in range(len(content) - 1):  # a number of secret keys, none, follows
        with pytest.raises(ValueError, match=r"cut short|does not begin|Java format"):
            parse_tokens(content[:length])
    with pytest.raises(ValueError, match="dtutil"):
        parse_tokens(content[:4] + b"\x01" + content[5:])
    (tmp_path / "tokens").write_bytes(content[:20])
    with pytest.raises(OptionError, match="cannot be read"):
        delegation_token(["http://h:1"], {"HADOOP_TOKEN_FILE_LOCATION": str(tmp_path / "tokens")})
