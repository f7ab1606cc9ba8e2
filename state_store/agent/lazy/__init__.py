"""Bases of which parts are in checkpoint storage.

`local_file` has the pages of one file; `prefetch` fetches files in the background; `file_cache` is the local
disk of an executor, with its limit; `remote_bases` has the bases of a store, and `reader_leases` the leases
on what they read.
"""
