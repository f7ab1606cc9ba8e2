"""A store on storage that fails: each fault by its name, and all faults of honest storage together.

At the end are answers of Azure's service that its stand-in does not give at will.
"""

from __future__ import annotations

import io
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faults import FAULTS, FaultyStorage, at_random, once, slow, storm

from state_store.core.storage.local import LocalStorage
from state_store.core.storage.objects import AzureStorage
from state_store.errors import ConflictError, StorageError, UnknownOutcomeError
from state_store.testing.storage import StorageConformance

from .witness import Witness

HONEST = [name for name, fault in FAULTS.items() if fault.honest]


class TestWithoutFaults(StorageConformance):
    def make_storage(self, tmp_path: Path) -> FaultyStorage:
        return FaultyStorage(LocalStorage(tmp_path / "store"))

    def put_raw(self, storage: FaultyStorage, path: str, data: bytes) -> None:
        storage.inner.write(path, data)

    def get_raw(self, storage: FaultyStorage, path: str) -> bytes | None:
        return storage.inner.read(path) if storage.inner.exists(path) else None


class TestEachFault:
    @pytest.fixture
    def storage(self, tmp_path: Path) -> FaultyStorage:
        storage = FaultyStorage(LocalStorage(tmp_path / "store"))
        storage.write("delta/a", b"0123456789")
        return storage

    def test_an_error_before_the_effect_has_none(self, storage: FaultyStorage) -> None:
        storage.fault = once("write", "delta/b", FAULTS["error-before"].fault)
        with pytest.raises(StorageError, match="delta/b"):
            storage.write("delta/b", b"b")
        assert not storage.exists("delta/b")
        storage.write("delta/b", b"b")

    @pytest.mark.parametrize("operation", ["write", "upload", "delete"])
    def test_an_error_after_the_effect_leaves_the_effect(
        self, storage: FaultyStorage, tmp_path: Path, operation: str
    ) -> None:
        (tmp_path / "b").write_bytes(b"b")
        storage.fault = once(operation, "delta/", FAULTS["error-after"].fault)
        with pytest.raises(UnknownOutcomeError, match="delta/"):
            if operation == "write":
                storage.write("delta/b", b"b")
            elif operation == "upload":
                storage.upload(tmp_path / "b", "delta/b")
            else:
                storage.delete("delta/a")
        assert storage.exists("delta/b") == (operation != "delete")
        assert storage.exists("delta/a") == (operation != "delete")

    @pytest.mark.parametrize("name", ["torn-write", "silently-torn-write"])
    @pytest.mark.parametrize("operation", ["write", "upload"])
    def test_a_torn_write_leaves_a_part(
        self, storage: FaultyStorage, tmp_path: Path, name: str, operation: str
    ) -> None:
        (tmp_path / "b").write_bytes(b"0123456789")
        storage.fault = once(operation, "delta/b", FAULTS[name].fault)
        try:
            if operation == "write":
                storage.write("delta/b", b"0123456789")
            else:
                storage.upload(tmp_path / "b", "delta/b")
            assert name == "silently-torn-write"
        except UnknownOutcomeError:
            assert name == "torn-write"
        assert storage.read("delta/b") == b"01234"
        assert (tmp_path / "b").read_bytes() == b"0123456789"

    @pytest.mark.parametrize(("name", "seen"), [("damaged-read", b"01234\x346789"), ("short-read", b"01234")])
    def test_faults_on_the_way_change_the_bytes_read_and_not_those_stored(
        self, storage: FaultyStorage, tmp_path: Path, name: str, seen: bytes
    ) -> None:
        storage.fault = lambda operation, path: FAULTS[name].fault
        assert storage.read("delta/a") == seen
        storage.download("delta/a", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == seen
        assert storage.inner.read("delta/a") == b"0123456789"

    def test_a_stale_listing_has_the_files_of_before(self, storage: FaultyStorage) -> None:
        storage.list_files("delta")
        storage.write("delta/b", b"")
        storage.fault = once("list", "delta", FAULTS["stale-listing"].fault, nth=2)
        assert len(storage.list_files("delta")) == 2
        storage.delete("delta/a")
        assert len(storage.list_files("delta")) == 2
        assert len(storage.list_files("delta")) == 1

    def test_a_storm_ends_and_a_slow_call_waits(self, storage: FaultyStorage) -> None:
        slept: list[float] = []
        storage.fault = storm(2)
        for _ in range(2):
            with pytest.raises(StorageError, match="503"):
                storage.read("delta/a")
        storage.fault = once("read", "", slow(1.5, slept.append))
        assert storage.read("delta/a") == storage.read("delta/a")
        assert slept == [1.5]

    def test_a_seed_says_everything(self, storage: FaultyStorage) -> None:
        def drawn(seed: int) -> list[object]:
            schedule = at_random(random.Random(seed), 0.5, FAULTS)
            return [schedule(operation, "a") for operation in ("read", "write", "list", "delete") * 20]

        assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.tier("more")
@pytest.mark.parametrize("name", [*HONEST, "all"])
def test_nothing_is_lost_by_any_behaviour_of_honest_storage(tmp_path: Path, name: str) -> None:
    names = HONEST if name == "all" else [name]
    storage = FaultyStorage(LocalStorage(tmp_path / "store"))
    witness = Witness(storage, tmp_path)
    storage.fault = at_random(random.Random(name), 0.1, names)
    for number in range(1, 8):
        newest = witness.commit()
        if number % 2 == 0:
            witness.checkpoint(full=number == 4)
        if number % 3 == 0:
            witness.clean_up(keep=2)
        assert witness.retried(lambda: witness.restored(newest)) == witness.rows[newest]  # noqa: B023
    assert storage.faults
    witness.check(storage.inner, newest=2)


class AzureBlob:
    """A blob, to which other writers complete an upload just before the first of ours are completed."""

    def __init__(self, others: int, *, is_there: bool = True) -> None:
        self.content: bytes | None = b"old" if is_there and not others else None
        self.others = others
        self.is_there = is_there

    def upload_blob(self, data: bytes | io.BufferedReader, *, length: int, overwrite: bool) -> None:
        content = data if isinstance(data, bytes) else data.read()
        assert len(content) == length
        if self.others:
            self.others -= 1
            self.content = b"of the other" if self.is_there else None
            raise azure_error("InvalidBlockList", 400)
        self.content = content

    def get_blob_properties(self) -> Any:
        if self.content is None:
            raise azure_error("BlobNotFound", 404)
        return SimpleNamespace(name="a", metadata={})


def azure_error(code: str, status: int) -> Exception:
    exceptions = pytest.importorskip("azure.core.exceptions")
    error: Exception = exceptions.HttpResponseError("the service's words")
    error.error_code, error.status_code = code, status  # type: ignore[attr-defined]
    return error


def azure_storage(blob: AzureBlob) -> AzureStorage:
    return AzureStorage(SimpleNamespace(get_blob_client=lambda name: blob), "store", "abfs://c/store")


def test_a_new_file_of_another_writer_is_a_conflict_on_azure() -> None:
    """Its completion discards the blocks of every other upload to that name."""
    blob = AzureBlob(others=1)
    with pytest.raises(ConflictError, match=r"snapshot/a\.zip"):
        azure_storage(blob).write("snapshot/a.zip", b"mine")
    assert blob.content == b"of the other"


@pytest.mark.parametrize("uploads", [True, False])
def test_the_later_of_two_replacements_wins_on_azure(tmp_path: Path, uploads: bool) -> None:
    blob, local = AzureBlob(others=2), tmp_path / "local"
    local.write_bytes(b"mine")
    if uploads:
        azure_storage(blob).upload(local, "snapshot/a.zip", overwrite=True)
    else:
        azure_storage(blob).write("snapshot/a.zip", b"mine", overwrite=True)
    assert blob.content == b"mine"


def test_an_upload_that_is_discarded_again_and_again_is_an_error_on_azure() -> None:
    blob = AzureBlob(others=1000, is_there=False)
    with pytest.raises(StorageError, match=r"snapshot/a\.zip.*InvalidBlockList"):
        azure_storage(blob).write("snapshot/a.zip", b"mine")
    assert blob.others > 900
