"""Measuring what codecs and optimizers cost: every row of the reference table, and numbers that can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.costs import measure
from testbed.costs import read_costs, reference_costs, write_costs


@pytest.mark.slow  # 5 s
def test_it_measures_the_rows_of_the_reference_table(tmp_path: Path) -> None:
    rows = measure(large=1 << 15, repeats=1)
    assert set(rows) == {*reference_costs(), "sum", "copy"}
    for name, row in rows.items():
        assert 1e-8 < row.seconds(1 << 15, 1 << 17) < 1.0, name
    lines = list(enumerate(write_costs(rows, "here").splitlines()[1:], start=2))
    assert set(read_costs(lines, "here.csv")) == set(rows)
