"""Lists of values, as Spark's encoder of several values a key makes them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_store.data.rows.decoder import decode
from state_store.data.rows.encoder import encode
from state_store.data.rows.types import Packed, joined, split_values
from state_store.errors import DamagedError


def listed(rows: list[bytes]) -> bytes:
    """Return values, each after its size, with a comma between two."""
    return b",".join(len(row).to_bytes(4, "little") + row for row in rows)


@given(st.lists(st.lists(st.text(max_size=9) | st.none(), min_size=1, max_size=5), max_size=6))
def test_the_values_of_every_list_are_read_in_order(lists: list[list[str | None]]) -> None:
    encoded = [listed(encode([pa.array(values, pa.string())], len(values)).to_pylist()) for values in lists]
    owners, parts = split_values(joined(encoded))
    found = decode(Packed.of_slices(*parts), pa.schema([("x", pa.string())])).to_pylist()
    wanted = [(number, value) for number, values in enumerate(lists) for value in values]
    assert [(owner, row["x"]) for owner, row in zip(owners.tolist(), found, strict=True)] == wanted


def test_bytes_that_are_no_list_are_damaged() -> None:
    valid = listed(encode([pa.array(["a", "b"])], 2).to_pylist())
    with pytest.raises(DamagedError, match="longer than the list"):
        split_values(joined([valid, valid[:-1]]))
    with pytest.raises(DamagedError, match="within the size"):
        split_values(joined([valid + b",\1"]))
