"""Stored files that are compared with their checksums without a copy on this machine."""

from __future__ import annotations

import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from faults import FaultyStorage, damaged_read, once, short_read, unavailable

from state_store.core.files import transfer
from state_store.core.files.transfer import Wanted, verify_stored
from state_store.core.storage.local import LocalStorage
from state_store.errors import DamagedError, MissingError, StorageError

PATH = "shared/a.sst"
DATA = bytes(range(250)) * 5
BY_SHA = Wanted(PATH, len(DATA), Path("nowhere"), sha256=sha256(DATA).hexdigest())
BY_CRC = replace(BY_SHA, sha256=None, crc32=zlib.crc32(DATA))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PIECE_BYTES", 400)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path)
    storage.write(PATH, DATA)
    return storage


@pytest.mark.parametrize("wanted", [BY_SHA, BY_CRC])
def test_a_right_file_is_read_once_in_pieces(storage: LocalStorage, wanted: Wanted) -> None:
    watched = FaultyStorage(storage, lambda operation, path: None)
    assert verify_stored(watched, wanted)[1] is None
    assert len(watched.calls) == 4


@pytest.mark.parametrize("wanted", [BY_SHA, BY_CRC])
@pytest.mark.parametrize("data", [DATA[:-1] + b"?", b"?" + DATA[1:], DATA[:-1], DATA[:800], b""])
def test_a_damaged_file_is_refused(storage: LocalStorage, wanted: Wanted, data: bytes) -> None:
    storage.write(PATH, data, overwrite=True)
    with pytest.raises(DamagedError, match=r"a\.sst' is damaged: (its|it has)") as raised:
        verify_stored(storage, wanted)
    assert raised.value.file == f"{storage.location}/{PATH}"


def test_a_file_that_came_damaged_is_read_again(storage: LocalStorage) -> None:
    _, warning = verify_stored(FaultyStorage(storage, once("read", PATH, damaged_read)), BY_SHA)
    assert warning is not None
    assert "a.sst' was damaged" in warning


def test_a_piece_that_comes_in_part_is_asked_for_from_there_on(storage: LocalStorage) -> None:
    assert verify_stored(FaultyStorage(storage, once("read", PATH, short_read)), BY_SHA)[1] is None


def test_a_request_that_fails_is_made_again(storage: LocalStorage) -> None:
    assert verify_stored(FaultyStorage(storage, once("read", PATH, unavailable)), BY_SHA)[1] is None
    with pytest.raises(StorageError):
        verify_stored(FaultyStorage(storage, lambda operation, path: unavailable), BY_SHA)


def test_a_file_that_is_gone_is_missing(storage: LocalStorage) -> None:
    storage.delete(PATH)
    with pytest.raises(MissingError):
        verify_stored(storage, BY_SHA)
