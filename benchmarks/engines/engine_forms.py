"""The forms of all engines, and which workloads each can run."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from benchmarks.engines.workloads import COUNTER, FRAMES, SESSIONS

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BOTH = (COUNTER, SESSIONS)


@dataclasses.dataclass(frozen=True)
class Form:
    """A way to run workloads.

    Attributes:
        program: the module of this package that is the job.
        environment: the directory of its environment; None for that of this process.
        max_rows: the most rows of one of its batches, because it is slow.
        max_batches: the most batches, for the same reason.
        workloads: those that it can run.
        needs_broker: its rows come from Kafka.
    """

    program: str
    environment: str | None = None
    max_rows: int = 10**9
    max_batches: int = 10**9
    workloads: tuple[str, ...] = BOTH
    needs_broker: bool = False

    def python(self) -> str:
        """Return the interpreter of the environment."""
        return str(CHECKOUT / self.environment / "bin/python") if self.environment else sys.executable

    def fitting(self, keys: int, per_key: float) -> tuple[int, int]:
        """Return keys and rows of a batch: fewer keys if the form is slow, with as many rows each."""
        used = int(min(keys, self.max_rows / per_key))
        return used, round(used * per_key)


FORMS = {
    "processor": Form("on_spark"),
    "per_group": Form("on_spark"),
    "vectorized": Form("on_spark"),
    "accelerate": Form("on_spark", max_rows=40_000, max_batches=8, workloads=(FRAMES,)),
    "spark-worker": Form("on_spark", max_rows=40_000, max_batches=6),
    "spark-frames": Form("on_spark", max_rows=20_000, max_batches=4, workloads=(FRAMES,)),
    "bytewax": Form("on_bytewax", ".venv-bytewax"),
    "bytewax-windows": Form("on_bytewax", ".venv-bytewax", max_rows=100_000, workloads=(SESSIONS,)),
    "thread-rocksdb": Form("on_flink", ".venv-flink", max_rows=100_000, max_batches=16),
    "thread-hashmap": Form("on_flink", ".venv-flink", max_rows=100_000, max_batches=16),
    "process-rocksdb": Form("on_flink", ".venv-flink", max_rows=5_000, max_batches=8),
    "quix": Form("on_quix", ".venv-quix", max_rows=40_000, max_batches=16, needs_broker=True),
    "quix-partition": Form(
        "on_quix", ".venv-quix", max_rows=5_000, max_batches=16, workloads=(SESSIONS,), needs_broker=True
    ),
}


def installed() -> list[str]:
    """Return the names of the forms whose environments exist."""
    return [name for name, form in FORMS.items() if Path(form.python()).exists()]
