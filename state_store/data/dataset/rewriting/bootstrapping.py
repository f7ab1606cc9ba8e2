"""The checkpoint of a query that has never run, with an initial state.

Spark writes the parts that only Spark knows: the operators, their schemas, the pinned configuration. It is
given an offset log with a first batch that has no offset of any source, and no commit of it. In format 1 of
the log each source has a line (`-`), in format 2 none. A query that starts on this log runs the batch over
nothing, as it repeats a batch after a failure, and commits it: the state exists and is empty, and no source
has been read. The rows are then put in, and the next batch begins where the sources begin.
"""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import Storage
from state_store.data.dataset.packages import require_arrow
from state_store.data.dataset.rewriting.importing import replacements_of, write_imported
from state_store.data.dataset.rewriting.repartition import Rewritten
from state_store.data.query import ProgressOption, Query
from state_store.data.query.arguments import Location
from state_store.data.query.targets import SCRATCH_PREFIX, new_checkpoint
from state_store.errors import FormatError, OptionError, StateStoreError

_OTHER_NUMBER = re.compile(r"now there are \[(\d+)\] sources")
_NO_OFFSET = "-"
_NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_BY_NAME = "v2"
"""The format of an offset log that has the sources by their names, and says of each who reads it."""

Start = Callable[[Any], Any]


def bootstrap(
    writer: Any,
    checkpoint: Location,
    rows: Any,
    operator: int = 0,
    store: str | None = None,
    *,
    start: Start = lambda writer: writer.start(),
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Make the checkpoint of a query that has never run, with `rows` as its state.

        writer = counted.writeStream.outputMode("update").foreachBatch(store_batch)
        state_store.bootstrap(writer, "/data/checkpoint", "rows.parquet")
        query = writer.trigger(availableNow=True).start()

    Spark runs batch 0 of the query over nothing: the sink gets an empty batch, and the sources are not read.
    A function of `foreachBatch` has to read its batch. Afterwards the writer's `checkpointLocation` is
    `checkpoint`, and its trigger is Spark's default. If the call fails or is interrupted, its queries are
    stopped, and nothing is left in the directory. Start no query there before it returns.

    Args:
        writer: PySpark's `DataStreamWriter` of the query, with its sink; the session is one of this store.
        checkpoint: an empty directory; a path or URI that both Spark and `state_store.open` know.
        rows: as for `import_state`.
        operator: the number of the stateful operator in the query.
        store: the store that the rows are of. Default: as for `open`.
        start: starts the query and returns it, if not by `writer.start()`: for example `lambda writer:
            writer.toTable("t")`.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks, randomness and threads.

    Raises:
        ConflictError: the directory is not empty.
        OptionError: the query has no state, another store keeps it, its sink does not read its batch, or the
            rows do not fit.
        Exception: what Spark raises if the query cannot run.
    """
    if not hasattr(writer, "_df"):
        raise OptionError(
            "a DataStreamWriter of a session with a JVM of its own is needed, not of Spark Connect",
            option="writer",
        )
    require_arrow()
    with new_checkpoint("bootstrap", None, checkpoint) as (storage, location):
        scratch = f"{SCRATCH_PREFIX}{runtime.unique(4)}"
        try:
            _run_first_batch(writer, storage, f"{location}/{scratch}", scratch, start, runtime)
            query = Query.open(f"{location}/{scratch}/query")
            replacements = replacements_of(query, rows, operator, store)
            return write_imported(query, replacements, storage, location, progress=progress, runtime=runtime)
        finally:
            writer.option("checkpointLocation", location).trigger(processingTime="0 seconds")
            with suppress(StateStoreError):  # nothing reads the remains
                storage.delete_directory(scratch)


def _run_first_batch(
    writer: Any, storage: Storage, location: str, scratch: str, start: Start, runtime: Runtime
) -> None:
    """Run batch 0 of the query over nothing, in `<location>/query`."""
    header = _pinned(writer, storage, location, scratch)
    metadata = json.dumps({"id": runtime.uuid()}, separators=(",", ":"))
    storage.write(f"{scratch}/query/metadata", metadata.encode())
    offsets = f"{scratch}/query/offsets/0"
    writer.option("checkpointLocation", f"{location}/query").trigger(once=True)
    sources = 0 if header[0] == _BY_NAME else 1
    while True:
        storage.write(offsets, "\n".join([*header, *[_NO_OFFSET] * sources]).encode(), overwrite=True)
        try:
            query = _run_to_end(writer, start)
            break
        except Exception as error:
            if "CheckpointInfo length: 0" in str(error):
                raise OptionError(
                    "the sink did not read its first batch, which is empty: let the function of foreachBatch "
                    "read its batch, for instance by batch.count()",
                    option="writer",
                ) from error
            other = _OTHER_NUMBER.search(str(error))
            if other is None or int(other[1]) == sources:
                raise
            sources = int(other[1])
    read = sum(progress["numInputRows"] or 0 for progress in query.recentProgress)
    if read or not storage.exists(f"{scratch}/query/commits/0"):
        raise FormatError(
            f"this Spark did not begin with an empty first batch: it has read {read} rows from the sources"
        )
    if not storage.directories(f"{scratch}/query/state"):
        raise OptionError("the query has no stateful operator")


def _run_to_end(writer: Any, start: Start) -> Any:
    """Start a query, wait for its end, and return it; stop it if that fails or is interrupted."""
    query = None
    try:
        with _interrupts_held_back():
            query = start(writer)
        query.awaitTermination()
    except BaseException:
        if query is not None:
            with suppress(Exception):
                query.stop()
        raise
    return query


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Raise an interrupt from the keyboard when the body has ended; the second one at once.

    A query that the JVM starts goes on after an interrupt of the call, and nobody could stop it.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    held: list[tuple[int, Any]] = []

    def hold(number: int, frame: Any) -> None:
        held.append((number, frame))
        if len(held) > 1:
            usual(number, frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if held:
        usual(*held[0])


def _pinned(writer: Any, storage: Storage, location: str, scratch: str) -> list[str]:
    """Return the first lines of an entry of the offset log: the configuration that Spark pins.

    The writer's session makes them for a query without state.
    """
    session = writer._df.sparkSession
    reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    if session.conf.get(_NAMED_SOURCES, "false") == "true":
        reader = reader.name("probe")
    probe = reader.load().writeStream.format("noop").option("checkpointLocation", f"{location}/probe")
    _run_to_end(probe.trigger(once=True), lambda writer: writer.start())
    version, pinned, *_ = storage.read(f"{scratch}/probe/offsets/0").decode("utf-8").split("\n")
    if version == _BY_NAME:
        pinned = json.dumps({**json.loads(pinned), "sourceMetadataInfo": {}}, separators=(",", ":"))
    elif version != "v1":
        raise FormatError(
            f"the offset log of this session has format '{version}', which this release does not know"
        )
    return [version, pinned]
