"""`state-store serve`: the REST API, metrics and the page, over HTTP."""
