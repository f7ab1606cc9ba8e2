"""Lazy restores, whose files are fetched while they are read.

`hydration` fetches the files of one base, within the budget of an executor; `page_cache` keeps as many pages
as an option allows; `hydrations` has the lazy restores of a store, and their leases.
"""
