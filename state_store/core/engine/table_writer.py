"""Writer of a table of ordered records, which a database takes in."""

from __future__ import annotations

from pathlib import Path

from state_store.core.engine.failures import translated
from state_store.core.engine.settings import DatabaseSettings, rocks_options


class TableWriter:
    """The table at `path`, which must not exist. Every method raises as `failures.translated`. One thread."""

    def __init__(self, path: Path, settings: DatabaseSettings) -> None:
        import rocksdict

        self.path = path
        self.size_bytes = 0
        """Bytes of the keys and values so far."""
        with translated("write", str(path)):
            self._writer = rocksdict.SstFileWriter(rocks_options(settings))
            self._writer.open(str(path))

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record; its key is greater than those before."""
        try:
            self._writer[key] = value
        except Exception:
            with translated("write", str(self.path)):
                raise
        self.size_bytes += len(key) + len(value)

    def finish(self) -> None:
        """Complete the table; it is not synced."""
        with translated("write", str(self.path)):
            self._writer.finish()
