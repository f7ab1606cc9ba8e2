"""Breaks of `state_store/data/dataset`, of `state_store/data/rows` and of what the engine has for them."""

from __future__ import annotations

from mutants.mutant import Mutant

STATE = ("tests/data/dataset/test_state.py",)
ROWS = ("tests/core/engine/test_rows.py",)
ROUND_TRIP = ("tests/data/rows/test_round_trip.py",)

MUTANTS = [
    Mutant(
        "rows of younger runs are returned twice",
        "state_store/core/engine/sorted_runs.py",
        "yield from _kept(page, _first_occurrences(page.keys))",
        "yield from _kept(page, ~page.removed)",
        ROWS,
    ),
    Mutant(
        "removed rows of the oldest run stay",
        "state_store/core/engine/sorted_runs.py",
        "stays = stays & ~page.removed",
        "stays = stays | page.removed",
        ROWS,
    ),
    Mutant(
        "the oldest of several runs counts",
        "state_store/core/engine/rows.py",
        "for run in runs\n",
        "for run in reversed(runs)\n",
        ROWS,
    ),
    Mutant(
        "existing keys are counted again",
        "state_store/core/engine/sorted_runs.py",
        "highest[1:] > highest[:-1]",
        "highest[1:] >= highest[:-1]",
        ROWS,
    ),
    Mutant(
        "a few newer records take nothing from many older ones",
        "state_store/core/engine/sorted_runs.py",
        "are_among[at : at + 1] |= at < len(texts) and texts[at] == key",
        "pass",
        ROWS,
    ),
    Mutant(
        "the partition of a map's expiry index is that of both keys",
        "state_store/data/dataset/layout/keys.py",
        "if view.is_index_of_map:",
        "if False:",
        ("tests/data/dataset/test_keys.py",),
    ),
    Mutant(
        "a list expires with its first entry",
        "state_store/data/dataset/rewriting/replacing.py",
        "firsts = [min(row.moment_ms for row in group) for group in groups]",
        "firsts = [group[0].moment_ms for group in groups]",
        ("tests/data/dataset/test_derived_rows.py",),
    ),
    Mutant(
        "negative floats sort as their bits",
        "state_store/data/rows/key_layouts.py",
        "values = numpy.where(is_negative, ~values, values)",
        "values = values",
        ROUND_TRIP,
    ),
    Mutant(
        "rows that do not lie evenly are read as if they did",
        "state_store/data/rows/plain_columns.py",
        "bool((steps == steps[0]).all())",
        "True",
        STATE,
    ),
    Mutant(
        "a lost row is not noticed",
        "state_store/data/dataset/state.py",
        "if count != family.keys:",
        "if False:",
        ("tests/data/dataset/test_state.py::test_a_lost_row_is_an_error",),
    ),
    Mutant(
        "a reader holds no lease",
        "state_store/data/dataset/reading/pinned.py",
        "        self._hold(wanted)\n",
        "",
        ("tests/data/dataset/test_state.py::test_a_lease_protects_files_from_clean_ups",),
    ),
    Mutant(
        "a negative zero is hashed as it is",
        "state_store/data/rows/hashing.py",
        "values = numpy.where(values == 0, values.dtype.type(0), values)",
        "values = values",
        ("tests/data/rows/test_round_trip.py::test_numbers_that_are_equal_are_in_one_partition",),
    ),
    Mutant(
        "keys that are elsewhere are moved all the same",
        "state_store/data/dataset/rewriting/store_writer.py",
        "if (_places(view, page.keys, before) != number).any():",
        "if False:",
        ("tests/data/dataset/test_repartition.py",),
    ),
    Mutant(
        "nulls have no bit in the rows",
        "state_store/data/rows/encoder.py",
        "numpy.where(nulls, _bit(index % 64), 0)",
        "0",
        ROUND_TRIP,
    ),
]
