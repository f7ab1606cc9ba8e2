"""Small queries in the tests' own session, and with an initial state."""
