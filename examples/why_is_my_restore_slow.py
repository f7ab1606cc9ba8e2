"""Reasons for a slow restore: a notebook as a script, without Spark.

    python examples/why_is_my_restore_slow.py /data/checkpoint

A restore brings the newest snapshot at or before its version, then the deltas after it. Each part between two
lines `# %%` is a cell for editors that know them.
"""

# %%
from __future__ import annotations

import sys
import time

import state_store

checkpoint = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)

# %% What a restore of each store reads: deltas after a snapshot, or from the beginning where there is none.
# In a notebook, `chains` alone shows them as a table, and `chains.largest` what one of them is made of.
chains = state_store.chain(checkpoint)
for key, chain in chains.items():
    base = chain.base
    start = "nothing" if base is None else f"the {base.snapshot} checkpoint {base.version.number}"
    print(f"store {key}: from {start} and {len(chain.deltas)} deltas, {chain.delta_bytes} bytes")

# %% The store that has most to read decides when all tasks of a batch can begin.
slowest = chains.largest.key
print(f"most has store {slowest}: {chains.largest.size_bytes} bytes")

# %% Which versions can be restored, and what each added; in a notebook, `history` alone shows them.
history = state_store.checkpoints(checkpoint)
for heading, lines in history.groups():
    print(f"{heading}: {len(lines)} versions, {sum(line.new_bytes for line in lines)} bytes written for them")

# %% How much of that is state, and how much is history: files against the rows that they have.
started = time.perf_counter()
with state_store.open(checkpoint, slowest.operator, slowest.name, partitions=[slowest.partition]) as state:
    found = state.stats(sample=None)
    taken_s = time.perf_counter() - started
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
