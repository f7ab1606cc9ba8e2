"""Work on the stores of a query: full checkpoints, verification, repair, and the list of files.

Each module has a function for all stores of a query, which `state_store` re-exports, and one for one store.
"""
