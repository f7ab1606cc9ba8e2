"""Keeps a full checkpoint of a version without id from outliving the attempt that it was made of."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from state_store.checkpoint.names import DeltaName, SnapshotName, VersionId
from state_store.errors import ConflictError, MissingError
from state_store.storage import Storage

_PIECE_BYTES = 8 << 20


class Fence:
    """Notes what the deltas behind a version say, and finds out whether they still say it.

    Under checkpoint format 1 a batch that runs again replaces its delta and removes the snapshots of its
    version. Whoever makes a snapshot meanwhile publishes it first and looks at the deltas afterwards: either
    the batch finds the snapshot, or the delta is found to be another. Versions with ids are never replaced:
    there nothing is read. Used by one thread.
    """

    def __init__(self, storage: Storage, version: VersionId, deltas: Iterable[DeltaName]) -> None:
        self._storage = storage
        self._version = version
        names = {*deltas, DeltaName(version.number)} if version.checkpoint_id is None else set()
        self._noted = {name.path: self._crc32(name.path) for name in names}

    def check(self) -> None:
        """Raises ConflictError when a delta was replaced since."""
        for path, noted in self._noted.items():
            now = self._crc32(path)
            # A delta that is gone was cleaned up: whoever runs a batch again replaces, and removes nothing.
            if now is not None and now != noted:
                raise ConflictError(
                    f"'{self._storage.location}/{path}' was replaced while a full checkpoint of version "
                    f"{self._version} was made: the batch ran again. Nothing is lost, try again",
                    file=path,
                )

    def check_published(self, snapshot: SnapshotName) -> None:
        """As `check`, after `snapshot` was published; takes it back when it raises ConflictError."""
        try:
            self.check()
        except ConflictError:
            self._storage.delete(snapshot.path)
            raise

    def _crc32(self, path: str) -> int | None:
        """CRC-32 of a stored file; None where there is none."""
        crc, offset = 0, 0
        try:
            while piece := self._storage.read(path, offset, _PIECE_BYTES):
                crc = zlib.crc32(piece, crc)
                offset += len(piece)
                if len(piece) < _PIECE_BYTES:
                    break
        except MissingError:
            return None
        return crc
