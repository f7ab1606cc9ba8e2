// Words of the page. Written from the declarations by `make docs`.
window.stateStoreWords = {
 "The figures at the top": {
  "Slowest restore": "How long the slowest store is expected to take if a task must restore it without local files, beside the query's `restoreObjective`.",
  "A checkpoint has": "Bytes of all files that the newest checkpoint needs, and the share of them that older versions wrote, so that they were not uploaded again.",
  "The last one wrote": "Bytes that the newest version wrote itself, in all stores.",
  "Longest chain": "Deltas that a restore reads after the snapshot, of the store with the most. Merges cut it.",
  "Full checkpoint": "When the newest full checkpoint was made that each store has; of the stores, the oldest. Older files are not needed for a restore of it. `never`: a store has none.",
  "In storage": "Bytes of all files in checkpoint storage, and how many versions can be restored. Only in `serve`.",
  "Merges failed": "Merges of this run that failed. Only in Spark's UI.",
  "Stores restored": "Restores of stores in this run: one a task without local files to go on with. Only in Spark's UI.",
  "Stores by executor": "The number of stores on each executor; 0 if it takes tasks and has none. Only in Spark's UI.",
  "Last batch took": "How long the newest batch took: by Spark's progress, or, in `serve`, from its entry in Spark's offset log to that in the commit log. The longest commit of a store is a part of it.",
  "Verified": "When `state-store verify` last read all files of the query. Listings show lost files, not changed bytes. Only in `serve`."
 },
 "All queries": {
  "Query": "The name of the query, else its id or its directory. Choose one to see it.",
  "Verdict": "The worst severity of its findings: critical, warning or fine. The list asks again every few seconds.",
  "What it says": "The verdict in one sentence.",
  "Last checkpoint": "When Spark committed the newest batch.",
  "Stores": "How many stores it has: partitions of its stateful operators, each with the stores of its side or kind."
 },
 "Latest": {
  "Latest failure": "The newest merge that failed, or the error that ended the query, in its own words.",
  "Latest restore": "The newest restore of a store: how long it took. Known to the Spark UI of the query."
 },
 "Summary": {
  "Figure": "A figure over the stores, at the newest checkpoint, or over the checkpoints of the history.",
  "Median": "Half of the stores, or checkpoints, have at most this.",
  "95 %": "95 of 100 have at most this.",
  "Largest": "The largest value.",
  "All": "The sum, where a sum says something."
 },
 "Stores": {
  "Store": "Number of the operator, number of the partition, name of the store; and what the operator does.",
  "Bytes, by age of the files": "The files that a restore of the store reads, by the number of versions since they were written. Old bytes are shared by many checkpoints.",
  "Bytes": "Bytes of the files that a restore needs.",
  "Keys": "Rows of the store, where they are known without reading it.",
  "Deltas": "Deltas that a restore reads after the snapshot.",
  "Files": "SST files that a restore needs.",
  "Restore": "How long a restore without local files is expected to take; red if longer than `restoreObjective`.",
  "Full checkpoint": "When the newest full checkpoint of the store was made."
 },
 "Merges": {
  "State": "running, waiting or failed.",
  "Store": "Number of the operator, number of the partition, name of the store.",
  "Kind": "`ingest` frees memory, `incremental` rewrites young files, `full` rewrites all of them.",
  "Since": "Since when it runs or waits, or when it failed.",
  "Why, or what it waits for": "The option that caused it, or what it waits for, or why it failed."
 },
 "Checkpoints": {
  "Version": "The state after batch version - 1. Open it to see its stores, its files and its reasons.",
  "Made": "When Spark committed it.",
  "Wrote": "Each store writes a delta. A merge or a full checkpoint was made of it later, with the reason.",
  "Batch": "How long the whole batch took, from Spark's offset log to its commit log.",
  "Commit": "The longest commit of a store: writing the delta, then storing it. A part of the batch. Only in Spark's UI.",
  "Merge": "The longest merge of it that was published. Merges run beside batches. Only in Spark's UI.",
  "Stores": "Stores that have it.",
  "Deltas": "Longest chain of deltas of a store.",
  "Files": "Files that it needs, in all stores.",
  "Bytes": "Bytes of these.",
  "New bytes": "Bytes of the files that it needs and no older version does.",
  "Restore": "How long the slowest store is expected to take to restore it."
 },
 "Configuration": {
  "Option": "Name of the option, below `spark.sql.streaming.stateStore.incremental.`.",
  "Value": "The value in force.",
  "Default": "The value if it is not set.",
  "Meaning": "What the option does."
 }
};
