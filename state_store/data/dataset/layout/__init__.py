"""The layout of state: views of Spark's stores, their schemas, columns and keys."""
