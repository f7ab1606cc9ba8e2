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
from state_store.data.query.arguments import Location, check_number
from state_store.errors import OptionError


def open(
    checkpoint: Location,
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
    """Open the state of a query as a table: no Spark and no JVM is needed, and the query may run meanwhile.

        with state_store.open("/data/checkpoint") as state:
            print(state.schema)
            frame = state.to_pandas()

    The table is one version of all partitions, however the query goes on meanwhile: a lease, which is a small
    file beside the store's own, keeps its files for an hour or until the state is closed.

    Args:
        checkpoint: the query's checkpointLocation, a path or a URI (`hdfs://`, `webhdfs://`, `s3://`, `gs://`,
            `abfs://`).
        operator: the number of the stateful operator in the query, 0 for the first.
        store: `default`, a side of a join (`left`, `right`), `timers`, or the name of a state variable, a
            store or a column family. Default: the operator's only store, the left side of a join, the first
            variable of `transformWithState`.
        version: the number of the version. Default: the version that Spark committed last.
        batch: the version is the one after this batch, `batch` + 1.
        at: the version is the newest at this moment: a `datetime`, or a text such as `2024-02-29 08:00` or
            `2 hours ago` (without a zone: the local one).
        partitions: the numbers of some partitions. Default: all.
        on_damage: the way with a partition that cannot be read because a file is damaged or gone. `raise`:
            an error. `skip`: scans and exports leave the partition out, and `State.lost` has it.
        runtime: clocks, randomness and threads.

    Raises:
        MissingError: there is no such query, operator, store, version or partition; the message has those
            that there are.
        OptionError: an argument is of a wrong type; another provider keeps the state; pyarrow is missing.
        StateStoreError: as the files and the storage are.
    """
    require_arrow()
    if on_damage not in ("raise", "skip"):
        raise OptionError(f"on_damage is 'raise' or 'skip', not {on_damage!r}", option="on_damage")
    check_number("operator", operator)
    if store is not None and not isinstance(store, str):
        raise OptionError(f"store is a name, not {store!r}", option="store")
    chosen = None
    if partitions is not None:
        if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
            raise OptionError(
                f"partitions are numbers such as [0, 1], not {partitions!r}", option="partitions"
            )
        chosen = list(partitions)
        for partition in chosen:
            check_number("partitions", partition)
    query = Query.open(checkpoint)
    number = version_number(query, version, batch, at)
    return State(
        query,
        view_at(query, operator, default_name(query, operator) if store is None else store, number - 1),
        number,
        chosen,
        skip_damaged=on_damage == "skip",
        runtime=runtime,
    )
