"""Processors of `transformWithState`, unchanged, whose calls on state travel for many groups in one message.

`loop` is the worker's function; `groups` cuts the rows of a partition into groups, `output` converts the
results of a processor to Arrow. A processor's `handle` makes the state variables of `variables`, which share
a `session`: it sends their reads and writes in messages over a `channel`. `codec` converts values for them.
"""
