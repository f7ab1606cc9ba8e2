"""Processors of `transformWithState`, unchanged, whose calls on state travel for many groups in one message.

`processor_loop` is the worker's function: it cuts the rows of a partition into groups and converts the
results of a processor to Arrow. A processor's handle makes the state variables of `variables`, which share a
session (`task_state`): it sends their reads and writes in messages over a channel.
"""
