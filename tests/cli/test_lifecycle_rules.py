"""Lifecycle rules of a bucket that take files of a checkpoint away: commands name the file and the remedy."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from minis3 import S3Server
from query_directory import QueryDirectory, rows

from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.data.query import StoreKey

pytest.importorskip("moto")
pytestmark = pytest.mark.tier("more")

FIRST = StoreKey(0, 0)


class Bucket:
    """A versioned bucket with a checkpoint, whose rules a test plays."""

    def __init__(self, server: S3Server, scratch: Path) -> None:
        self.s3, self.name = server.client(), f"rules-{uuid.uuid4()}"
        self.s3.create_bucket(Bucket=self.name)
        self.s3.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})
        self.location = f"s3://{self.name}/flights"
        self.query = QueryDirectory(scratch, scratch, partitions=1, location=self.location)
        for batch in range(4):
            self.query.commit(rows(batch * 10, 20))
        self.query.merge(FIRST, "full")
        self.query.commit(rows(40, 20))

    def newest(self, directory: str) -> str:
        """Return the key of the last file of that directory of the store."""
        prefix = f"flights/{FIRST.path}/{directory}/0"
        return max(
            each["Key"] for each in self.s3.list_objects_v2(Bucket=self.name, Prefix=prefix)["Contents"]
        )

    def expire(self, key: str) -> None:
        self.s3.delete_object(Bucket=self.name, Key=key)

    def put_back(self, key: str) -> None:
        """Remove the marker of a deletion, so that the version before it is the current one."""
        (marker,) = self.s3.list_object_versions(Bucket=self.name, Prefix=key)["DeleteMarkers"]
        self.s3.delete_object(Bucket=self.name, Key=key, VersionId=marker["VersionId"])

    def archive(self, key: str) -> None:
        body = self.s3.get_object(Bucket=self.name, Key=key)["Body"].read()
        self.s3.put_object(Bucket=self.name, Key=key, Body=body, StorageClass="GLACIER")


@pytest.fixture
def bucket(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return Bucket(s3_server, tmp_path / "scratch")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Return a function that runs a command, and returns its exit code and its words in one line."""

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(list(arguments))
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return run


@pytest.mark.parametrize(
    ("directory", "problem"),
    [("delta", r"which Spark committed last, needs it"), ("shared", "needs it")],
)
def test_a_file_that_expired_is_named_until_it_is_put_back(bucket, said, directory, problem):
    key = bucket.newest(directory)
    bucket.expire(key)
    code, words = said("verify", bucket.location)
    assert code == ExitCode.PROBLEM and "is missing, and" in words and problem in words
    code, words = said("doctor", bucket.location)
    assert code == ExitCode.PROBLEM and "is missing, and" in words and "state-store repair" in words
    bucket.put_back(key)
    assert "is missing" not in said("doctor", bucket.location)[1]
    assert said("verify", bucket.location)[0] == 0


def test_spark_s_own_file_that_expired_is_named(bucket, said):
    bucket.expire("flights/metadata")
    for command in ("verify", "doctor"):
        code, words = said(command, bucket.location)
        assert code == ExitCode.PROBLEM and "metadata" in words and "put it back" in words


@pytest.mark.parametrize("directory", ["delta", "shared", "snapshot"])
def test_a_file_in_an_archive_is_named_with_what_to_do(bucket, said, directory):
    """Nothing is damaged: the verification did not see the file, and says so."""
    key = bucket.newest(directory)
    bucket.archive(key)
    code, words = said("verify", bucket.location)
    assert code == ExitCode.RETRY
    assert "not read" in words and "archive tier" in words and f"/{directory}/" in words.replace(" ", "")
    days = {"Days": 1, "GlacierJobParameters": {"Tier": "Expedited"}}
    bucket.s3.restore_object(Bucket=bucket.name, Key=key, RestoreRequest=days)
    assert said("verify", bucket.location)[0] == 0
