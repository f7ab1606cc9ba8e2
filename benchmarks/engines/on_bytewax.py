"""The counter on Bytewax: a program of the environment `bytewax`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink, TestingSource, run_main
from counted_rows import Progress, keep_checksum, options, step_of, value_of

CHECKPOINT_S = 5


class _Nothing(StatelessSinkPartition):
    def write_batch(self, items: Any) -> None:
        pass


class _Discarded(DynamicSink):
    def build(self, *where: Any) -> _Nothing:
        return _Nothing()


def main() -> None:
    """Run the job that the command line asks for."""
    asked = options(__doc__)
    progress = Progress(asked.root, asked.rows)
    keys = asked.keys

    def counted(state: Any, value: float) -> Any:
        progress.add()
        count, total, seen = state if state is not None else (0, 0.0, {})
        count += 1
        total += value
        step = step_of(count)
        seen[step] = seen.get(step, 0) + 1
        return (count, total, seen), (count, total)

    outputs: list[Any] = []
    flow = Dataflow("counter")
    numbers = op.input("numbers", flow, TestingSource(range(asked.rows * asked.batches), batch_size=1000))
    keyed = op.map("keys", numbers, lambda i: (str(i % keys), value_of(i % keys)))
    results = op.stateful_map("counter", keyed, counted)
    op.output("results", results, TestingSink(outputs) if asked.collect else _Discarded())
    recovery = asked.root / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    run_main(flow, epoch_interval=timedelta(seconds=CHECKPOINT_S), recovery_config=RecoveryConfig(recovery))
    if asked.collect:
        keep_checksum(asked.root, ((int(key), count, total) for key, (count, total) in outputs))


if __name__ == "__main__":
    main()
