"""Processors of `transformWithState`, unchanged, whose calls on state travel for many groups in one message.

`loop` is the worker's function; `groups` cuts the rows of a partition into groups, `output` makes Arrow of
what the processor gives. A processor's `handle` gives it the state variables of `variables`, which share a
`session`: what the messages over a `channel` bring and take. `codec` turns values into what travels.
"""
