"""A Spark application whose tasks meet trouble: `python troubled_tasks.py DIRECTORY TOOL ...`.

Each tool does its work on each checkpoint of DIRECTORY, below `of` there, four times: in this process
(`alone`); as a job tasks of which end badly before or after an important step, by an error of the storage or
with their executor (`troubled`); as a job each task of which runs twice at the same time (`twice`), as a copy
of a slow task does, of which Spark itself runs none on the host that has the task; and as a job that fails
and is started again (`again`). The last line says what the tools returned, what they said, and which trouble
came.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import quick_java

import state_store
from state_store.core.files.workspace import task_directory
from state_store.data import jobs
from state_store.data.dataset import export
from state_store.data.dataset.rewriting import copying, store_writer
from state_store.data.maintenance import full_checkpoints, verification
from state_store.data.migration import migrate
from state_store.errors import DamagedError, StateStoreError, StorageError

SIDES = ("left", "right")
MIGRATED_TO = {"ids": "rocksdb", "no-ids": "incremental"}
TROUBLES = ("failed-before", "killed-before", "failed-after", "killed-after")


def _imported(source: Path, target: Path, spark: Any) -> Any:
    if spark is None:
        rows = {side: state_store.show(source, store=side).drop_columns("partition_id") for side in SIDES}
        return state_store.import_state(source, rows, target)
    for side in SIDES:
        if not (target.parent / side).exists():
            state_store.export(source, target.parent / side, store=side)
    frames = {
        side: spark.read.parquet(str(target.parent / side)).drop("partition_id").repartition(2)
        for side in SIDES
    }
    return state_store.import_state(source, frames, target)


def _in_place(tool: Callable[..., Any]) -> Callable[[Path, Path, Any], Any]:
    def of_copy(source: Path, target: Path, spark: Any) -> Any:
        if not target.exists():
            shutil.copytree(source, target)
        return tool(target, spark=spark)

    return of_copy


def _ok(tool: Callable[..., Any], checkpoint: Path, spark: Any) -> bool:
    return bool(tool(checkpoint, spark=spark).ok)


TOOLS: dict[str, tuple[Callable[[Path, Path, Any], Any], Any, str]] = {
    "repartition": (
        lambda source, target, spark: asdict(state_store.repartition(source, target, 6, spark=spark)),
        store_writer.Receipts,
        "claim",
    ),
    "import": (lambda *given: asdict(_imported(*given)), store_writer.Receipts, "claim"),
    "cp": (
        lambda source, target, spark: state_store.copy(source, target, spark=spark).version,
        copying,
        "_compare",
    ),
    "migrate": (
        lambda source, target, spark: asdict(
            migrate(source, target, MIGRATED_TO[source.name], memory="256m", spark=spark)
        ),
        store_writer.Receipts,
        "claim",
    ),
    "export": (
        lambda source, target, spark: state_store.export(source, target, spark=spark),
        export,
        "_write",
    ),
    "full": (
        _in_place(lambda place, spark: len(state_store.full_checkpoint(place, spark=spark).made)),
        full_checkpoints,
        "publish",
    ),
    "verify": (_in_place(partial(_ok, state_store.verify)), verification.FoundStore, "read"),
    "repair": (_in_place(partial(_ok, state_store.repair)), verification.FoundStore, "read"),
}
"""Each tool: a call of it, and the step at which its tasks meet trouble, an attribute of an object."""


def _is_first(place: str, name: str) -> bool:
    try:
        os.close(os.open(f"{place}/{name}", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def _happen(place: str, troubles: tuple[str, ...], when: str) -> None:
    """Let the next trouble come that has not come yet, if it is of this moment."""
    for trouble in troubles:
        if not trouble.endswith(when) or not _is_first(place, trouble):
            continue
        if trouble.startswith("killed"):
            daemon = os.getppid()
            status = Path(f"/proc/{daemon}/status").read_text()
            (executor,) = [line.split()[1] for line in status.splitlines() if line.startswith("PPid:")]
            os.kill(int(executor), signal.SIGKILL)
            os._exit(9)
        if trouble.startswith("damaged"):
            raise DamagedError("a task meets damage")
        raise StorageError("the storage fails once")


class Troubled:
    """A task whose step meets trouble."""

    def __init__(self, tool: str, place: str, troubles: tuple[str, ...], task: Any) -> None:
        self.given = (tool, place, troubles, task)

    def __call__(self, item: Any) -> Any:
        tool, place, troubles, task = self.given
        _, owner, name = TOOLS[tool]
        step = owner.__dict__[name]
        real = getattr(owner, name)

        def troubled(*given: Any, **named: Any) -> Any:
            call = step if isinstance(owner, type) and not isinstance(step, classmethod) else real
            _happen(place, troubles, "before")
            result = call(*given, **named)
            _happen(place, troubles, "after")
            return result

        setattr(owner, name, staticmethod(troubled) if isinstance(step, classmethod) else troubled)
        try:
            return task(item)
        finally:
            setattr(owner, name, step)


class Twice:
    """A task that runs twice at the same time."""

    def __init__(self, place: str, task: Any) -> None:
        self.place, self.task = place, task

    def __call__(self, item: Any) -> Any:
        items = [item, item]
        if isinstance(item, tuple) and hasattr(item[-1], "__next__"):
            rows = list(item[1])
            items = [(item[0], iter(rows)), (item[0], iter(rows))]
        copy = threading.Thread(target=self._copy, args=(items[1],))
        jobs.task_directory = nullcontext  # type: ignore[assignment]  # Spark's copies are processes
        copy.start()
        try:
            return self.task(items[0])
        finally:
            copy.join()
            jobs.task_directory = task_directory

    def _copy(self, item: Any) -> None:
        try:
            self.task._work(item, jobs.TaskProgress())
            _is_first(self.place, "copied")
        except BaseException:
            with open(f"{self.place}/failed-copy", "a") as file:
                file.write(traceback.format_exc())


@contextmanager
def _tasks(wrap: Callable[[Any], Any]) -> Iterator[None]:
    run = jobs.SparkTasks._run

    def wrapped(self: Any, of_task: Callable[[Any], Any], *given: Any, **named: Any) -> Any:
        return run(self, lambda task: of_task(wrap(task)), *given, **named)

    jobs.SparkTasks._run = wrapped  # type: ignore[method-assign]
    try:
        yield
    finally:
        jobs.SparkTasks._run = run  # type: ignore[method-assign]


def _run(tool: str, source: Path, root: Path, spark: Any) -> dict[str, Any]:
    call = TOOLS[tool][0]
    places = {how: root / f"trouble-{how}" for how in ("troubled", "twice", "again")}
    for place in places.values():
        place.mkdir(parents=True)
    found = {"alone": call(source, root / "alone", None)}
    with _tasks(partial(Troubled, tool, str(places["troubled"]), TROUBLES)):
        found["troubled"] = call(source, root / "troubled", spark)
    with _tasks(partial(Twice, str(places["twice"]))):
        found["twice"] = call(source, root / "twice", spark)
    with _tasks(partial(Troubled, tool, str(places["again"]), ("damaged-after",))):
        try:
            found["said"] = call(source, root / "again", spark)
        except StateStoreError as error:
            found["said"] = [str(error), (root / "again").exists()]
    found["again"] = call(source, root / "again", spark)
    found["came"] = {
        how: {path.name: path.read_text() for path in sorted(place.iterdir())}
        for how, place in places.items()
    }
    return found


def main() -> None:
    from pyspark.sql import SparkSession

    root = Path(sys.argv[1])
    options = {
        **quick_java.CHECKPOINT_FILES,
        "spark.task.maxFailures": "8",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": quick_java.spark_options(),
        "spark.executor.extraJavaOptions": quick_java.spark_options(),
        "spark.ui.enabled": "false",
    }
    spark = SparkSession.builder.master("local-cluster[2,1,512]").config(map=options).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    forms = sorted(path.name for path in root.iterdir() if path.name != "of")
    found = {
        f"{tool}/{form}": _run(tool, root / form, root / "of" / tool / form, spark)
        for tool in sys.argv[2:]
        for form in forms
    }
    print("FOUND", json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    # workers import this module by its name, so that its classes are pickled by reference
    import troubled_tasks

    troubled_tasks.main()
