"""The state of a query as tables: a notebook as a script, without Spark.

    python examples/what_is_in_my_state.py /data/checkpoint

Each part between two lines `# %%` is a cell for editors that know them.
"""

# %%
from __future__ import annotations

import sys

import state_store

checkpoint = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)

# %% The columns are the query's own, behind the key; the last one is the partition.
state = state_store.open(checkpoint)
print(state)
print(state.schema.to_string(show_field_metadata=False))

# %% The first rows. In a notebook, `state` alone shows them as a table.
first = next(iter(state.scan(batch_rows=5)), None)
print("no rows" if first is None else first.to_pandas().to_string())

# %% What is big: partitions, keys, values, and the largest rows.
found = state.stats(sample=None)
print(f"{found.rows} rows in {len(found.partitions)} partitions, {found.size_bytes} bytes in files")
print(f"the largest partition has {found.skew:.2f} times the average")
print("bytes of values that 50, 95, 99 and 100 % do not exceed:", *found.value_bytes)
for row in found.largest:
    print(f"  {row.size_bytes} bytes: {row.key}")

# %% What is hot: how much each of the last versions changed.
for version in found.recent:
    changes = f"{version.puts} put, {version.removes} removed, {version.delta_bytes} bytes"
    print(f"version {version.version}: {changes}")

# %% How the largest row became what it is.
if found.largest:
    for at in state.history(found.largest[0].key):
        if at.is_changed:
            print(f"version {at.version}: {at.row}")

# %% What the last batch changed.
changed = state.diff(since=max(0, state.version - 1)).read_all()
print(changed.group_by("change").aggregate([("change", "count")]).to_pylist())
state.close()
