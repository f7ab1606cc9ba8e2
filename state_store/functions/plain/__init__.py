"""Functions that are called for one group at a time, with plain Python values (`per_group`).

`calls` calls them; `state` is their `GroupState`, `rows` makes the classes of what they get; `row_schemas`
brings whole rows over, `types` and `values` what is in them, `session_zone` moments.
"""
