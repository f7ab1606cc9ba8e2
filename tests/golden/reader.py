"""A reader of the checkpoint format written from docs/format.md alone: it uses nothing of this project.

Only the standard library, and RocksDB to open what the document says is a RocksDB database.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
import zlib
from pathlib import Path

import rocksdict

DELTA = re.compile(r"(\d{20})_([0-9A-Za-z-]+)_([0-9A-Za-z-]+)_([0-9a-f]{8})\.sst")
META = bytes.fromhex("FFFF6D657461")


def read_version(store: Path, version: int, id_: str, scratch: Path) -> dict[bytes, bytes]:
    """Return the rows of a version, the reserved record left out."""
    database = scratch / "database"
    database.mkdir(parents=True)
    deltas, at = [], (version, id_)
    while not snapshot_path(store, *at).exists():
        path, parent = find_delta(store, *at)
        deltas.insert(0, path)
        if parent == "empty":
            break
        at = (at[0] - 1, parent)
    else:
        unpack_snapshot(store, snapshot_path(store, *at), at, database)
    copies = [Path(shutil.copy(path, scratch)) for path in deltas]
    return rows_of(database, copies, version, id_)


def snapshot_path(store: Path, version: int, id_: str) -> Path:
    return store / "snapshot" / f"{version:020d}_{id_}.zip"


def find_delta(store: Path, version: int, id_: str) -> tuple[Path, str]:
    """Return the delta of a version, its checksum compared, and the id of the version before."""
    for path in (store / "delta").iterdir():
        match = DELTA.fullmatch(path.name)
        if match and (int(match[1]), match[2]) == (version, id_):
            assert zlib.crc32(path.read_bytes()) == int(match[4], 16)
            return path, match[3]
    raise AssertionError(f"no delta of {version} {id_}")


def unpack_snapshot(store: Path, path: Path, of: tuple[int, str], database: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert manifest["format"] == 1
        assert (manifest["version"], manifest["id"]) == of
        assert manifest["kind"] in ("incremental", "full")
        for name in archive.namelist():
            if name != "manifest.json":
                (database / name).write_bytes(archive.read(name))
    for file in manifest["files"]:
        data = (store / file["path"]).read_bytes()
        assert len(data) == file["bytes"]
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
        if manifest["kind"] == "full":
            assert file["path"].startswith(f"shared/{manifest['version']:020d}-")
        (database / file["name"]).write_bytes(data)


def rows_of(database: Path, deltas: list[Path], version: int, id_: str) -> dict[bytes, bytes]:
    db = rocksdict.Rdict(str(database), rocksdict.Options(raw_mode=True))
    if deltas:
        db.ingest_external_file([str(path) for path in deltas])
    rows = dict(db.items())
    db.close()
    meta = json.loads(rows.pop(META))
    assert meta["format"] == 1
    assert (meta["version"], meta["id"]) == (version, id_)
    assert meta["keys"] == len(rows)
    for family in meta["column_families"].values():
        prefix = family["id"].to_bytes(2, "big")
        assert family["keys"] == sum(key.startswith(prefix) for key in rows)
    return rows
