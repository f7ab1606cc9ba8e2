"""The store: checkpoints, storage, files, the engine, planning, deletion and snapshots.

It imports no other wing. The agent and the command line are two doors to it.
"""
