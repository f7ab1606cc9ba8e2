"""State as data: the stores of a query as Arrow tables, without Spark or a JVM."""
