"""Commands that write, on a full disk: they name the directory, leave nothing that looks whole, and go on."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mounted_disks import mounted_disk

import state_store
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import MARKER
from state_store.data import migration
from state_store.errors import DamagedError, StorageError

FLIGHTS = Path(__file__).resolve().parents[1] / "golden" / "states" / "flights"
COPIES = {
    "cp": ["cp"],
    "repartition": ["repartition", "--partitions", "4"],
    "running": ["repartition", "--partitions", "4", "--running"],
    "import": ["import"],
    "export": ["export"],
    "migrate": ["migrate", "--to", "rocksdb"],
}
IN_PLACE = {"full": ["full"], "repair": ["repair", "--apply"]}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 60 MiB."""
    with mounted_disk(tmp_path / "small", "60m") as path:
        yield path


def fill(disk: Path, left_kib: int) -> Path:
    filler = disk / "filler"
    size = os.statvfs(disk)
    with filler.open("wb", buffering=0) as file:
        file.write(bytes(max(0, size.f_bavail * size.f_frsize - (left_kib << 10))))
    return filler


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FLIGHTS, tmp_path / "source"))


def command(name: str, source: Path, target: Path) -> list[str]:
    if name in IN_PLACE:
        first, *options = IN_PLACE[name]
        return [first, str(target), *options]
    first, *options = COPIES[name]
    rows = [str(source.parent / "exported")] if name == "import" else []
    return [first, str(source), *rows, str(target), *options]


def check_whole(name: str, source: Path, target: Path) -> None:
    if name == "running":
        assert main(command("repartition", source, target)) == ExitCode.OK
    if name == "export":
        assert (target / "_SUCCESS").exists()
    elif name != "migrate":
        assert main(["verify", str(target)]) == ExitCode.OK


@pytest.mark.tier("more")
@pytest.mark.parametrize("name", [*COPIES, *IN_PLACE])
@pytest.mark.parametrize("left_kib", [0, 4, 24])
def test_a_full_target_is_named_and_the_next_start_goes_on(
    name: str, left_kib: int, small_disk: Path, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = small_disk / "target"
    if name == "import":
        state_store.export(source, source.parent / "exported")
    if name in IN_PLACE:
        shutil.copytree(FLIGHTS, target)
        (target / "state/0/0/shared").mkdir()
        (target / "state/0/0/shared/00000000000000000001-00000000-1.sst").write_bytes(
            b"left by a dead writer"
        )
    filler = fill(small_disk, left_kib)
    code = main(command(name, source, target))
    error = "".join(capfd.readouterr())
    if code != ExitCode.OK:  # some need less
        assert code == ExitCode.RETRY
        assert "No space left on device" in error and "free space" in error and str(target) in error
        assert name in IN_PLACE or not (target / "_SUCCESS").exists()
        assert name in IN_PLACE or not list(target.glob("commits/*[0-9]")) or (target / MARKER).exists()
    else:
        assert left_kib
    filler.unlink()
    if code != ExitCode.OK:
        assert main(command(name, source, target)) == ExitCode.OK
    check_whole(name, source, target)


@pytest.mark.tier("more")
@pytest.mark.parametrize("name", [*COPIES, "full"])
@pytest.mark.parametrize("left_kib", [16, 40])
def test_a_full_disk_of_temporary_files_is_named_and_the_next_start_goes_on(
    name: str,
    left_kib: int,
    small_disk: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    target, temporary = source.parent / "target", small_disk / "temporary"
    if name == "import":
        state_store.export(source, source.parent / "exported")
    if name == "full":
        shutil.copytree(FLIGHTS, target)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    filler = fill(small_disk, left_kib)
    code = main(command(name, source, target))
    error = "".join(capfd.readouterr())
    if code != ExitCode.OK:  # some need less
        assert code == ExitCode.RETRY
        assert str(temporary) in error and "TMPDIR" in error
        assert not list(temporary.iterdir())
    filler.unlink()
    if code != ExitCode.OK:
        assert main(command(name, source, target)) == ExitCode.OK
    check_whole(name, source, target)


def full_disk(*_: object, **__: object) -> Any:
    """Raise the error of a write to a file that is open: it names none."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_error_of_a_local_disk_that_names_no_file_names_the_directory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(Path, "write_bytes", full_disk)
    assert main(["full", str(source)]) == ExitCode.RETRY
    error = capsys.readouterr().err
    assert f"the disk of '{temporary}/" in error and "a disk of this machine" not in error


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda store: store.commit(), id="commit"),
        pytest.param(lambda store: store.load(VersionId(1, store.versions()[0].checkpoint_id)), id="load"),
        pytest.param(lambda store: store.checkpoint(full=True), id="checkpoint"),
    ],
)
def test_an_embedded_store_names_the_directory_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Any], object]
) -> None:
    with state_store.EmbeddedStore.open(tmp_path / "store", has_checkpoint_ids=True) as store:
        store.put(b"key", b"value")
        store.commit()
        store.put(b"key", b"other")
        root = store._context.workspace.root
        monkeypatch.setattr(type(store._context.workspace), "scratch", full_disk)
        monkeypatch.setattr(type(store._context.workspace), "new_base", full_disk)
        with pytest.raises(StorageError, match=f"the disk of '{root}' is full"):
            use(store)
        monkeypatch.undo()


def test_a_full_disk_of_a_migration_is_no_damage(tmp_path: Path) -> None:
    """Spark says the same of a store whose files are damaged and of one that it has no room to load."""

    class Program:
        def events(self) -> list[dict[str, Any]]:
            return [{"error": {"kind": "damaged", "message": f"cannot load: {os.strerror(errno.ENOSPC)}"}}]

    with pytest.raises(StorageError, match=r"free space in '/tmp/a' or '/target', or set TMPDIR"):
        list(migration._followed(Program(), None, ["/tmp/a", "/target"]))  # type: ignore[arg-type]


def test_damage_that_a_migration_meets_stays_damage() -> None:
    class Program:
        def events(self) -> list[dict[str, Any]]:
            return [{"error": {"kind": "damaged", "message": "cannot load: a checksum is wrong"}}]

    with pytest.raises(DamagedError, match=r"a checksum is wrong$"):
        list(migration._followed(Program(), None, ["/tmp/a"]))  # type: ignore[arg-type]
