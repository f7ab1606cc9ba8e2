"""Commands about the files of the stores of a query: one function for each store, some at a time."""
