"""The options: what each means, its default and its trade-off, and the pages that are written from them."""
