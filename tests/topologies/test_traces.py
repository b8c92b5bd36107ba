"""Rates from CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from topologies.traces import MAX_ROWS, Trace, parse_rate_csv, read_rate_csv


def test_units_and_comments() -> None:
    lines = ["# measured by somebody", "time_s, rate_kbit_s", "0,800", "", "2.5,400"]
    assert parse_rate_csv(lines, "t.csv") == Trace((0.0, 2.5), (8e5, 4e5))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "t.csv: no rows"),
        (["# only words"], "t.csv: no rows"),
        (["time,rate", "0,1"], "t.csv:1: expected the header 'time_s,rate_mbit_s' (or rate_kbit_s, rate_bit_s)"),
        (["time_s,rate_mbit_s"], f"t.csv: has 0 rows, allowed 1 to {MAX_ROWS} (resample it)"),
        (["time_s,rate_mbit_s", "1,5"], "t.csv:2: the first time must be 0"),
        (["time_s,rate_mbit_s", "0,5", "3,5", "# x", "3,6"], "t.csv:5: time 3 does not come after 3"),
        (["time_s,rate_mbit_s", "0,5", "1"], "t.csv:3: expected two numbers"),
        (["time_s,rate_mbit_s", "0,5,6"], "t.csv:2: expected two numbers"),
        (["time_s,rate_mbit_s", "0,0"], "t.csv:2: time must be finite and rate above 0"),
        (["time_s,rate_mbit_s", "0,nan"], "t.csv:2: time must be finite and rate above 0"),
    ],
)
def test_mistakes_name_their_line(lines: list[str], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_rate_csv(lines, "t.csv")
    assert str(caught.value) == message


def test_files(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(b"time_s,rate_mbit_s\n0,\xff\n")
    with pytest.raises(ScenarioError, match="not valid UTF-8"):
        read_rate_csv(tmp_path / "bad.csv")
    with pytest.raises(ScenarioError, match=r"gone\.csv: No such file"):
        read_rate_csv(tmp_path / "gone.csv")
    (tmp_path / "huge.csv").write_bytes(b"x" * (1 << 20 | 1))
    with pytest.raises(ScenarioError, match="more than 1048576 bytes"):
        read_rate_csv(tmp_path / "huge.csv")
