"""Mounts that may show old attributes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_store.core.storage import local, open_storage
from state_store.core.storage.local import cached_mount, warn_of_cached_attributes

LINE = "{number} 1 0:{number} / {point} rw,relatime shared:1 - {kind} server:/export rw,vers=4.2{options}\n"


def mountinfo(*mounted: tuple[str, str, str]) -> str:
    return "".join(
        LINE.format(number=number, point=point, kind=kind, options=options)
        for number, (point, kind, options) in enumerate([("/", "ext4", ""), *mounted], 30)
    )


@pytest.mark.parametrize(
    ("mounted", "expected"),
    [
        ([], None),
        ([("/data", "ext4", "")], None),
        ([("/data", "nfs4", "")], "/data"),
        ([("/data", "nfs", ",acregmin=3,acregmax=60")], "/data"),
        ([("/data", "nfs4", ",noac")], None),
        ([("/data", "nfs4", ",acregmin=0,acregmax=0,acdirmin=0,acdirmax=0,lookupcache=none")], None),
        ([("/data", "nfs4", ",acregmin=0,acregmax=0,acdirmin=0,acdirmax=0")], "/data"),
        ([("/dat", "nfs4", "")], None),
        ([("/data", "nfs4", ""), ("/data/local", "xfs", "")], None),
        ([("/data\\040x", "nfs4", "")], None),
    ],
)
def test_an_nfs_with_attribute_caching_is_found(mounted: list, expected: str | None) -> None:
    assert cached_mount(Path("/data/local/checkpoint"), mountinfo(*mounted)) == expected


@pytest.mark.parametrize(
    ("name", "mounted"), [("/data x", "/data\\040x"), ("/größe", "/größe"), ("/a\\x41", "/a\\134x41")]
)
def test_a_mount_with_any_name_is_found(name: str, mounted: str) -> None:
    assert cached_mount(Path(f"{name}/checkpoint"), mountinfo((mounted, "nfs4", ""))) == name


def test_the_log_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listing = tmp_path / "mountinfo"
    listing.write_text(mountinfo((str(tmp_path), "nfs4", "")))
    monkeypatch.setattr(local, "_LOGGED", set())
    for _ in range(2):
        warn_of_cached_attributes(tmp_path / "store", listing)
    (said,) = caplog.messages
    assert f"'{tmp_path}' is an NFS that caches attributes" in said
    warn_of_cached_attributes(tmp_path, tmp_path / "there is none")


def test_a_local_storage_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    monkeypatch.setattr("state_store.core.storage.open.warn_of_cached_attributes", seen.append)
    open_storage(f"file:{tmp_path}")
    assert seen == [tmp_path]
