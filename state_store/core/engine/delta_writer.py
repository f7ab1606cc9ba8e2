"""Delta files written without a JVM: sorted records and the reserved record at the end (docs/format.md)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from state_store.core.checkpoint.stored_documents import META_KEY, DeltaMetadata
from state_store.core.engine.failures import translated
from state_store.core.engine.settings import DatabaseSettings, rocks_options
from state_store.core.files.checksums import crc32_of


def write_delta(
    path: Path,
    records: Iterable[tuple[bytes, bytes | None]],
    metadata: DeltaMetadata,
    settings: DatabaseSettings | None = None,
) -> tuple[int, int]:
    """Write a delta; it is not synced, since storing it does that.

    Args:
        path: the file, which must not exist.
        records: keys, in strictly ascending order, and values (None: the key is removed).
        metadata: the reserved record.
        settings: how tables are written; None: the default.

    Returns:
        The bytes and the CRC-32 of the file.
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
