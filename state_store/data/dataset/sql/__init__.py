"""SQL over state: DuckDB, locked down, on the Arrow streams of the stores of a query.

DuckDB runs in this process and sees nothing but the stores: no files, no network, no extensions, no Python
variables. Its memory is bounded, and beyond the bound it spills into the directory of temporary files. It
hands the columns and the conditions of a query to the reader of the state, which decodes only these columns
and reads only the partitions, or the key, that the conditions leave.
"""
