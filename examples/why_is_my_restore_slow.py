"""Why a restore of a query's state takes long: a notebook as a script, without Spark.

    python examples/why_is_my_restore_slow.py /data/checkpoint

A restore brings the newest snapshot at or before its version, then the deltas after it. Each part between two
lines `# %%` is a cell for editors that know them.
"""

# %%
from __future__ import annotations

import sys
import time

import state_store
from state_store.cli.stores.chain import links
from state_store.cli.stores.found import FoundStore
from state_store.query import Query

checkpoint = sys.argv[1]
query = Query.open(checkpoint)
committed = query.committed()

# %% What a restore of each store reads: deltas after a snapshot, or from the beginning where there is none.
stores = query.for_each(query.stores(), FoundStore.read)
chains = {}
for store in stores:
    version = store.restorable(committed[store.key])
    if version is not None:
        chains[store.key] = [link for link in links(store, version) if link.is_read]
for key, read in chains.items():
    deltas = [link for link in read if link.snapshot is None]
    base = next((link for link in read if link.snapshot is not None), None)
    start = "nothing" if base is None else f"the {base.snapshot} checkpoint {base.version.number}"
    delta_bytes = sum(link.delta_bytes or 0 for link in deltas)
    print(f"store {key}: from {start} and {len(deltas)} deltas, {delta_bytes} bytes")

# %% The store that has most to read decides when all tasks of a batch can begin.
amounts = {
    key: sum(link.snapshot_bytes if link.snapshot else link.delta_bytes or 0 for link in read)
    for key, read in chains.items()
}
slowest = max(amounts, key=lambda key: amounts[key])
print(f"most has store {slowest}: {amounts[slowest]} bytes in {len(chains[slowest])} steps")

# %% How much of that is state, and how much is history: files against the rows that they have.
begun = time.perf_counter()
with state_store.open(checkpoint, slowest.operator, slowest.name, partitions=[slowest.partition]) as state:
    found = state.stats(sample=None)
    taken_s = time.perf_counter() - begun
rows_bytes = found.average_bytes * found.rows
print(f"{found.rows} rows of {found.average_bytes:.0f} bytes in {found.size_bytes} bytes of files")
print(f"brought and read from here in {taken_s:.2f} s")

# %% What to do about it.
if found.size_bytes > 2 * rows_bytes:
    print("much is history: `state-store full` cuts the chain, and `restoreObjective` has it cut in time")
elif found.skew > 2:
    print("one partition is much larger than the others: look at its keys with `state-store stats --exact`")
else:
    print("the files are little more than the state: more partitions share it (`state-store repartition`)")
