"""A store without Spark."""
