"""Spark's rows and Arrow's columns: types, decoding, encoding, and the hash by which Spark partitions.

Everything here works on whole batches with numpy; nothing reads files. Functions keep no state: any thread
may call them.
"""
