"""Work of a restore as it is known beforehand: the number of files and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from state_store.core.checkpoint.stored_documents import FULL
from state_store.core.planning.chain import Chain


@dataclass(frozen=True)
class RestoreWork:
    """Files that a restore fetches.

    Attributes:
        files: number of SST files.
        size_bytes: their bytes.
        deltas: how many of them are deltas.
        archives: number of snapshots' archives that are read first.
        table_sizes: bytes of each table of the snapshot; None: all files are as large as the average.
        delta_sizes: bytes of each delta, in the same way.
    """

    files: int
    size_bytes: int
    deltas: int
    archives: int = 1
    table_sizes: Sequence[int] | None = None
    delta_sizes: Sequence[int] | None = None

    @classmethod
    def of_sizes(
        cls, table_sizes: Sequence[int], delta_sizes: Sequence[int], *, archives: int = 1
    ) -> RestoreWork:
        """Return the work on tables and deltas of these sizes, in bytes."""
        return cls(
            len(table_sizes) + len(delta_sizes),
            sum(table_sizes) + sum(delta_sizes),
            len(delta_sizes),
            archives,
            table_sizes,
            delta_sizes,
        )

    @classmethod
    def of_chain(cls, chain: Chain) -> RestoreWork:
        """Return the work on all files of the chain."""
        snapshot = chain.snapshot
        knows_full = snapshot is not None and snapshot.kind != FULL and chain.full_snapshot is not None
        archives = (snapshot is not None) + knows_full
        return cls.of_sizes(
            [file.size_bytes for file in snapshot.files] if snapshot else [],
            [delta.size_bytes for delta in chain.deltas],
            archives=archives,
        )

    @property
    def sizes(self) -> tuple[Sequence[int], Sequence[int]]:
        """Bytes of each table and of each delta."""
        if self.table_sizes is None or self.delta_sizes is None:
            average = self.size_bytes // max(1, self.files)
            return [average] * (self.files - self.deltas), [average] * self.deltas
        return self.table_sizes, self.delta_sizes
