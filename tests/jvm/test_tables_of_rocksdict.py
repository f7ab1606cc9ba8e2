"""Tables that the control plane's RocksDB writes, with each compression, read by the data plane's reader."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import rocksdict

from jvm.test_state_model import class_path, walk  # noqa: F401 -- a fixture
from state_store.core.engine.database import DatabaseSettings, rocks_options

pytestmark = pytest.mark.tier("more")

ROWS = 5000


def written(path: Path, compression: str, block_bytes: int) -> Path:
    """Write a table of rows of which most can be compressed, and some of more than a block."""
    options = rocks_options(DatabaseSettings(compression="none", block_bytes=block_bytes), create=True)
    options.set_compression_type(getattr(rocksdict.DBCompressionType, compression)())
    writer = rocksdict.SstFileWriter(options)
    writer.open(str(path))
    for number in range(ROWS):
        noise = hashlib.sha256(b"%d" % number).digest()
        value = noise * (1 + number % 9) if number % 500 else noise + bytes(3 * block_bytes)
        writer[b"\0\0a key of a group %03d, number %06d" % (number // 100, number)] = value
    writer.finish()
    return path


def test_each_compression_is_read_as_rocksdb_reads_it(
    class_path: str,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    directory = tmp_path_factory.mktemp("tables")
    files = [
        written(directory / f"{compression}-{block_bytes}.sst", compression, block_bytes)
        for compression in ("none", "lz4", "lz4hc", "zstd", "snappy")
        for block_bytes in (4 << 10, 32 << 10)
    ]
    plain = files[0].stat().st_size
    assert all(file.stat().st_size < 0.8 * plain for file in files[2:]), "a table is not compressed"
    printed = walk(class_path, tmp_path, "sst.TablesBesideRocks", *files)
    assert printed.count(f"{ROWS} rows of ") == len(files)
