"""The checkpoint of a query that has never run, with a state that it begins with.

Spark writes what only Spark knows: the operators, their schemas, the pinned configuration. It is given an
offset log with a first batch that has no offset of any source (`-`), and no commit of it. A query that starts
on that runs this batch over nothing, as it would run a batch again that broke off, and commits it: the state
is there, empty, and no source has been read. Its rows are then put in, and the next batch begins where the
sources begin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import Storage, open_storage
from state_store.data.dataset.rewriting.importing import import_rows
from state_store.data.dataset.rewriting.repartition import Repartitioned, refuse_used
from state_store.data.query import DEFAULT_NAME
from state_store.errors import FormatError, OptionError, StateStoreError

_OTHER_NUMBER = re.compile(r"now there are \[(\d+)\] sources")
_NO_OFFSET = "-"

Start = Callable[[Any], Any]


def bootstrap(
    writer: Any,
    checkpoint: str,
    rows: Any,
    operator: int = 0,
    store: str = DEFAULT_NAME,
    *,
    start: Start = lambda writer: writer.start(),
    runtime: Runtime = SYSTEM,
) -> Repartitioned:
    """Makes the checkpoint of a query that has never run, with `rows` as its state.

        writer = counted.writeStream.outputMode("update").foreachBatch(store_batch)
        state_store.bootstrap(writer, "/data/checkpoint", "rows.parquet")
        query = writer.trigger(availableNow=True).start()

    writer: PySpark's `DataStreamWriter` of the query, with its sink; the session is one of this store. Spark
    runs batch 0 of the query over nothing: the sink gets it, empty, and the sources are not read. Afterwards
    the writer's `checkpointLocation` is `checkpoint`, and its trigger Spark's default.

    checkpoint: where the query has not run yet; a path or URI that both Spark and `state_store.open` know.
    Until this returns, no query may be started there.

    rows, operator, store: as in `state_store.data.dataset.rewriting.importing.import_rows`.

    start: how the query is started, where not by `writer.start()`, such as
    `lambda writer: writer.toTable("t")`; it gives the query.

    Raises ConflictError where a query has run, OptionError where the query has no state or another store
    keeps it, whatever Spark raises where the query cannot run, and as `import_rows`.
    """
    if not hasattr(writer, "_df"):
        raise OptionError(
            "a DataStreamWriter of a session with a JVM of its own is needed, not of Spark Connect"
        )
    location = checkpoint.rstrip("/")
    storage = open_storage(location)
    refuse_used(storage, location)
    scratch = f".bootstrap-{runtime.unique(4)}"
    try:
        _run_first_batch(writer, storage, f"{location}/{scratch}", scratch, start, runtime)
        return import_rows(f"{location}/{scratch}/query", rows, location, operator, store, runtime=runtime)
    finally:
        writer.option("checkpointLocation", location).trigger(processingTime="0 seconds")
        with suppress(StateStoreError):  # nobody reads what is left there
            storage.delete_directory(scratch)


def _run_first_batch(
    writer: Any, storage: Storage, location: str, scratch: str, start: Start, runtime: Runtime
) -> None:
    """Runs batch 0 of the query over nothing, in `<location>/query`."""
    header = _pinned(writer, storage, location, scratch)
    metadata = json.dumps({"id": runtime.uuid()}, separators=(",", ":"))
    storage.write(f"{scratch}/query/metadata", metadata.encode())
    offsets = f"{scratch}/query/offsets/0"
    writer.option("checkpointLocation", f"{location}/query").trigger(once=True)
    sources = 1
    while True:
        storage.write(offsets, "\n".join([*header, *[_NO_OFFSET] * sources]).encode(), overwrite=True)
        try:
            query = start(writer)
            query.awaitTermination()
            break
        except Exception as error:
            other = _OTHER_NUMBER.search(str(error))
            if other is None or int(other[1]) == sources:
                raise
            sources = int(other[1])
    read = sum(progress["numInputRows"] or 0 for progress in query.recentProgress)
    if read or not storage.exists(f"{scratch}/query/commits/0"):
        raise FormatError(f"this Spark does not run a first batch over nothing: it has read {read} rows")
    if not storage.directories(f"{scratch}/query/state"):
        raise OptionError("the query has no stateful operator")


def _pinned(writer: Any, storage: Storage, location: str, scratch: str) -> list[str]:
    """The first lines of an entry of the offset log, as the writer's session makes them for a query without
    state: what Spark pins of the configuration.
    """
    probe = (
        writer._df.sparkSession.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .load()
        .writeStream
    )
    probe = probe.format("noop").option("checkpointLocation", f"{location}/probe")
    probe.trigger(once=True).start().awaitTermination()
    version, pinned, *_ = storage.read(f"{scratch}/probe/offsets/0").decode("utf-8").split("\n")
    if version != "v1":
        raise FormatError(f"the offset log of this session has format '{version}', which is not known here")
    return [version, pinned]
