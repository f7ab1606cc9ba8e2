"""The process that is killed: one session that runs the scenarios of a plan until their end.

    python -m queries.runs.child PLAN

PLAN is a JSON file: `room`, `scenarios` (names), `options` (Spark's), `master`. The process writes
its JVM's process id into the file `ready` of the room. When it finds a file `restart` there it stops its
queries, starts them again and removes the file; a file `stop` makes it stop them and end. It writes
`done` when all have come to their end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from queries.runs import running
from queries.scenarios.catalogue import SCENARIOS

_PERIOD_S = 0.05


def main(plan_path: str) -> None:
    plan = json.loads(Path(plan_path).read_text())
    room = running.Room(Path(plan["room"]))
    scenarios = [SCENARIOS[name] for name in plan["scenarios"]]
    spark = SparkSession.builder.master(plan["master"]).config(map=plan["options"]).getOrCreate()
    spark.sparkContext.setLogLevel(os.environ.get("STATE_STORE_TEST_LOG_LEVEL", "ERROR"))
    run = running.Run(spark, room, scenarios)
    run.start()
    (room.path / "ready").write_text(str(spark.sparkContext._gateway.proc.pid))
    if _live(run, room):
        for scenario in scenarios:
            if scenario.replay is None and not scenario.until_state_is_empty:
                running.write_expected(spark, room, scenario)
        (room.path / "done").touch()
    spark.stop()


def _live(run: running.Run, room: running.Room) -> bool:
    """Return True if the queries came to their end before they were stopped."""
    stop, restart = room.path / "stop", room.path / "restart"
    while not run.is_over():
        if stop.exists() or restart.exists():
            run.stop()
            if stop.exists():
                return False
            run.start()
            restart.unlink()
        time.sleep(_PERIOD_S)
    return True


if __name__ == "__main__":
    main(sys.argv[1])
