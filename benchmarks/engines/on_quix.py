"""The workloads on Quix Streams: a program of the environment `quix`, beside a Kafka that has the rows.

State is in RocksDB and in a changelog topic, as by default. Sessions are its own session windows: `--form` is
quix if the next event of the key closes a window, as by default, or quix-partition if that of any key does.
"""

from __future__ import annotations

from typing import Any

from quixstreams import Application
from quixstreams.dataframe.windows import Collect
from workloads import GAP_MS, SESSIONS, Progress, options, outputs_of, step_of


def counted(value: Any, key: str, timestamp: int, headers: Any, state: Any) -> tuple[int, int, float]:
    """Count a row: a count and a sum in a value, and the steps in one each."""
    count, total = state.get("totals", (0, 0.0))
    count += 1
    total += value["v"]
    step = f"step-{step_of(count)}"
    state.set(step, state.get(step, 0) + 1)
    state.set("totals", (count, total))
    return int(key), count, total


def closed(window: Any, key: Any, timestamp: int, headers: Any) -> tuple[int, int, float, int]:
    """Return the row of a session."""
    events = window["events"]
    return int(key), len(events), sum(events), window["end"] - 1


def main() -> None:
    """Run the job that the command line asks for."""
    asked = options(__doc__)
    progress = Progress(asked.root, asked.rows)
    outputs = outputs_of(asked)
    last = asked.rows * asked.batches - 1

    def processed(topic: str, partition: int, offset: int) -> None:
        progress.add()
        if offset == last:
            app.stop()

    app = Application(
        broker_address=asked.broker,
        consumer_group=asked.topic,
        state_dir=asked.root / "state",
        auto_offset_reset="earliest",
        commit_interval=asked.checkpoint_s,
        on_message_processed=processed,
        loglevel="WARNING",
    )
    rows = app.dataframe(app.topic(asked.topic, key_deserializer="str", value_deserializer="json"))
    if asked.workload == SESSIONS:
        windows = rows.session_window(GAP_MS).agg(events=Collect("v"))
        strategy = "partition" if asked.form == "quix-partition" else "key"
        results = windows.final(closing_strategy=strategy).apply(closed, metadata=True)
    else:
        results = rows.apply(counted, stateful=True, metadata=True)
    if outputs:
        results.update(outputs.add)
    app.run()
    if outputs:
        outputs.write()


if __name__ == "__main__":
    main()
