"""The checkpoint of a stopped query, written anew with another number of partitions.

The target gets Spark's logs with the new number of partitions, and the state of the version that Spark
committed last, each row in the partition in which Spark looks for its key. Older versions are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from state_store.core.compat import zip
from state_store.core.interruption import ScratchDirectory
from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.storage import Storage, open_storage
from state_store.data.dataset.packages import require_arrow
from state_store.data.dataset.rewriting import spark_files
from state_store.data.dataset.rewriting.replacing import Replaced, Replacement
from state_store.data.dataset.rewriting.store_writer import StoreWriter
from state_store.data.query import Progress, ProgressOption, Query, reporting
from state_store.data.query.arguments import Location, check_number
from state_store.data.query.targets import Stopped, new_checkpoint
from state_store.errors import MissingError

MOST_PARTITIONS = 100_000


@dataclass(frozen=True)
class Rewritten:
    """The result of writing a checkpoint.

    Attributes:
        version: the version of the state.
        rows: the number of Spark's rows in all stores.
        size_bytes: bytes of all files of the state.
    """

    version: int
    rows: int
    size_bytes: int


def repartition(
    checkpoint: Location,
    target: Location,
    partitions: int,
    *,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Write the checkpoint of a stopped query to another directory, with another number of partitions.

    Start the query with the new checkpoint directory, and never again with the old one. A batch that had
    begun is run again. Needs local disk for the state of a store in the directory of temporary files
    (`TMPDIR`), and memory for the rows of a new partition. If it fails, nothing is left in the target.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        target: an empty directory, a path or a URI.
        partitions: the new number, 1 to 100,000. An operator without grouping keys stays in one partition.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no state.
        ConflictError: the target is not empty, or the query has gone on meanwhile.
        OptionError: the number is below 1, or the target is inside of the checkpoint, or around it.
        FormatError: the partition of a key is not known.
    """
    check_number("partitions", partitions, minimum=1, maximum=MOST_PARTITIONS)
    require_arrow()
    query = Query.open(checkpoint)
    with new_checkpoint("repartition", query.location, target) as (storage, location):
        return rewrite(query, storage, location, partitions, progress=progress, runtime=runtime)


def rewrite(
    query: Query,
    storage: Storage,
    location: str,
    partitions: int | None,
    replacements: Sequence[Replacement] = (),
    *,
    progress: ProgressOption = None,
    runtime: Runtime = SYSTEM,
) -> Rewritten:
    """Write the state of a stopped query, and Spark's logs, into the directory of a new checkpoint.

    Args:
        query: the query.
        storage: the directory, as `new_checkpoint` gives it.
        location: its path or URI.
        partitions: the number of partitions; None: as before.
        replacements: rows that take the place of rows of the query.
        progress: as for `repartition`.
        runtime: clocks and threads.

    Raises:
        MissingError: there is no state.
        ConflictError: the query has gone on meanwhile.
        StateStoreError: as the files and the rows are.
    """
    batch = query.committed_batch()
    if batch is None:
        raise MissingError(f"{query.location} has no state yet: Spark has committed no batch of the query")
    stopped = Stopped(query)
    source = open_storage(query.location)
    has_ids = any(version.checkpoint_id for version in query.committed().values())
    counts = {
        operator.id: operator.partitions if partitions is None or operator.is_in_one_partition else partitions
        for operator in query.operators
    }
    stores = sum(counts[operator.id] * len(operator.stores) for operator in query.operators)
    with stopped.during(), reporting(progress, "written", stores) as meter:
        ids, done = _write_stores(query, location, counts, replacements, has_ids, meter, runtime)
    for operator in query.operators:
        count = None if operator.is_in_one_partition else partitions
        spark_files.copy_operator(source, storage, operator, count)
    conf = None if partitions is None else {spark_files.SHUFFLE_PARTITIONS: str(partitions)}
    spark_files.copy_logs(source, storage, batch, conf=conf, ids=ids if has_ids else None)
    return done


def _write_stores(
    query: Query,
    location: str,
    counts: Mapping[int, int],
    replacements: Sequence[Replacement],
    has_ids: bool,
    progress: Progress | None,
    runtime: Runtime,
) -> tuple[dict[str, list[list[str]]], Rewritten]:
    """Write all stores, in `counts` partitions by operator.

    Returns:
        The ids of the versions by operator (a list of partitions, each with an id for each store), and the
        result.
    """
    version = (query.committed_batch() or 0) + 1
    ids: dict[str, list[list[str]]] = {}
    done = Rewritten(version, 0, 0)
    for operator in query.operators:
        count = counts[operator.id]
        by_store: list[list[str]] = []
        with ScratchDirectory("state-store-") as root, ExitStack() as opened:
            replaced = []
            for number, replacement in enumerate(replacements):
                if replacement.view.operator.id == operator.id:
                    directory = Path(root) / str(number)
                    directory.mkdir()
                    replaced.append(Replaced(replacement, count, directory))
                    opened.callback(replaced[-1].close)
            for store in operator.stores:
                writer = StoreWriter(query, operator, store, location, version, has_ids, progress, runtime)
                written = writer.write(count, replaced)
                by_store.append(written.ids)
                done = replace(
                    done, rows=done.rows + written.rows, size_bytes=done.size_bytes + written.size_bytes
                )
        ids[str(operator.id)] = [list(partition) for partition in zip(*by_store, strict=True)]
    return ids, done
