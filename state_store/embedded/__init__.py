"""A store without Spark, and the decoding of the rows that Spark wrote."""
