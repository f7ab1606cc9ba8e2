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
    "6 GB on HDFS, 20 ms a request, end of the first batch, lazy, announced keys": """20,000 keys all over 6
    GB are some 18,000 blocks, each a request of its own. A program that reads 20,000 blocks of 4 KiB over
    streams that are open, by 128 threads, takes 3.2 s with the delays and 2.0 s without them: both cores are
    busy then, mostly in the kernel, in sockets of the client and the DataNode (`perf record -a`). To this
    come the ends of 200 files, the rows, the commit of 12 MB, and code that runs for the first time: in a
    JVM that has done it before the batch took 5.3 to 5.8 s, with other work beside it. Tried: blocks by
    the agent, 16 at a time (17.5 s); an open of the file for each block (9.2 to 11.0 s for 20,000 without
    anything else); files of the background that give way to the blocks and to the commit, which took 0.4
    rather than 1 s then (`docs/decisions/0128-blocks-ahead-or-files.md`). Without announced keys, looked up
    one after the other, the batch ends when nearly all files are there. RocksDB, of an earlier run, fetches
    all files before the first row.""",
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
