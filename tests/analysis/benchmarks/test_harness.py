"""Benchmarks: their reports and exit status, the rows of codecs, and random combinations."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from analysis.benchmarks import __main__ as command
from analysis.benchmarks import harness, transport
from analysis.benchmarks.codecs import TORCH_TOPK, gradients, measure, torch_topk
from analysis.benchmarks.combinations import draw, examine
from testbed.codec.memory import HostMemory
from testbed.codec.selectors.sweep import SampleAndSweep


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


def test_a_transport_benchmark_that_is_ended_tells_what_it_has_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = iter([[2.0, 4.0], [1.0, 1.0]])

    def measured(code: str, job: transport.Job) -> transport.Found:
        times_s = next(turns, None)
        if times_s is None:
            raise KeyboardInterrupt
        return {"times_s": times_s}

    monkeypatch.setattr(transport, "_measured", measured)
    arguments = ["--size-bytes", "1000", "--code", "none:tcp,gloo,socket", "--json"]
    with pytest.raises(KeyboardInterrupt):
        harness.main("transport", transport, arguments)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["code"], row["time_s"], row["times_the_first"]) for row in rows] == [
        ("none:tcp", 2.0, 1.0),
        ("gloo", 1.0, 2.0),
    ]


def test_every_benchmark_has_a_declaration_and_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    for name in command.BENCHMARKS:
        with pytest.raises(SystemExit):
            command.main([name, "--help"])
        assert f"testbed bench {name}" in capsys.readouterr().out
    assert command.main(["no-such"]) == 2
    listing = capsys.readouterr().out
    assert all(name in listing for name in command.BENCHMARKS)


def test_the_exact_selector_takes_what_the_baseline_takes() -> None:
    size, k = 20_000, 200
    memory, unsent = HostMemory(size, SampleAndSweep()), torch.zeros(size)
    for gradient in gradients(size, 1, 3):
        ours, theirs = memory.take(gradient, k)[1], torch_topk(gradient, unsent, k)[1]
        assert torch.equal(ours.sort().values, theirs.sort().values)


def test_one_row_per_codec() -> None:
    codecs = ("topk:ratio=0.1", "4-bit (DGT)", TORCH_TOPK)
    rows = list(measure(argparse.Namespace(elements=(2000.0,), codecs=codecs, repeats=1, seed=0)))
    assert [row["codec"].rstrip() for row in rows] == list(codecs)
    assert all(row["encode_ms"] > 0 and row["decode_ms"] > 0 for row in rows)


@pytest.mark.sample(1)  # of 2, which take 3 s
@pytest.mark.parametrize("number", [0, 2])  # the cheap ones of ten: 0.4 to 1.2 s
def test_a_combination_is_refused_with_a_cure_or_trains(number: int) -> None:
    row = examine(draw(1, number))
    assert row["ok"], row
