"""What is run: each scenario is a query, its input, and what it must have answered in the end."""
