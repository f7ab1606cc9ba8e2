"""Functions that are called for one group at a time, with plain Python values (`per_group`).

`calls` calls them; `state` is their `GroupState`, `rows` makes the classes of their arguments; `row_schemas`
converts rows, `types` and `values` the values in them, `session_zone` timestamps.
"""
