"""`state_store.verify` and `state_store.repair`: the functions behind the commands of these names."""

from __future__ import annotations

import pytest
from query_directory import QueryDirectory, rows

import state_store
from state_store.errors import OptionError


@pytest.fixture
def query(tmp_path):
    made = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch")
    for batch in range(3):
        made.commit(rows(batch * 10, 20))
    return made


def test_a_good_state_has_no_problem(query):
    verification = state_store.verify(str(query.root), progress=lambda update: None)
    assert verification.ok
    assert repr(verification) == "Verification(2 stores: no problem)"
    assert [verdict.restored.number for verdict in verification.verdicts] == [3, 3]
    repairs = state_store.repair(str(query.root))
    assert repr(repairs) == "Repairs(2 stores: 0 steps planned, 0 problems left)"


def test_damage_is_found_and_stays_if_nothing_can_repair_it(query):
    key = query.keys[1]
    (delta,) = (path for path in query.files(key) if path.name.startswith(f"{3:020}"))
    delta.write_bytes(b"x" + delta.read_bytes()[1:])
    verification = state_store.verify(str(query.root))
    assert {finding.key for finding in verification.findings} == {key}
    assert delta.name[:40] in verification._repr_html_()
    assert state_store.verify(str(query.root), partition=0).ok
    repairs = state_store.repair(str(query.root), apply=True)
    assert not repairs.ok
    assert delta.exists()


@pytest.mark.parametrize("age", ["59min", "old", 3, None])
def test_an_invalid_age_is_refused(query, age):
    with pytest.raises(OptionError, match="is not an age") as refused:
        state_store.repair(str(query.root), older_than=age)
    assert refused.value.option == "older_than"
