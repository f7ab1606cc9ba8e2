"""The process that is killed: one session that runs the scenarios of a plan until their end.

    python -m queries.child PLAN

PLAN is a JSON file: ``room``, ``scenarios`` (names), ``options`` (Spark's), ``master``. The process writes
``ready`` (its JVM's process id) into the room, stops its queries when it finds a file ``stop`` there, and
writes
``done`` when all have come to their end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from queries import running
from queries.catalogue import SCENARIOS


def main(plan_path: str) -> None:
    plan = json.loads(Path(plan_path).read_text())
    room = running.Room(Path(plan["room"]))
    scenarios = [SCENARIOS[name] for name in plan["scenarios"]]
    spark = SparkSession.builder.master(plan["master"]).config(map=plan["options"]).getOrCreate()
    spark.sparkContext.setLogLevel(os.environ.get("STATE_STORE_TEST_LOG_LEVEL", "ERROR"))
    (room.path / "ready").write_text(str(spark.sparkContext._gateway.proc.pid))
    if running.run(spark, room, scenarios, stop_asked=(room.path / "stop").exists):
        for scenario in scenarios:
            if scenario.replay is None and not scenario.until_state_is_empty:
                running.write_expected(spark, room, scenario)
        (room.path / "done").touch()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
