"""The help of the benchmarks' command line."""

from __future__ import annotations

import pytest

from benchmarks import benchmark_command


def test_help_names_the_extents_and_exits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        benchmark_command.main(["--help"])
    assert ended.value.code == 0
    assert "quick" in capsys.readouterr().out
