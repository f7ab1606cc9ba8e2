"""`state_store.open`: the state of a query by its checkpoint directory."""

from __future__ import annotations

from collections.abc import Iterable

from state_store.core.runtime import SYSTEM, Runtime
from state_store.data.dataset.moments import Moment
from state_store.data.dataset.packages import require_arrow
from state_store.data.dataset.state import State
from state_store.data.dataset.versions import version_number
from state_store.data.dataset.views import default_name, view_at
from state_store.data.query import Query
from state_store.errors import OptionError


def open(
    checkpoint: str,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    partitions: Iterable[int] | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    on_damage: str = "raise",
    runtime: Runtime = SYSTEM,
) -> State:
    """The state of a query as a table: no Spark and no JVM is needed, and the query may run meanwhile.

        with state_store.open("/data/checkpoint") as state:
            print(state.schema)
            frame = state.to_pandas()

    checkpoint: the query's checkpointLocation, a path or a URI (`hdfs://`, `webhdfs://`, `s3://`, `gs://`,
    `abfs://`).

    operator: the number of the stateful operator in the query, 0 for the first.

    store: `default`, a side of a join (`left`, `right`), or the name of a store or of a column family.
        Default: the
    operator's only store, the left side of a join, the first variable of `transformWithState`.

    version, batch, at: which version: by its number, as that after a batch (version - 1), or as the newest at
    a moment: a `datetime`, or a text such as `2024-02-29 08:00` or `2 hours ago` (without a zone: the local
    one). Default: the version that Spark committed last.

    partitions: only these. Default: all.

    on_damage: what happens where a partition cannot be read because a file is damaged or gone: `raise`, or
    `skip`, which leaves the partition out of scans and exports, and tells of it in `State.lost`.

    What is read is one version of all partitions, however the query goes on meanwhile: a lease keeps its
    files, for an hour, or until the state is closed; it is a small file beside the store's own.

    Raises MissingError for what is not there, with what is, OptionError for the state of another provider
    and where pyarrow is missing, and DamagedError, FormatError and StorageError.
    """
    require_arrow()
    if on_damage not in ("raise", "skip"):
        raise OptionError(f"on_damage is 'raise' or 'skip', not {on_damage!r}")
    query = Query.open(str(checkpoint))
    number = version_number(query, version, batch, at)
    return State(
        query,
        view_at(query, operator, default_name(query, operator) if store is None else store, number - 1),
        number,
        partitions,
        skip_damaged=on_damage == "skip",
        runtime=runtime,
    )
