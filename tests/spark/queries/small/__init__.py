"""Small queries in the tests' own session, and with a state of their own from the beginning."""
