"""Merges of all stores of an executor.

`merge_queue` decides which comes next, `scheduler` when and in which thread, `jobs` are what the threads do,
`merging` makes a merge, and `event_log` keeps the events of merges for the JVM.
"""
