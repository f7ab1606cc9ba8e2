"""Declarations of what a page, an answer, a metric and a sentence say about a query."""
