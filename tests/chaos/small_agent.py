"""Start an agent for which the states of the chaos runs are large: constants in bytes are smaller.

A life puts a program beside its files that calls `main`, and the executors start their agents by it.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import state_store
from state_store.agent.lazy import file_cache
from state_store.core.files import sparse
from state_store.core.snapshots import restore, streamed_merge

PAGES = 16
"""Pages of 4 KiB that the cache of an executor has: the states of a life have some hundreds."""


def program(room: Path) -> Path:
    """Write the program into a directory, and return it."""
    path = room / "small-agent"
    if not path.exists():
        path.write_text(f"#!{sys.executable}\nfrom chaos import small_agent\n\nsmall_agent.main()\n")
        path.chmod(0o755)
    return path


def main() -> None:
    """Run the script of an agent, which is named with its arguments on the command line."""
    assert sys.argv[3] == state_store.__version__, "the agent would take its code from the jar"
    file_cache.MIN_BYTES = PAGES * file_cache.PAGE_BYTES
    sparse._MIN_END_BYTES = 4 << 10
    restore.MIN_SPARSE_DELTA_BYTES = 16 << 10
    streamed_merge.MIN_TABLE_BYTES = 16 << 10
    streamed_merge.MIN_WINDOW_BYTES = 8 << 10
    sys.argv[:] = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
