"""The input of a life grows while it is read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from chaos import input_records
from state_store.core.storage import Storage, open_storage
from state_store.errors import StateStoreError

_AHEAD = 3
"""Files that the input is ahead of the query that has read most."""

_PERIOD_S, _FAR_PERIOD_S = 0.05, 0.3


class Feeder:
    """Keeps the input below `room` ahead of the query that has read most, in a thread of its own.

    `files` is how many there are of each stream. `offsets` and `commits` are the newest batches in Spark's
    logs, -1 where there is none, as they were seen last: who asks does not wait for a storage that is out.
    """

    def __init__(self, room: Path, seed: int, checkpoints: Sequence[str]) -> None:
        self.files = 0
        self.offsets = [-1] * len(checkpoints)
        self.commits = [-1] * len(checkpoints)
        self._room, self._seed = room, seed
        self._logs = [open_storage(checkpoint) for checkpoint in checkpoints]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._add()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """No file comes after this."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        period_s = _PERIOD_S if all(log.is_local for log in self._logs) else _FAR_PERIOD_S
        while not self._over.wait(period_s):
            for place, log in enumerate(self._logs):
                with suppress(StateStoreError):
                    self.commits[place] = newest_batch(log, "commits")
                    self.offsets[place] = newest_batch(log, "offsets")
            while self.files < max(self.offsets) + _AHEAD:
                self._add()

    def _add(self) -> None:
        for name in input_records.STREAMS:
            input_records.write(self._room / name, self._seed, name, self.files)
        self.files += 1


def newest_batch(checkpoint: Storage, log: str) -> int:
    """Return the newest batch in one of Spark's logs; -1 if there is none."""
    names = (entry.name for entry in checkpoint.list_files(log))
    return max((int(name) for name in names if name.isdigit()), default=-1)
