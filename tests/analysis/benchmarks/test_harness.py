"""The harness of benchmarks: reports, exit status, alternation."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from analysis.benchmarks import __main__ as command
from analysis.benchmarks import harness


def module(*rows: harness.Row) -> ModuleType:
    made = ModuleType("made", "What it measures.")
    vars(made).update(measure=lambda options: rows, ARGUMENTS={"--size": {"type": int, "default": 3}})
    return made


def test_rows_are_reported_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = {"name": "a", "rate_bps": 1.5, "ok": True}, {"name": "b", "rate_bps": 2.5, "ok": False}
    assert harness.main("made", module(good), ["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == good
    assert harness.main("made", module(good, bad), ["--csv", str(tmp_path / "rows.csv")]) == 1
    assert capsys.readouterr().out.split() == ["name", "rate_bps", "ok", "a", "1.5", "ok", "b", "2.5", "OUTSIDE"]
    assert (tmp_path / "rows.csv").read_text().splitlines() == ["name,rate_bps,ok", "a,1.5,True", "b,2.5,False"]


def test_every_benchmark_has_a_declaration_and_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    for name in command.BENCHMARKS:
        with pytest.raises(SystemExit):
            command.main([name, "--help"])
        assert f"testbed bench {name}" in capsys.readouterr().out
    assert command.main(["no-such"]) == 2
    listing = capsys.readouterr().out
    assert all(name in listing for name in command.BENCHMARKS)
