"""The process that runs the queries of a life, and may be killed or stopped as any other.

    python -m chaos.query_process PLAN

PLAN is a JSON file: `room`, `uri` and `own_uri` (those of `Checkpoints`), `questions` (names), `options`
(Spark's), `generation`. A query that fails, or does not start, is started again; why is kept below `errors`.
When the file `complete` is in the room, the queries are run to the end of the input, the state that Spark
reads is written below `state`, and `done` ends the life. A driver whose generation is not that of the file
`generation` starts nothing any more: it woke up beside its successor.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from chaos import sink, state_rows
from chaos.input_records import SCHEMA, STREAMS
from chaos.life_places import checkpoint_of, output_of
from chaos.questions import QUESTIONS, Question

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_PERIOD_S = 0.1
_MAX_FILES = "4"


class Driver:
    """The queries of one generation of a life."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.room = Path(plan["room"])
        self._uri: str = plan["uri"]
        self._own_uri: str = plan["own_uri"]
        self._generation: int = plan["generation"]
        self._questions = [QUESTIONS[name] for name in plan["questions"]]
        self._running: dict[Question, StreamingQuery] = {}
        self.spark = SparkSession.builder.config(map=plan["options"]).getOrCreate()
        self.spark.sparkContext.setLogLevel("WARN")

    def run(self) -> None:
        """Keep the queries going until the input is complete and read."""
        self._mend()
        (self.room / f"ready-{self._generation}").touch()
        while self._is_current() and not (self._is_complete() and self._read_all()):
            self._mend()
            time.sleep(_PERIOD_S)
        for query in self._running.values():
            query.stop()
        if self._is_current():
            self._write_state()
            (self.room / "done").touch()

    def _is_current(self) -> bool:
        return int((self.room / "generation").read_text()) == self._generation

    def _is_complete(self) -> bool:
        return (self.room / "complete").exists()

    def _mend(self) -> None:
        """Start the queries that do not run."""
        for question in self._questions:
            query = self._running.get(question)
            if query is None or not query.isActive:
                if query is not None:
                    self._note(question, str(query.exception()))
                    del self._running[question]
                if self._is_current():
                    try:
                        self._running[question] = self._start(question)
                    except Exception as error:  # as long as the storage is out
                        self._note(question, str(error))

    def _start(self, question: Question) -> StreamingQuery:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", _MAX_FILES)
        streams = (reader.json(str(self.room / "input" / stream)) for stream in STREAMS)
        writer = question.query(*streams).writeStream.queryName(question.name).outputMode(question.mode)
        writer = writer.option("checkpointLocation", checkpoint_of(self._uri, question.name))
        names = sink.outputs_of(question.name, question.actions)
        return writer.foreachBatch(sink.batch_writer(output_of(self._own_uri), names)).start()

    def _read_all(self) -> bool:
        """Wait for the end of the input; False if a query has failed meanwhile."""
        for query in self._running.values():
            try:
                query.processAllAvailable()
            except Exception:
                return False
        return len(self._running) == len(self._questions) and all(
            query.isActive for query in self._running.values()
        )

    def _write_state(self) -> None:
        for question in self._questions:
            for side in question.sides:
                to = self.room / "state" / f"{question.name}-{side}.json"
                state_rows.write_by_spark(self.spark, checkpoint_of(self._uri, question.name), side, to)

    def _note(self, question: Question, why: str) -> None:
        errors = self.room / "errors"
        errors.mkdir(exist_ok=True)
        with (errors / f"{question.name}.jsonl").open("a") as file:
            file.write(json.dumps({"generation": self._generation, "error": why}) + "\n")


def main(plan_path: str) -> None:
    driver = Driver(json.loads(Path(plan_path).read_text()))
    try:
        driver.run()
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    finally:
        driver.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
