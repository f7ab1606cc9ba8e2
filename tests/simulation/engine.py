"""A model of `engine.database.Database`: the same methods and kinds of files, quick and deterministic.

Tables are sorted lists of records as JSON, and an end that has their checksum and their number: who knows the
end of a file knows which one it is, and who reads its records whether they are whole. The records are one
block. A directory has tables, `CURRENT`, the `MANIFEST-*` that it names (the tables with their levels, oldest
first) and an `OPTIONS-*`, as RocksDB's have.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from types import TracebackType

from simulation.terms import PAGE_BYTES
from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import META_KEY, DeltaMetadata
from state_store.core.engine.database import DatabaseSettings, TableFile, table_number
from state_store.core.engine.table import TRAILER_BYTES, Block
from state_store.errors import BusyError, DamagedError, MissingError

Records = dict[bytes, "bytes | None"]
_OLDEST_LEVEL = 6
_NEVER_PERCENT = 1000


END_BYTES = 24
"""End of each table: the checksum and the number of its records, and a mark."""

_END = b" table\n"


def pack_table(records: Records) -> bytes:
    """Return a table of these records; None is a removal."""
    rows = [[key.hex(), None if value is None else value.hex()] for key, value in sorted(records.items())]
    data = json.dumps(rows).encode()
    return data + b"%08x %08d" % (zlib.crc32(data), len(rows)) + _END


def unpack_table(data: bytes, file: str) -> Records:
    """Return the records. Raises DamagedError."""
    body, end = data[:-END_BYTES], data[-END_BYTES:]
    if not is_end(end) or end[:8] != b"%08x" % zlib.crc32(body):
        place = f"{file} offset 0 size {len(body) - TRAILER_BYTES}"  # as RocksDB says it
        raise DamagedError(f"'{file}' is damaged: its checksum is wrong in {place}", file=file)
    return {
        bytes.fromhex(key): None if value is None else bytes.fromhex(value) for key, value in json.loads(body)
    }


def is_end(end: bytes) -> bool:
    """Return True if a table ends with these bytes."""
    return len(end) >= END_BYTES and end.endswith(_END)


def identity_bytes(path: Path) -> int | None:
    """As `files.sparse.identity_bytes`."""
    return END_BYTES if is_end(path.read_bytes()) else None


def metadata_bytes(end: bytes) -> int | None:
    """As `files.sparse.metadata_bytes`."""
    return END_BYTES if is_end(end) else None


def data_ranges(path: Path, end: int) -> Iterator[tuple[int, int]]:
    """As `files.sparse.data_ranges`: the pages of the model are smaller than those of a file system.

    No table of the model has a zero.
    """
    data = path.read_bytes()[:end]
    for at in range(0, len(data), PAGE_BYTES):
        if data[at : at + PAGE_BYTES].strip(b"\0"):
            yield at, min(end, at + PAGE_BYTES)


def blocks(data: Sized, path: Path) -> list[Block]:
    """As `engine.table.blocks`."""
    return [Block(b"", 0, len(data) - END_BYTES - TRAILER_BYTES)]


def content_of(data: bytes, offset: int, size: int) -> bytes:
    """As `engine.table.content_of`: no block is compressed."""
    return data[offset : offset + size]


def write_delta(
    path: Path, changes: Iterable[tuple[bytes, bytes | None]], metadata: DeltaMetadata
) -> tuple[int, int]:
    """As `engine.database.write_delta`: the bytes and the CRC-32 of the delta."""
    data = pack_table({**dict(changes), META_KEY: metadata.to_json()})
    path.write_bytes(data)
    return len(data), zlib.crc32(data)


def records_of(directory: Path, files: Mapping[Path, bytes]) -> dict[bytes, bytes]:
    """Return the rows of the database in `directory`, with the reserved record.

    The content of these `files` is as given, and not on the disk.
    """
    with ModelDatabase(directory, DatabaseSettings()) as database:
        database.given_files = files
        return dict(database.scan())


def version_of(record: bytes | None) -> VersionId:
    """Return the version that a reserved record says it is of. Raises DamagedError if there is none."""
    if record is None:
        raise DamagedError("the reserved record is missing")
    return DeltaMetadata.from_json(record, file="a table").version_id


class ModelDatabase:
    """See the module."""

    def __init__(self, directory: Path, settings: DatabaseSettings, *, create: bool = False) -> None:
        self.directory = directory
        self.given_files: Mapping[Path, bytes] = {}
        self._may_rewrite_all = settings.size_amplification_percent < _NEVER_PERCENT
        if create:
            self._tables: list[tuple[str, int]] = []
            self._next = 4
            (directory / "OPTIONS-000003").write_bytes(
                b"  rocksdb_version=9.8.4\n  compression=kNoCompression\n"
            )
            self._save()
            return
        try:
            manifest = (directory / "CURRENT").read_text("ascii").strip()
            described = json.loads((directory / manifest).read_bytes())
        except (FileNotFoundError, ValueError) as error:
            raise DamagedError(f"'{directory}' is damaged: {error}", file=str(directory)) from error
        self._tables = [(name, level) for name, level in described["tables"]]
        self._next = described["next"]
        for name, _ in self._tables:
            if not (directory / name).is_file():
                raise MissingError(f"'{directory / name}' does not exist", file=str(directory / name))

    def __enter__(self) -> ModelDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        pass

    def ingest(self, paths: Sequence[Path]) -> list[str]:
        tables = [sorted(unpack_table(path.read_bytes(), str(path))) for path in paths]
        are_apart = all(before[-1] < after[0] for before, after in itertools.pairwise(tables))
        level = _OLDEST_LEVEL if are_apart and not self._tables else 0
        names = [self._new_name() for _ in paths]
        for path, name in zip(paths, names, strict=True):
            path.rename(self.directory / name)
            self._tables.append((name, level))
        self._save()
        return names

    def compact_runs(self, *, deadline: Callable[[], bool] = lambda: False) -> None:
        """Young tables become one; all do when the young ones have half the size of the others."""
        young = [name for name, level in self._tables if level == 0]
        old = [name for name, level in self._tables if level]
        if self._may_rewrite_all and 2 * self._size(young) >= self._size(old):
            self._rewrite(deadline, into=1, first=0)
        elif len(young) > 1:
            self._rewrite(deadline, into=1, first=len(old))

    def compact_newest(self, count: int, *, deadline: Callable[[], bool] = lambda: False) -> None:
        self._rewrite(deadline, into=1, first=len(self._tables) - count)

    def compact_all(self, *, deadline: Callable[[], bool] = lambda: False) -> None:
        self._rewrite(deadline, into=2, first=0)

    def files(self) -> list[TableFile]:
        found = [
            TableFile(name, level, (self.directory / name).stat().st_size) for name, level in self._tables
        ]
        return sorted(found, key=lambda file: table_number(file.name))

    def entries(self) -> int:
        return sum(self._count(name) for name, _ in self._tables)

    def runs(self) -> list[list[TableFile]]:
        """Each young table is a run, the old ones are one."""
        files = {file.name: file for file in self.files()}
        young = [[files[name]] for name, level in reversed(self._tables) if level == 0]
        old = [files[name] for name, level in self._tables if level]
        return [*young, old] if old else young

    def get(self, key: bytes) -> bytes | None:
        for name, _ in reversed(self._tables):
            records = self._records(name)
            if key in records:
                return records[key]
        return None

    def metadata(self) -> bytes | None:
        return self.get(META_KEY)

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        for key, value in sorted(self._merged([name for name, _ in self._tables]).items()):
            if value is not None and key >= start and (end is None or key < end):
                yield key, value

    def _records(self, name: str) -> Records:
        path = self.directory / name
        return unpack_table(self.given_files.get(path) or path.read_bytes(), str(path))

    def _count(self, name: str) -> int:
        """Return the number of records, as the end of a table tells it: that reads none of them."""
        path = self.directory / name
        end = path.read_bytes()[-END_BYTES:]
        if not is_end(end) or not end[9:17].isdigit():
            raise DamagedError(f"'{path}' is damaged: it has no end", file=str(path))
        return int(end[9:17])

    def _merged(self, names: Iterable[str]) -> Records:
        records: Records = {}
        for name in names:
            records |= self._records(name)
        return records

    def _size(self, names: Iterable[str]) -> int:
        return sum((self.directory / name).stat().st_size for name in names)

    def _rewrite(self, deadline: Callable[[], bool], *, into: int, first: int) -> None:
        """Tables from number `first` on become at most `into` tables."""
        if deadline():
            raise BusyError(
                f"the compaction of '{self.directory}' was given up: it took longer than mergeTimeout"
            )
        records = self._merged(name for name, _ in self._tables[first:])
        if first == 0:
            records = {key: value for key, value in records.items() if value is not None}
        keys = sorted(records)
        size = max(1, -(-len(keys) // into))
        parts = [keys[at : at + size] for at in range(0, len(keys), size)]
        kept = self._tables[:first]
        for part in parts:
            name = self._new_name()
            (self.directory / name).write_bytes(pack_table({key: records[key] for key in part}))
            kept.append((name, _OLDEST_LEVEL if first == 0 else 0))
        self._tables = kept
        self._save()

    def _new_name(self) -> str:
        name = f"{self._next:06d}.sst"
        self._next += 1
        return name

    def _save(self) -> None:
        manifest = f"MANIFEST-{self._next:06d}"
        self._next += 1
        described = {"next": self._next, "tables": self._tables}
        (self.directory / manifest).write_text(json.dumps(described))
        (self.directory / "CURRENT").write_text(f"{manifest}\n")


class ModelTableWriter:
    """As `engine.database.TableWriter`."""

    def __init__(self, path: Path, settings: DatabaseSettings) -> None:
        self.path = path
        self.size_bytes = 0
        self._records: Records = {}

    def put(self, key: bytes, value: bytes) -> None:
        self._records[key] = value
        self.size_bytes += len(key) + len(value)

    def finish(self) -> None:
        self.path.write_bytes(pack_table(self._records))
