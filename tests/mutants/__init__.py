"""One-line breaks of the code, and the tests that must see them."""
