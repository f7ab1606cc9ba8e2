"""Merges of all stores of an executor: which comes next (`merge_queue`), when and in which thread
(`scheduler`, `priority`), and how one is made (`merging`).
"""
