"""Advice to users when a disk of this machine, or checkpoint storage, fails: it depends on the cause."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from state_store.agent.supervision import as_state_store_error
from state_store.core.engine.database import translated
from state_store.core.storage.contract import with_remedy
from state_store.core.storage.local_disk import local_disk_error, local_disk_errors
from state_store.errors import BusyError, LocalDiskError, OptionError

FREE = "free space"
CAUSES = {
    errno.ENOSPC: FREE,
    errno.EDQUOT: "delete files of this user there, have the quota raised",
    errno.EROFS: "mount that file system so that it can be written",
    errno.EACCES: "let this process's user write there",
    errno.EPERM: "let this process's user write there",
    errno.ENOTDIR: "remove the file that stands where a directory has to be",
    errno.ENOENT: "keep cleaners of temporary files away",
    errno.EIO: "replace that disk",
}


@pytest.mark.parametrize("code", CAUSES)
def test_each_cause_has_a_remedy_of_its_own(code: int) -> None:
    message = local_disk_error(OSError(code, os.strerror(code), "/disk/x")).message
    assert f"{os.strerror(code)} ({CAUSES[code]}" in message
    assert "or use another directory" in message
    assert (FREE in message) == (code == errno.ENOSPC)


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for directory in (file, file / "below"):
        with (
            pytest.raises(LocalDiskError, match="remove the file that stands where a directory has to be"),
            local_disk_errors(),
        ):
            directory.mkdir()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
def test_rocksdbs_errors_of_a_disk_have_the_remedy_of_their_cause(code: int) -> None:
    """Also where RocksDB names its lock."""
    for file in ("/disk/base/LOCK", "/disk/base/000007.sst"):
        with pytest.raises(LocalDiskError) as raised, translated("open", "/disk/base"):
            raise Exception(f"IO error: While open a file: {file}: {os.strerror(code)}")
        assert CAUSES[code] in raised.value.message


def test_a_lock_that_another_process_has_is_no_failure_of_the_disk() -> None:
    with pytest.raises(BusyError), translated("open", "/disk/base"):
        raise Exception("IO error: While lock file: /disk/base/LOCK: Resource temporarily unavailable")


def test_the_jvm_learns_that_a_local_disk_failed_and_not_the_checkpoint() -> None:
    """It advises to check the checkpoint's storage unless the error names the option for local disks."""
    option = "spark.sql.streaming.stateStore.incremental.localDir"
    disk = OSError(errno.EACCES, "Permission denied", "/disk/x")
    for error in (local_disk_error(disk), disk, LocalDiskError("without a cause")):
        assert as_state_store_error(error).option == option
    refused = OptionError("it belongs to another user", option=option)
    assert as_state_store_error(refused) is refused


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("Disk quota exceeded", "delete files of this user there"),
        ("The DiskSpace quota of /state is exceeded: quota = 1024", "hdfs dfsadmin -setSpaceQuota"),
        ("No space left on device", "`state-store files`"),
        ("Read-only file system", "must be mounted"),
        ("Not a directory", "remove the file"),
        (
            "Authentication failure. Check your credentials.",
            "asks for Kerberos: pip install requests-kerberos",
        ),
        ("The operation is not valid for the object's storage class", "archive tier"),
        ("BlobArchived: This operation is not permitted on an archived blob.", "archive tier"),
        ("Operation failed: 'This operation is not permitted on an archived blob.', 409", "archive tier"),
        ("BlobBeingRehydrated: This operation is not permitted", "archive tier"),
        ("UNAVAILABLE: Could not create a OAuth2 access token to authenticate", "application-default login"),
    ],
)
def test_remedies_of_checkpoint_storage(text: str, remedy: str) -> None:
    assert remedy in with_remedy(text)


@pytest.mark.parametrize("failed", ["While lock file: /disk/base/LOCK", "While fsync: a directory"])
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_lacks_what_rocksdb_needs_is_named(failed: str, code: int) -> None:
    text = f"IO error: {failed}: {os.strerror(code)}"
    with pytest.raises(LocalDiskError) as raised, translated("open", "/disk/base"):
        raise Exception(text)
    assert text in raised.value.message
    assert "has to have locks, and to sync directories: use another directory" in raised.value.message


def test_a_database_that_this_process_has_open_is_busy() -> None:
    text = "IO error: lock hold by current process, acquire time 1: /disk/base/LOCK: No locks available"
    with pytest.raises(BusyError), translated("open", "/disk/base"):
        raise Exception(text)
