"""Commands about the rows of a state."""
