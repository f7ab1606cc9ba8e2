"""The store as a library, without Spark."""
