"""Delta files written without a JVM: sorted records and the reserved record at the end (docs/format.md)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from state_store.core.checkpoint.metadata import META_KEY, DeltaMetadata
from state_store.core.engine.failures import translated
from state_store.core.engine.settings import DatabaseSettings, rocks_options
from state_store.core.files.checksums import crc32_of


def write_delta(
    path: Path,
    records: Iterable[tuple[bytes, bytes | None]],
    metadata: DeltaMetadata,
    settings: DatabaseSettings | None = None,
) -> tuple[int, int]:
    """Writes `path`, which must not exist, from records in strictly ascending order of keys (None: the key is
    removed). Gives bytes and CRC-32 of the file. Not synced: storing it does that.
    """
    import rocksdict

    with translated("write", str(path)):
        writer = rocksdict.SstFileWriter(rocks_options(settings or DatabaseSettings()))
        writer.open(str(path))
        for key, value in records:
            if value is None:
                del writer[key]
            else:
                writer[key] = value
        writer[META_KEY] = metadata.to_json()
        writer.finish()
    return path.stat().st_size, crc32_of(path)
