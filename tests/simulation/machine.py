"""Machine of a history: a model in place of RocksDB, files in memory, and nothing real."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from simulation.engine import (
    END_BYTES,
    ModelDatabase,
    ModelTableWriter,
    blocks,
    content_of,
    data_ranges,
    identity_bytes,
    metadata_bytes,
)
from simulation.terms import LARGE_BYTES, PAGE_BYTES
from simulation.turns import is_simulated
from state_store.core.runtime import SystemRuntime

_OF_THE_MACHINE = ("wall_ms", "monotonic_s", "uptime_ms", "random_bytes", "sleep", "start")


@contextlib.contextmanager
def machine() -> Iterator[Path]:
    """For the time of a history; gives a directory for its files."""
    shared = Path("/dev/shm")  # where files take no disk
    room = str(shared) if shared.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=room) as name, _model_engine(), no_system():
        yield Path(name)


@contextlib.contextmanager
def _model_engine() -> Iterator[None]:
    """Put the model in the place of RocksDB, and let files of its size count as large."""
    sizes = {
        "core.snapshots.restore.MIN_SPARSE_DELTA_BYTES": 600,
        "core.files.sparse._MIN_END_BYTES": END_BYTES,
        "core.files.sparse._RECORD_BYTES": 100,
        "core.files.transfer.PART_BYTES": LARGE_BYTES,
        "agent.lazy.prefetch.PART_BYTES": LARGE_BYTES,
        "core.files.sparse.PAGE_BYTES": PAGE_BYTES,
        "agent.lazy.local_file.PAGE_BYTES": PAGE_BYTES,
        "agent.lazy.prefetch.PAGE_BYTES": PAGE_BYTES,
        "agent.lazy.remote_bases.PAGE_BYTES": PAGE_BYTES,
        "agent.lazy.file_cache.PAGE_BYTES": PAGE_BYTES,
        "agent.lazy.file_cache.MIN_BYTES": 16 * PAGE_BYTES,
        "core.snapshots.streamed_merge.MIN_TABLE_BYTES": 200,
        "core.snapshots.streamed_merge.MIN_WINDOW_BYTES": 100,
        "core.snapshots.streamed_merge._ALIGNED": 1,
        "core.snapshots.streamed_merge._MIN_RATIO": 0,  # young runs are large beside so few rows
    }
    ends = {
        "core.snapshots.merge.identity_bytes": identity_bytes,
        "core.files.sparse.metadata_bytes": metadata_bytes,
        "agent.lazy.local_file.metadata_bytes": metadata_bytes,
        "agent.lazy.local_file.data_ranges": data_ranges,
        "core.snapshots.streamed_merge.blocks": blocks,
        "core.snapshots.streamed_merge.content_of": content_of,
        "core.snapshots.streamed_merge.TableWriter": ModelTableWriter,
    }
    with contextlib.ExitStack() as stack:
        for name, replacement in {**sizes, **ends}.items():
            stack.enter_context(mock.patch(f"state_store.{name}", replacement))
        for module in (
            "core.snapshots.restore",
            "core.snapshots.merge",
            "core.snapshots.streamed_merge",
            "data.embedded",
            "data.maintenance.verification",
        ):
            stack.enter_context(mock.patch(f"state_store.{module}.Database", ModelDatabase))
        yield


@contextlib.contextmanager
def no_system() -> Iterator[None]:
    """A simulated thread that takes something from the machine fails. Others, which a test before may have
    left, do not.
    """
    with contextlib.ExitStack() as stack:
        for name in _OF_THE_MACHINE:
            refusing = _refusing(name, getattr(SystemRuntime, name))
            stack.enter_context(mock.patch.object(SystemRuntime, name, refusing))
        yield


def _refusing(name: str, of_machine: Callable[..., object]) -> Callable[..., object]:
    def refuse(*arguments: object, **named: object) -> object:
        assert not is_simulated(), f"the machine's {name} is used in a simulation"
        return of_machine(*arguments, **named)

    return refuse
