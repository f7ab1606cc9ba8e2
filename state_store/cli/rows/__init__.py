"""Commands about the rows of a state, and what they share."""
