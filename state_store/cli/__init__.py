"""The command `state-store`: looks at and works on the state of a query, running or not; a module a
command.
"""
