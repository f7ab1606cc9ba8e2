"""Local storage: the contract, the order in which bytes reach the disk, and the files after a failure."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from state_store.core.storage import local_disk
from state_store.core.storage.local import LocalStorage
from state_store.errors import ConflictError, MissingError, StorageError
from state_store.testing.storage import KilledWriters


class TestLocalStorage(KilledWriters):
    def uri(self, storage: LocalStorage) -> str:
        return storage.location

    def make_storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(tmp_path / "deep" / "store")

    def put_raw(self, storage: LocalStorage, path: str, data: bytes) -> None:
        target = storage.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def get_raw(self, storage: LocalStorage, path: str) -> bytes | None:
        target = storage.directory / path
        return target.read_bytes() if target.exists() else None


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "store")


class TestHardLinks:
    def test_upload_and_download_share_the_bytes(self, storage: LocalStorage, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.write_bytes(b"abc")
        storage.upload(source, "shared/a")
        storage.download("shared/a", tmp_path / "got")
        inode = source.stat().st_ino
        assert (storage.directory / "shared/a").stat().st_ino == inode
        assert (tmp_path / "got").stat().st_ino == inode

    def test_a_file_that_is_missing_leaves_the_file_of_another_thread(self, tmp_path: Path) -> None:
        (tmp_path / "target").write_bytes(b"another's")
        with pytest.raises(FileNotFoundError):
            local_disk.link_or_copy(tmp_path / "missing", tmp_path / "target")
        assert (tmp_path / "target").read_bytes() == b"another's"

    def test_a_download_that_meets_a_replacement_is_no_missing_file(
        self, storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Linux finds the name, and then refuses to link a file that has lost its last name meanwhile."""
        storage.write("snapshot/a.zip", b"old")
        link = os.link

        def link_late(source: local_disk.StrPath, target: local_disk.StrPath) -> None:
            monkeypatch.setattr(os, "link", link)
            with open(source, "rb") as old:
                storage.write("snapshot/a.zip", b"new", overwrite=True)
                link(f"/proc/self/fd/{old.fileno()}", target, src_dir_fd=old.fileno())  # follows the symlink

        monkeypatch.setattr(os, "link", link_late)
        storage.download("snapshot/a.zip", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == b"new"
        assert os.link is link

    @pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
    def test_a_file_system_without_hard_links_gets_copies_and_the_log_says_so_once(
        self,
        code: int,
        storage: LocalStorage,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def refuse(source: Path, target: Path) -> None:
            raise OSError(code, os.strerror(code), str(source), None, str(target))

        monkeypatch.setattr(os, "link", refuse)
        local_disk._WITHOUT_LINKS.clear()
        source = tmp_path / "source"
        source.write_bytes(b"abc")
        for name in ("shared/a", "shared/b"):
            storage.upload(source, name)
            storage.write(name + ".json", b"{}")
            with pytest.raises(ConflictError):
                storage.upload(source, name)
            with pytest.raises(ConflictError):
                storage.write(name + ".json", b"other")
        storage.download("shared/a", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == storage.read("shared/b") == b"abc"
        assert [entry.name for entry in storage.list_files("shared")] == ["a", "a.json", "b", "b.json"]
        (said,) = caplog.messages
        assert "has no hard links: files are copied" in said

    def test_another_file_system_gets_a_copy(self, storage: LocalStorage, other_disk: Path) -> None:
        source = other_disk / "source"
        source.write_bytes(b"abc")
        storage.upload(source, "shared/a")
        storage.upload(source, "shared/a", overwrite=True)
        with pytest.raises(ConflictError):
            storage.upload(source, "shared/a")
        assert storage.read("shared/a") == b"abc"
        assert [entry.name for entry in storage.list_files("shared")] == ["a"]


class _Trace:
    """Notes, in order, which files were synced and which names appeared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        real_fsync, real_link = os.fsync, os.link
        real_rename = Path.rename

        def fsync(descriptor: int) -> None:
            self.events.append(("sync", _plain(Path(f"/proc/self/fd/{descriptor}").readlink())))
            real_fsync(descriptor)

        def link(source: str | Path, target: str | Path) -> None:
            real_link(source, target)
            self.events.append(("name", _plain(Path(target))))

        def rename(source: Path, target: Path) -> Path:
            self.events.append(("name", _plain(target)))
            return real_rename(source, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "link", link)
        monkeypatch.setattr(Path, "rename", rename)


def _plain(path: Path) -> str:
    """Return the last part of the path, `*.tmp` for a temporary name."""
    return "*.tmp" if path.suffix == ".tmp" else path.name


class TestDurability:
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_bytes_are_synced_before_the_name_and_the_directory_after(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, overwrite: bool
    ) -> None:
        storage.write("delta/first", b"")
        trace = _Trace(monkeypatch)
        storage.write("delta/a", b"abc", overwrite=overwrite)
        assert trace.events == [("sync", "*.tmp"), ("name", "a"), ("sync", "delta")]

    def test_an_upload_costs_two_syncs_and_a_link(
        self, storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage.write("delta/first", b"")
        (tmp_path / "source").write_bytes(b"abc")
        trace = _Trace(monkeypatch)
        storage.upload(tmp_path / "source", "delta/a")
        assert trace.events == [("sync", "source"), ("name", "a"), ("sync", "delta")]

    @pytest.mark.parametrize("how", ["upload", "write"])
    def test_a_name_that_is_there_already_is_synced_before_it_is_told(
        self, storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        storage.write("delta/a", b"abc")
        (tmp_path / "source").write_bytes(b"abc")
        trace = _Trace(monkeypatch)
        with pytest.raises(ConflictError):
            if how == "upload":
                storage.upload(tmp_path / "source", "delta/a")
            else:
                storage.write("delta/a", b"abc")
        assert trace.events[-1] == ("sync", "delta")

    def test_new_directories_are_synced_into_their_parents(
        self, storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "source").write_bytes(b"abc")
        trace = _Trace(monkeypatch)
        storage.upload(tmp_path / "source", "delta/a")
        assert trace.events[:3] == [("sync", "source"), ("sync", tmp_path.name), ("sync", "store")]

    @pytest.mark.parametrize("failing", ["fsync", "link"])
    def test_a_failure_leaves_nothing(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        storage.write("delta/first", b"")

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, failing, fail)
        with pytest.raises(StorageError, match=r"delta/a.*No space left"):
            storage.write("delta/a", b"abc")
        assert [entry.name for entry in storage.list_files("delta")] == ["first"]

    def test_a_failed_replacement_keeps_the_old(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage.write("delta/a", b"old")

        def fail(_: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(StorageError, match="Input/output"):
                storage.write("delta/a", b"new", overwrite=True)
        assert storage.read("delta/a") == b"old"
        assert [entry.name for entry in storage.list_files("delta")] == ["a"]

    def test_short_writes_are_continued(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
        local_disk.write_durable(tmp_path / "a", b"0123456789", overwrite=False)
        assert (tmp_path / "a").read_bytes() == b"0123456789"


class TestDirectoriesThatCannotBeSynced:
    """CIFS before Linux 4.17, WSL's DrvFs and some FUSE file systems sync files alone."""

    @pytest.fixture(autouse=True)
    def forget_warnings(self) -> None:
        local_disk._UNSYNCED.clear()

    def refuse(self, monkeypatch: pytest.MonkeyPatch, code: int, *, directories: bool) -> None:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode) is directories:
                raise OSError(code, os.strerror(code))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF])
    def test_they_are_used_and_the_log_says_so_once(
        self,
        storage: LocalStorage,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        code: int,
    ) -> None:
        self.refuse(monkeypatch, code, directories=True)
        (tmp_path / "source").write_bytes(b"abc")
        storage.upload(tmp_path / "source", "delta/a")
        storage.write("delta/b", b"def")
        storage.write("delta/b", b"ghi", overwrite=True)
        with pytest.raises(ConflictError):
            storage.write("delta/a", b"other")
        assert (storage.read("delta/a"), storage.read("delta/b")) == (b"abc", b"ghi")
        (warning,) = [
            record.getMessage() for record in caplog.records if "cannot sync" in record.getMessage()
        ]
        assert str(storage.directory.parent) in warning

    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
    def test_another_failure_of_a_directory_is_an_error_that_names_it(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        storage.write("delta/first", b"")
        self.refuse(monkeypatch, code, directories=True)
        with pytest.raises(StorageError, match=f"delta/a.*{os.strerror(code)}"):
            storage.write("delta/a", b"abc")

    @pytest.mark.parametrize("how", ["upload", "write"])
    def test_a_file_that_cannot_be_synced_is_an_error(
        self, storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        (tmp_path / "source").write_bytes(b"abc")
        self.refuse(monkeypatch, errno.EINVAL, directories=False)
        with pytest.raises(StorageError, match=r"delta/a.*Invalid argument"):
            if how == "upload":
                storage.upload(tmp_path / "source", "delta/a")
            else:
                storage.write("delta/a", b"abc")
        assert storage.list_files("delta") == []


class TestErrors:
    def test_a_file_in_place_of_a_directory_is_named(self, storage: LocalStorage) -> None:
        storage.directory.parent.joinpath("store").write_bytes(b"")
        with pytest.raises(StorageError, match="store"):
            storage.write("delta/a", b"")

    def test_a_directory_in_place_of_a_file_is_named(self, storage: LocalStorage) -> None:
        (storage.directory / "delta" / "a").mkdir(parents=True)
        with pytest.raises((StorageError, ConflictError), match="delta/a"):
            storage.write("delta/a", b"", overwrite=True)
        with pytest.raises(StorageError, match="delta/a"):
            storage.read("delta/a")

    def test_a_directory_that_vanished_is_made_again_by_a_write(self, storage: LocalStorage) -> None:
        storage.write("delta/a", b"1")
        shutil.rmtree(storage.directory)
        assert storage.list_files("delta") == []
        with pytest.raises(MissingError, match="delta/a"):
            storage.read("delta/a")
        storage.write("delta/a", b"2")
        assert storage.read("delta/a") == b"2"
