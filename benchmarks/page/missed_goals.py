"""Reasons for missed goals: the results of profiles of this store, by the setting of the goal.

They are written by hand after profiling (JFR at 5 ms, clocks around each phase of a commit); the page shows
those whose goals a run misses.
"""

from __future__ import annotations

REASONS: dict[str, str] = {
    "500k keys, 100 B, batch 20k uniform, 256 MB": """Of 41 ms, 16 are gets and puts (0.8 us a key): in the
    profile half of a get waits for the record to come from main memory, a fifth for the table of the
    transaction, a tenth for the index. 9 ms are sorting and writing 20,000 rows, 10 the sync of 2.4 MB and
    the agent's answer. The HDFS-backed store has its rows as objects on the heap and pays with a copy of
    the whole map when it opens, which grows with the state; RocksDB has a block cache as large as this
    store's budget. Tried: headers of sorted records read ahead in groups of 32 while they are written took
    5 % off the CPU of writing, and is not in; huge pages gave nothing (`docs/decisions/0107-tables-outside-
    the-heap.md`). A file that is synced in pieces by another thread while it is written (a program of its
    own, on this disk, in turns) was durable after 12.0 rather than 13.8 ms with 2.5 MB, 51.7 rather than
    65.0 ms with 12 MB: not built, since a file system with a journal writes it once a piece. A value in the
    cache line of its slot, which would spare the wait for the record, would have to be shorter than the 100
    bytes here.""",
    "500k keys, 100 B, batch 1k uniform, 256 MB": """Four of five milliseconds are once a batch, whatever
    its size: the new file and its sync (0.6 ms), the agent's answer (1.5 ms, of which 0.5 ms are link and
    sync), Spark's own report of the commit to its coordinator (0.6 ms), and code that runs once a batch and
    is interpreted for that reason. Not built: the sync beside the agent's answer, by which at most the 0.6
    ms were to be had.""",
    "500k keys, 100 B, batch 20k append-only": """As with uniform keys: of 29 ms, 8 are gets and puts, 8
    sorting and writing, 10 the sync and the agent's answer. The HDFS-backed store opens in 61 ms here, and
    in 98 with uniform keys; why that is so was not looked into.""",
    "500k keys, 100 B, batch 20k zipf, 256 MB": """As with uniform keys; skewed keys make the HDFS-backed
    store quicker, too, both a get and put and the copy of the map.""",
    "500k keys, 100 B, batch 100k uniform, 256 MB": """A row costs what it costs in a smaller batch, 1.8 us
    of CPU: 0.9 a get and a put, 0.7 sorting and writing, 0.2 its place in the index (`python -m
    benchmarks.comparisons.data_plane pattern=uniform start=memory merge=0 batch=100000 batches=24`; 1.65 us
    with 20,000 rows). The HDFS-backed store pays for the copy of its map once a batch, whatever its size:
    of 100,000 rows a fifth as much falls on each as of 20,000, and what is left, a get and a put on the
    heap, is cheap. RocksDB's commit is short, since its changelog is not sorted; its gets and puts take
    long.""",
    "5M keys, 100 B, batch 50k uniform, 1 GB": """RocksDB has a block cache of the whole budget here. This
    store's batch was not profiled at this size; at 500k keys it is memory latency, see above.""",
    "6 GB on HDFS, 20 ms a request, end of the first batch, lazy": """20,000 keys all over 6 GB, looked up
    one after the other, are some 16,000 requests of 128 KiB, of 40 ms each (an open and a read), while
    their blocks are not there: the batch ends when nearly all files are, about when that of an eager
    restore does. RocksDB fetches all files before the first row. Files come at some 550 MB a second, and
    both cores are busy with that: of 2.4 GB, which come at 640 MB a second, the executor takes 1.2 cores
    and the DataNode 0.55, two thirds of it in the kernel, in sockets and the page cache (`perf record
    -a`). 2 s would take 3 GB a second. Tried: 8, 16 and 32 transfers at a time
    (`docs/decisions/0120-sixteen-transfers-at-a-time.md`: 16 is the default now, and 1.4 to 1.8 times as
    quick as 8); a quarter of the transfers while ends are asked for, so that these have the cores: neither
    the first row nor the end of the batch differed (4M keys of 600 B, three times each in turns); files
    of 32 rather than 8 MiB, which differed by less than one restore from the next (5M keys, five times
    each). The first row does not wait for files: `docs/decisions/0122-ends-go-to-their-files.md`.""",
    "6 GB on S3, 20 ms a request, end of the first batch, lazy": """As on HDFS. The service is a Python
    process on the same two cores.""",
    "batch of 20k, all keys in a sixth of their bytes": """Nine of ten look-ups go to a file, after the
    filters of three to ten files were asked, and read a block of it. Of a batch's time the filters take 22
    % and the search in the index of a file 14 %: both are waits for main memory. Blocks are verified when
    they are read for the first time, so that batches soon after a load, or a restore, take twice as long.""",
    "time of a restore without local files, as predicted": """1,000 deltas of a store that never merges were
    linked in 28 ms, where 81 were predicted: nothing but the prior of a link and its check, 0.08 ms a file,
    since each restore of the benchmark is the first of its store. This disk takes 0.02 ms for them, and 0.01
    for a file's place in the listing. With the prior that is in now, 0.021 ms, the prediction is 23 ms; the
    figure is from before. Of 6 GB one restore is measured, the first of
    its executor: what storage takes is a guess then, until there were requests (5 ms a MB for all transfers
    together, where HDFS took 2.4 and S3 4.6). Others were 31 % off at most (23 ms of 75).""",
}
