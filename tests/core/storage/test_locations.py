"""Secrets in URIs: kept by the process, and shown nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_store.core.storage import open_storage
from state_store.core.storage.open import with_secret, without_secret
from state_store.errors import OptionError, StorageError, masked

SECRETS = [
    ("s3://key:TOPSECRET@bucket/dir", "s3://key:***@bucket/dir"),
    ("s3a://key:TOP%2FSECRET@bucket/a@b", "s3a://key:***@bucket/a@b"),
    ("abfs://account:TOPSECRET+a==@container/dir", "abfs://account:***@container/dir"),
    ("webhdfs://user:TOPSECRET@host:9870/dir", "webhdfs://user:***@host:9870/dir"),
    ("https://:TOPSECRET@host/", "https://:***@host/"),
]


@pytest.mark.parametrize(("given", "shown"), SECRETS)
def test_a_secret_is_kept_apart_from_its_location(given: str, shown: str) -> None:
    assert without_secret(given) == shown
    assert without_secret(shown) == shown
    assert with_secret(shown) == given
    assert with_secret(f"{shown}/below") == f"{given}/below"


@pytest.mark.parametrize(
    "location",
    [
        "/data/a:b@c",
        "hdfs://node:8020/a@b",
        "hdfs://node:8020/a:b@c",
        "s3://bucket/a:b@c",
        "abfss://container@account.dfs.core.windows.net/a:b@c",
        "abfs://host:10000/container/a@b",
        "file:///a:b@c",
    ],
)
def test_other_locations_stay_as_they_are(location: str) -> None:
    assert without_secret(location) == location
    assert with_secret(location) == location


@pytest.mark.parametrize(
    "text",
    [
        "cannot read 's3://key:TOP/SECRET@bucket/a': it is there, s3://key:TOPSECRET@bucket is not",
        "url: /bucket?sv=1&sig=TOPSECRET&se=2",
        "AccountName=a;AccountKey=TOPSECRET==;BlobEndpoint=http://127.0.0.1",
    ],
)
def test_a_message_shows_no_secret(text: str) -> None:
    assert "SECRET" not in masked(text)
    error = StorageError(text, file=text)
    assert "SECRET" not in str(error) + str(error.to_json())


def test_a_secret_with_a_slash_is_refused_with_the_fix() -> None:
    with pytest.raises(OptionError, match=r"has a slash.*%2F") as raised:
        without_secret("s3://key:TOP/SECRET@bucket/dir")
    assert "SECRET" not in raised.value.message


def test_a_secret_of_another_process_is_missing() -> None:
    with pytest.raises(OptionError, match="give the secret"):
        open_storage("s3://somebody:***@bucket/dir")


def test_a_path_with_stars_is_a_path(tmp_path: Path) -> None:
    assert open_storage(f"{tmp_path}/a:***").location == f"{tmp_path}/a:***"
