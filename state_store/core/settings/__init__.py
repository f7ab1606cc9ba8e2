"""The options, each with its meaning, default and trade-off, and the pages that are written from them."""
